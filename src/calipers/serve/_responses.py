"""Predictions as callers get them: JSON by row, or a table by column."""

import io
import re
from dataclasses import fields
from typing import Any

import numpy as np
from pydantic_core import to_json

from calipers.prediction import MEMBER, Prediction
from calipers.serve._models import Served
from calipers.serve._problems import HTTPProblem
from calipers.serve._queries import ServedPrediction
from calipers.serve._reading import ARROW_STREAM, CSV, MEDIA_TYPES

_BYTES_A_NUMBER = 80  # in an array, and in the longest form: a quantile with its level in JSON
_BYTES_A_ROW = 64
_BYTES_A_CELL = 32
_NUMBERS_A_BLOCK = 100_000
_OBJECTS = {"intervals": ("lower", "upper"), "quantiles": ("value",), "members": MEMBER}
"""Fields of a prediction with several objects a row, and what each object holds."""
_LEVELS = {"intervals": ("coverage", "coverages"), "quantiles": ("level", "quantile_levels")}
"""Those with a level: its name in the object, and the field that holds the levels."""
_NULLS: dict[str, Any] = {"inf_nan_mode": "null"}


def numbers_bytes(numbers: int, rows: int) -> int:
    """Bytes that the numbers of an answer take, at most, in whatever format."""
    return _BYTES_A_NUMBER * numbers + _BYTES_A_ROW * rows


def kept_bytes(table: Any) -> int:
    """Bytes that the caller's own columns take in an answer, at most."""
    return _BYTES_A_CELL * table.num_rows * table.num_columns + 2 * int(table.nbytes)


def outside_bytes(served: Served, answer: ServedPrediction) -> int:
    """Bytes of the names of inputs that training did not see, at most."""
    if not answer.outside.any():
        return 0
    lengths = np.array([4 * len(column.name) + 4 for column in served.model.inputs_])
    return 2 * int(answer.outside.sum(axis=0) @ lengths)


def negotiate(accept: str | None, sent: str) -> str:
    """Format of an answer, by the weights of RFC 9110; that of the request where all are alike.

    The most specific range that fits a format gives its weight. Of formats with the same weight,
    the one named first is taken.

    >>> negotiate("*/*", "text/csv"), negotiate("text/csv;q=0.9", "application/json")
    ('text/csv', 'text/csv')
    >>> negotiate("text/csv;q=0.5, application/*", "text/csv")
    'application/json'
    """
    ranges: dict[str, tuple[float, int]] = {}
    for place, part in enumerate((accept or "*/*").split(",")):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        ranges.setdefault(kind, (_weight(parameters), -place))
    found = {}
    for known in (sent, *MEDIA_TYPES):
        for kind in (known, known.partition("/")[0] + "/*", "*/*"):
            if kind in ranges:
                found[known] = ranges[kind]
                break
    best = max(found, key=lambda known: found[known], default=None)  # the first of equals
    if best is None or not found[best][0]:
        raise HTTPProblem(
            406, f"answers come as {', '.join(MEDIA_TYPES)}, and {accept!r} allows none of them"
        )
    return best


