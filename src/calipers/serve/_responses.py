"""Responses with predictions: JSON by row, or a table by column."""

import io
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_json

from calipers.prediction import MEMBER, Prediction
from calipers.serve._bodies import ARROW_FILE, ARROW_STREAM, CSV, MEDIA_TYPES
from calipers.serve._problems import HTTPProblem
from calipers.serve._served import Served, ServedPrediction
from calipers.tables import FORMATS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_BYTES_PER_NUMBER = 80  # in an array, and in the longest format: a quantile with its level in JSON
_BYTES_PER_ROW = 64
_BYTES_PER_CELL = 32
_NUMBERS_PER_BLOCK = 100_000
_OBJECTS = {"intervals": ("lower", "upper"), "quantiles": ("value",), "members": MEMBER}
"""Fields of a prediction with several objects per row, and the keys of each object."""
_LEVELS = {"intervals": ("coverage", "coverages"), "quantiles": ("level", "quantile_levels")}
"""Fields whose objects have a level: its key, and the field of the prediction with the levels."""
_FORMATS = {CSV: "CSV", ARROW_FILE: "Arrow", ARROW_STREAM: "Arrow stream"}
_NULLS: dict[str, Any] = {"inf_nan_mode": "null"}


def numbers_bytes(numbers: int, rows: int) -> int:
    """Return an upper bound on the bytes of the numbers of a response, in any format."""
    return _BYTES_PER_NUMBER * numbers + _BYTES_PER_ROW * rows


def kept_bytes(table: "pa.Table") -> int:
    """Return an upper bound on the bytes of the caller's own columns in a response."""
    return _BYTES_PER_CELL * table.num_rows * table.num_columns + 2 * int(table.nbytes)


def outside_bytes(served: Served, prediction: ServedPrediction) -> int:
    """Return an upper bound on the bytes of the names of inputs outside the training range."""
    if not prediction.outside.any():
        return 0
    lengths = np.array([4 * len(column.name) + 4 for column in served.model.inputs_])
    return 2 * int(prediction.outside.sum(axis=0) @ lengths)


def negotiate(accept: str | None, sent: str) -> str:
    """Return the format of a response by the weights of RFC 9110.

    The most specific range that matches a format gives its weight. Among formats of equal weight,
    that of the request is preferred, then the one named first.

    >>> negotiate("*/*", "text/csv"), negotiate("text/csv;q=0.9", "application/json")
    ('text/csv', 'text/csv')
    >>> negotiate("text/csv;q=0.5, application/*", "text/csv")
    'application/json'
    """
    ranges: dict[str, tuple[float, int]] = {}
    for position, part in enumerate((accept or "*/*").split(",")):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        ranges.setdefault(kind, (_weight(parameters), -position))
    weights = {}
    for media in (sent, *MEDIA_TYPES):
        for kind in (media, media.partition("/")[0] + "/*", "*/*"):
            if kind in ranges:
                weights[media] = ranges[kind]
                break
    best = max(weights, key=lambda media: weights[media], default=None)  # the first of equal weight
    if best is None or not weights[best][0]:
        raise HTTPProblem(
            406, f"responses come as {', '.join(MEDIA_TYPES)}, and {accept!r} allows none of them"
        )
    return best


