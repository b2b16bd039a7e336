"""Bodies in JSON: bounded before they are parsed, then checked up to the first thing wrong.

Schemas describe the bodies, and check all but the rows and labels: over those, a library that
collects every error takes a thousand times the body. They are checked here, column by column, and
the first error ends it.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import from_json

from calipers.serve._problems import HTTPProblem
from calipers.serve._schemas import MOST_ID, MOST_LABELS, PredictRequest
from calipers.tables import Reserve, TableLimits

_BYTES_A_MARK = 72  # of the objects that one comma, or a quarter of a bracket, stands for
_MARKS_A_BRACKET = 4
_BRANCHES = ("float", "constrained-float")
_CELLS = {float, int, bool, str, type(None)}
_NUMBERS = {float, int, type(None)}


def _parsed(body: bytes, limits: TableLimits, reserve: Reserve) -> dict[str, Any]:
    """An object in JSON of a bounded number of values.

    Every value but the first follows a comma or a bracket. Those in texts are counted too: to tell
    them apart would take as long as to parse the body.
    """
    brackets = body.count(b"[") + body.count(b"{")
    marks = body.count(b",") + _MARKS_A_BRACKET * brackets
    if marks > limits.cells + _MARKS_A_BRACKET * limits.rows:
        raise HTTPProblem(
            413, f"the body has more than {limits.cells:,} values: send fewer rows at a time"
        )
    reserve(4 * len(body) + _BYTES_A_MARK * marks)
    try:
        found = from_json(body)
    except ValueError as error:
        raise HTTPProblem(422, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HTTPProblem(422, "the body: should be an object")
    return found


def read_request(body: bytes, limits: TableLimits, reserve: Reserve) -> PredictRequest:
    """A request for predictions, whose rows are lists or objects, all the same."""
    found = _parsed(body, limits, reserve)
    _check_fields(found, list(PredictRequest.model_fields), "rows")
    rows = found["rows"]
    if not isinstance(rows, list):
        raise HTTPProblem(422, "rows: should be a list")
    if not rows:
        raise HTTPProblem(422, "rows: should have at least 1 item")
    kind = list if isinstance(rows[0], list) else dict
    wrong = next((i for i, row in enumerate(rows) if type(row) is not kind), None)
    if wrong is not None:
        words = "a list" if kind is list else "an object"
        raise HTTPProblem(422, f"rows[{wrong}]: should be {words}, as the first row is")
    limits.check(len(rows), max(map(len, rows)))
    for name in ("coverage", "quantiles"):  # what is longer than any limit need not be looked at
        if isinstance(found.get(name), list):
            found[name] = found[name][:1_000]
    try:
        return PredictRequest.model_validate(found)
    except ValidationError as error:
        raise HTTPProblem(422, _first_error(error)) from None


def _check_fields(found: dict[str, Any], known: Sequence[str], required: str) -> None:
    unknown = next((name for name in found if name not in known), None)
    if unknown is not None:
        raise HTTPProblem(422, f"{unknown[:100]}: is not permitted; fields are {', '.join(known)}")
    if required not in found:
        raise HTTPProblem(422, f"{required}: Field required")


def _first_error(error: ValidationError) -> str:
    """Where and what, for the branch of a union that got furthest."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = max(found, key=lambda one: (len(one["loc"]), one["type"] != "float_type"))
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in first["loc"]
        if isinstance(part, int) or not (part in _BRANCHES or part.startswith("list["))
    )
    return f"{place.lstrip('.')}: {first['msg']}"


def read_cells(values: Sequence[Any], place: str) -> NDArray[Any]:
    """Values of a column: floats where all are numbers, else objects, whole numbers made floats.

    Lists, objects and numbers that are not finite are refused; ``place`` says where values are,
    with ``{}`` for the row.
    """
    kinds = set(map(type, values))
    if not kinds <= _CELLS:
        row = next(i for i, value in enumerate(values) if type(value) not in _CELLS)
        raise HTTPProblem(
            422, f"{place.format(row)}: should be a number, true, false, a text or null"
        )
    if kinds <= {float, int}:
        with suppress(OverflowError):
            numbers = np.array(values, dtype=np.float64)
            if np.isfinite(numbers).all():
                return numbers
    found = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        found[row] = _finite(value, place, row) if type(value) in (float, int) else value
    return found


def _finite(value: float, place: str, row: int) -> float:
    with suppress(OverflowError):
        if math.isfinite(value):
            return float(value)
    raise HTTPProblem(422, f"{place.format(row)}: should be a finite number")


def read_labels(
    body: bytes, limits: TableLimits, reserve: Reserve
) -> list[tuple[str, NDArray[Any]]]:
    """Ids and labels, NaN where one is not known yet."""
    found = _parsed(body, limits, reserve)
    _check_fields(found, ["labels"], "labels")
    labels = found["labels"]
    if not isinstance(labels, list) or not 1 <= len(labels) <= MOST_LABELS:
        raise HTTPProblem(422, f"labels: should be a list of 1 to {MOST_LABELS:,} items")
    taken = [_label(label, f"labels[{i}]") for i, label in enumerate(labels)]
    if sum(int(np.count_nonzero(~np.isnan(y))) for _, y in taken) > MOST_LABELS:
        raise HTTPProblem(
            413,
            f"labels: are those of more than {MOST_LABELS:,} rows: post the others after these, "
            "null stands for each that is not in a post",
        )
    return taken


def _label(label: Any, place: str) -> tuple[str, NDArray[Any]]:
    if not isinstance(label, dict) or set(label) != {"id", "y"}:
        raise HTTPProblem(422, f"{place}: should be an object of an id and y, and nothing else")
    key, y = label["id"], label["y"]
    if not isinstance(key, str) or len(key) > MOST_ID:
        raise HTTPProblem(422, f"{place}.id: should be a text of at most {MOST_ID} characters")
    values, where = (y, f"{place}.y[{{}}]") if isinstance(y, list) else ([y], f"{place}.y")
    wrong = next((i for i, value in enumerate(values) if type(value) not in _NUMBERS), None)
    if y is None or wrong is not None:
        raise HTTPProblem(
            422, f"{where.format(wrong)}: should be a number, true and false are none"
        )
    return key, read_cells(values, where).astype(np.float64)