def _weight(parameters: list[str]) -> float:
    """The weight among the parameters of a range; one that is malformed counts as none."""
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if name.strip() == "q" and equals:
            fits = re.fullmatch(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", value.strip())
            return float(value) if fits else 0.0
    return 1.0


def as_json(served: Served, answer: ServedPrediction, numbers: int, key: str | None) -> bytes:
    """The answer in JSON, row by row; null where a bound is infinite.

    Written in blocks of rows, since its objects take many times the bytes that come of them;
    ``numbers`` are those of the whole answer.
    """
    rows = max(1, _NUMBERS_A_BLOCK * len(answer) // max(numbers, 1))
    blocks = [
        to_json(_block(served, answer[i : i + rows]), **_NULLS) for i in range(0, len(answer), rows)
    ]
    head = to_json({"model": served.name, "id": key, "predictions": []})
    return head[:-2] + b",".join(block[1:-1] for block in blocks) + b"]}"


def _block(served: Served, answer: ServedPrediction) -> list[dict[str, Any]]:
    """Objects of some rows, from the fields of the prediction; most of them are one number."""
    found = answer.prediction
    columns: dict[str, list[Any]] = {"point": [], "intervals": [[]] * len(answer)}
    common = {levels for _, levels in _LEVELS.values()}
    for field in fields(found):
        values = getattr(found, field.name)
        if values is None or field.name in common:
            continue
        if field.name in _OBJECTS:
            columns[field.name] = _objects(found, field.name)
        elif field.name == "density":
            columns["density"] = _dicts(x=values[:, 0].tolist(), y=values[:, 1].tolist())
        elif field.name == "atoms":
            columns["atoms"] = [_atoms(row) for row in values]
        else:
            columns[field.name] = values.tolist()
    columns["outside"] = _outside(served, answer)
    return _dicts(**columns)


def _atoms(row: Any) -> dict[str, list[float]]:
    """Values with a mass of their own, of one row, without those that only fill the array."""
    value, mass = row[:, np.isfinite(row[0])].tolist()
    return {"x": value, "mass": mass}


def _objects(found: Prediction, name: str) -> list[list[dict[str, Any]]]:
    """For each row a list of objects, such as its intervals."""
    rows, values = len(found), getattr(found, name)
    names = _OBJECTS[name] if values.ndim == 2 else _OBJECTS[name][: values.shape[1]]
    parts = values.reshape(rows, len(names), -1).transpose(2, 1, 0).tolist()
    objects = [dict(zip(names, part, strict=True)) for part in parts]
    if name in _LEVELS:
        key, levels = _LEVELS[name]
        given = getattr(found, levels).tolist()
        objects = [{key: [at] * rows} | one for at, one in zip(given, objects, strict=True)]
    return [list(row) for row in zip(*(_dicts(**one) for one in objects), strict=True)]


def _dicts(**columns: list[Any]) -> list[dict[str, Any]]:
    """One object for each row, from lists of equal length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _outside(served: Served, answer: ServedPrediction) -> list[list[str]]:
    """Names of each row's inputs that training did not see; most rows have none."""
    names = np.array([column.name for column in served.model.inputs_], dtype=object)
    found: list[list[str]] = [[]] * len(answer)
    for row in np.flatnonzero(answer.outside.any(axis=1)):
        found[row] = names[answer.outside[row]].tolist()
    return found


def as_frame(served: Served, answer: ServedPrediction, kept: Any = None) -> Any:
    """The answer as a frame, after the columns of the table ``kept``."""
    import pandas as pd

    columns: dict[str, Any] = dict(answer.prediction.columns())
    columns["outside"] = [", ".join(names) for names in _outside(served, answer)]
    frame = pd.DataFrame(columns)
    if kept is None:
        return frame
    taken = set(kept.columns)
    renamed = {name: _free(name, taken) for name in frame.columns}
    return pd.concat([kept.reset_index(drop=True), frame.rename(columns=renamed)], axis=1)


def _free(name: str, taken: set[str]) -> str:
    """A name that the table does not have yet."""
    while name in taken:
        name = f"{name}_predicted"
    return name


def write_frame(frame: Any, kind: str) -> bytes:
    """A frame as CSV or Arrow IPC."""
    import pyarrow as pa

    sink = io.BytesIO()
    try:
        if kind == CSV:
            frame.to_csv(sink, index=False)
            return sink.getvalue()
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, OverflowError, NotImplementedError) as error:
        words = " ".join(str(error).split())[:300]
        raise HTTPProblem(422, f"the columns to keep cannot be written: {words}") from None
    make = pa.ipc.new_stream if kind == ARROW_STREAM else pa.ipc.new_file
    with make(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