def _weight(parameters: list[str]) -> float:
    """Return the weight among the parameters of a range; 0 if it is malformed."""
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if name.strip() == "q" and equals:
            valid = re.fullmatch(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", value.strip())
            return float(value) if valid else 0.0
    return 1.0


def as_json(served: Served, prediction: ServedPrediction, numbers: int, key: str | None) -> bytes:
    """Return predictions in JSON, row by row, with null for infinite bounds.

    They are written in blocks of rows, since the Python objects take many times the bytes of their
    JSON; ``numbers`` is the count of numbers in the whole response.
    """
    rows = max(1, _NUMBERS_PER_BLOCK * len(prediction) // max(numbers, 1))
    blocks = [
        to_json(_block(served, prediction[i : i + rows]), **_NULLS)
        for i in range(0, len(prediction), rows)
    ]
    reason = served.infinite_reason(prediction)
    head = to_json({"model": served.name, "id": key, "infinite_reason": reason, "predictions": []})
    return head[:-2] + b",".join(block[1:-1] for block in blocks) + b"]}"


def _block(served: Served, prediction: ServedPrediction) -> list[dict[str, Any]]:
    """Return one object per row from the fields of the prediction; most are single numbers."""
    requested = prediction.prediction
    columns: dict[str, list[Any]] = {"point": [], "intervals": [[]] * len(prediction)}
    level_fields = {levels for _, levels in _LEVELS.values()}
    for field in fields(requested):
        values = getattr(requested, field.name)
        if values is None or field.name in level_fields:
            continue
        if field.name in _OBJECTS:
            columns[field.name] = _objects(requested, field.name)
        elif field.name == "density":
            columns["density"] = _dicts(x=values[:, 0].tolist(), y=values[:, 1].tolist())
        elif field.name == "atoms":
            atoms = [row[:, np.isfinite(row[0])].tolist() for row in values]  # without padding
            columns["atoms"] = [{"x": value, "mass": mass} for value, mass in atoms]
        else:
            columns[field.name] = values.tolist()
    columns["outside"] = _outside(served, prediction)
    return _dicts(**columns)


def _objects(prediction: Prediction, name: str) -> list[list[dict[str, Any]]]:
    """Return for each row a list of objects, such as its intervals."""
    rows, values = len(prediction), getattr(prediction, name)
    names = _OBJECTS[name] if values.ndim == 2 else _OBJECTS[name][: values.shape[1]]
    parts = values.reshape(rows, len(names), -1).transpose(2, 1, 0).tolist()
    objects = [dict(zip(names, part, strict=True)) for part in parts]
    if name in _LEVELS:
        key, field = _LEVELS[name]
        levels = getattr(prediction, field).tolist()
        objects = [{key: [level] * rows} | o for level, o in zip(levels, objects, strict=True)]
    return [list(row) for row in zip(*(_dicts(**o) for o in objects), strict=True)]


def _dicts(**columns: list[Any]) -> list[dict[str, Any]]:
    """Return one object for each row, from lists of equal length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _outside(served: Served, prediction: ServedPrediction) -> list[list[str]]:
    """Return the names of each row's inputs outside the training range; most rows have none."""
    names = np.array([column.name for column in served.model.inputs_], dtype=object)
    outside: list[list[str]] = [[]] * len(prediction)
    for row in np.flatnonzero(prediction.outside.any(axis=1)):
        outside[row] = names[prediction.outside[row]].tolist()
    return outside


def predictions_frame(
    served: Served, prediction: ServedPrediction, kept: "pd.DataFrame | None" = None
) -> "pd.DataFrame":
    """Return predictions as a frame, after the columns of the frame ``kept``."""
    import pandas as pd

    columns: dict[str, Any] = dict(prediction.prediction.columns())
    columns["outside"] = [", ".join(names) for names in _outside(served, prediction)]
    frame = pd.DataFrame(columns)
    if kept is None:
        return frame
    while taken := set(frame.columns) & set(kept.columns):
        frame = frame.rename(columns={name: f"{name}_predicted" for name in taken})
    return pd.concat([kept.reset_index(drop=True), frame], axis=1)


def write_frame(frame: "pd.DataFrame", kind: str) -> bytes:
    """Return a frame as CSV or Arrow IPC."""
    import pyarrow as pa

    sink, make = io.BytesIO(), FORMATS[_FORMATS[kind]].write
    assert make is not None  # noqa: S101 - of a format that can be written
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    except (pa.ArrowException, ValueError, OverflowError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:300]
        raise HTTPProblem(422, f"the columns to keep cannot be written: {reason}") from None
    return sink.getvalue()
