"""Handling of requests: reading, splitting, queueing, prediction, recording and writing."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from calipers._server_settings import ServerSettings
from calipers.prediction import Query
from calipers.preprocessing import DataError
from calipers.serve import _bodies as bodies, _responses as responses
from calipers.serve._batching import LARGE, Batcher, offload
from calipers.serve._bodies import JSON, media_type
from calipers.serve._guard import ACCOUNT, Account, receive_body
from calipers.serve._json import read_labels, read_request
from calipers.serve._monitor import Monitor
from calipers.serve._problems import HTTPProblem, problem_of_table
from calipers.serve._schemas import AddressFields
from calipers.serve._served import Columns, Piece, Served, ServedPrediction, join
from calipers.tables import Reserve, TableError, TableLimits

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

ID_HEADER = "Calipers-Prediction-Id"

_LABELS_AT_A_TIME = 100


@dataclass(frozen=True, eq=False)
class _RequestRows:
    """The rows and the query of a request, and the count of numbers in its response."""

    columns: Columns
    rows: int
    numbers: int
    query: Query
    record: bool
    frame: "pd.DataFrame | None" = None  # that the response starts with


class Service:
    """The models with their queues, and the limits that hold for all of them."""

    def __init__(
        self, models: dict[str, Served], settings: ServerSettings, monitor: Monitor
    ) -> None:
        self.models, self._settings, self._monitor = models, settings, monitor
        self._batchers = {name: self._batcher(served) for name, served in models.items()}
        self._learning = {name: asyncio.Lock() for name in models}
        self.ready = False

    def _batcher(self, served: Served) -> Batcher:
        rows = self._monitor.batches.labels(served.name)

        def work(pieces: list[Piece]) -> list[ServedPrediction | Exception]:
            rows.observe(sum(len(piece) for piece in pieces))
            return served.predict(pieces)

        return Batcher(work, self._settings.batch_rows)

    async def warm_up(self) -> None:
        """Compile the programs of all models; then the server is ready."""
        for served in self.models.values():
            await asyncio.to_thread(served.warm_up)
        self.ready = True

    def close(self) -> None:
        """Finish predictions in progress."""
        self.ready = False
        for batcher in self._batchers.values():
            batcher.close()

    @property
    def limits(self) -> dict[str, float]:
        s = self._settings
        return {
            "bytes": s.max_body,
            "rows": s.max_rows,
            "columns": s.max_columns,
            "seconds": s.timeout,
        }

    def model(self, name: str) -> Served:
        if name not in self.models:
            names = ", ".join(map(repr, self.models))
            raise HTTPProblem(404, f"there is no model {name[:100]!r}; the models are {names}")
        return self.models[name]

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Limit the time of a block; errors in the data become problem documents."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                yield
        except TimeoutError:
            limit = f"{self._settings.timeout:g} s"
            problem = f"the response took longer than {limit}: send fewer rows at a time"
            raise HTTPProblem(503, problem) from None
        except DataError as error:
            raise HTTPProblem(422, str(error)) from None
        except TableError as error:
            raise problem_of_table(error) from None

    async def _body(self, request: Request, account: Account) -> bytes:
        """Return the body of a request, which holds a slot from then on."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                body = await receive_body(request, self._settings.max_body, account.reserve)
        except TimeoutError:
            raise HTTPProblem(408, "the body did not arrive in time") from None
        account.admit()  # not before: stalling callers would hold all slots
        return body

    async def predict(self, name: str, request: Request, fields: AddressFields | None) -> Response:
        """Respond to a request for predictions; ``fields`` are those of a query string, if any."""
        served = self.model(name)
        account: Account = request.scope[ACCOUNT]
        sent = media_type(request.headers.get("content-type", ""))
        wanted = responses.negotiate(request.headers.get("accept"), sent)
        body = await self._body(request, account)
        async with self._in_time():
            size = len(body) if sent == JSON else LARGE  # few bytes of a table may hold many cells
            table = await offload(size, self._read, served, body, sent, fields, account.reserve)
            prediction = await self._predict(served, table)
            account.reserve(responses.outside_bytes(served, prediction))
            key = self._monitor.predicted(name, prediction) if table.record else None
            size = table.numbers if table.frame is None else LARGE
            content = await offload(size, _written, served, prediction, table, key, wanted)
        headers = {} if key is None else {ID_HEADER: key}
        return Response(content, media_type=wanted, headers=headers)

    def _limits(self, columns: int = 0) -> TableLimits:
        """Return the limits of a table; as many ``columns`` as a model has inputs are allowed."""
        s = self._settings
        return TableLimits(s.max_body, s.max_rows, max(s.max_columns, columns), s.max_cells)

    def _read(
        self, served: Served, body: bytes, sent: str, fields: AddressFields | None, reserve: Reserve
    ) -> _RequestRows:
        """Return the rows and the query of a request."""
        limits = self._limits(len(served.inputs))
        if sent == JSON:
            if fields is not None:
                raise HTTPProblem(422, "with a body in JSON, the query goes into the body")
            request = read_request(body, limits, reserve)
            query, rows = request.to_query(), len(request.rows)
            numbers = self._checked(served, rows, query)
            reserve(responses.numbers_bytes(numbers, rows))
            return _RequestRows(
                bodies.row_columns(request.rows, served), rows, numbers, query, request.record
            )
        fields = fields or AddressFields.model_validate({})
        query, table = fields.to_query(), bodies.read_body(body, sent, limits, reserve)
        numbers = self._checked(served, table.num_rows, query)
        kept = responses.kept_bytes(table) if fields.keep else 0
        reserve(responses.numbers_bytes(numbers, table.num_rows) + kept)
        frame = bodies.frame_of(table)
        columns, first = bodies.frame_columns(frame, served), frame if fields.keep else None
        return _RequestRows(columns, len(frame), numbers, query, fields.record, first)

    def _checked(self, served: Served, rows: int, query: Query) -> int:
        """Return the count of numbers in a response; refuse too many, and unsupported queries."""
        numbers = rows * query.size(served.ensemble.members_count)
        if numbers > self._settings.max_numbers:
            raise HTTPProblem(
                413,
                f"the response would have more than {self._settings.max_numbers:,} numbers: "
                "send fewer rows, or request less for each",
            )
        try:
            served.ensemble.check(query)
        except ValueError as error:
            raise HTTPProblem(422, str(error)) from None
        return numbers

    async def _predict(self, served: Served, table: _RequestRows) -> ServedPrediction:
        """Queue a table piece by piece, so that other requests are handled in between."""
        predictions = []
        size = self._settings.batch_rows
        for start in range(0, table.rows, size):
            rows = min(size, table.rows - start)
            part = {name: values[start : start + rows] for name, values in table.columns.items()}
            piece = Piece(part, rows, table.query)
            try:
                batcher = self._batchers[served.name]
                predictions.append(await batcher.submit(piece, table.numbers))
            except DataError as error:
                row = None if error.row is None else error.row + start
                raise DataError(error.problem, column=error.column, row=row) from None
        return join(predictions)

    async def label(self, name: str, request: Request) -> dict[str, Any]:
        """Record labels that were posted back."""
        self.model(name)
        account: Account = request.scope[ACCOUNT]
        if media_type(request.headers.get("content-type", "")) != JSON:
            raise HTTPProblem(415, "labels must be sent as application/json")
        body = await self._body(request, account)
        async with self._in_time():
            posted = await offload(len(body), read_labels, body, self._limits(), account.reserve)
            counts = await self._count(name, posted)
        # Without a time limit: an update that has begun is completed, even if the caller is gone.
        await asyncio.shield(asyncio.create_task(self._learn(name)))
        return counts

    async def _count(self, name: str, posted: list[tuple[str, Any]]) -> dict[str, Any]:
        counted = repeated = 0
        unknown = []
        for i, (key, y) in enumerate(posted):
            if i % _LABELS_AT_A_TIME == 0:
                await asyncio.sleep(0)  # let other requests run
            try:
                self.models[name].check_labels(y)
                counts = self._monitor.labelled(name, key, y)
            except ValueError as error:
                raise HTTPProblem(422, str(error)) from None
            if counts is None:
                unknown.append(key)
            else:
                counted += counts[0]
                repeated += counts[1]
        return {"counted": counted, "repeated": repeated, "unknown": unknown}

    async def _learn(self, name: str) -> None:
        """Update a model with its new labels, one post after the other."""
        async with self._learning[name]:
            fresh, served = self._monitor.watches[name].fresh(), self.models[name]
            if fresh is not None:
                await asyncio.to_thread(served.learn, *fresh, self._settings.adapt)
            if served.alarm is not None:
                self._monitor.learned(name, served.alarm)
            try:
                await asyncio.to_thread(served.save)
            except (OSError, ValueError) as error:
                logger.error("the updated model could not be saved", exc_info=error)
                raise HTTPProblem(
                    503,
                    "the labels were counted, but the updated model could not be saved; see the "
                    "server's log. Post them again to try again",
                    {"Retry-After": "10"},
                ) from None


def _written(
    served: Served, prediction: ServedPrediction, table: _RequestRows, key: str | None, kind: str
) -> bytes:
    if kind == JSON:
        return responses.as_json(served, prediction, table.numbers, key)
    return responses.write_frame(responses.predictions_frame(served, prediction, table.frame), kind)
