"""Parsing of bodies in JSON: bounded before they are parsed, then checked up to the first error.

Schemas describe the bodies, and check everything but rows and labels: collecting every error in
these would take a thousand times the memory of the body. They are checked here, column by column,
up to the first error.
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
from calipers.serve._schemas import MAX_ID_LENGTH, MAX_LABELS, PredictRequest
from calipers.tables import Reserve, TableLimits

_BYTES_PER_MARK = 72  # of the objects behind one comma, or a quarter of a bracket
_MARKS_PER_BRACKET = 4
_BRANCHES = ("float", "constrained-float")
_CELLS = {float, int, bool, str, type(None)}
_NUMBERS = {float, int, type(None)}


def _parsed(body: bytes, limits: TableLimits, reserve: Reserve) -> dict[str, Any]:
    """Return an object in JSON with a bounded number of values.

    Every value but the first follows a comma or a bracket. Those inside strings are counted, too:
    telling them apart would take as long as parsing the body.
    """
    brackets = body.count(b"[") + body.count(b"{")
    marks = body.count(b",") + _MARKS_PER_BRACKET * brackets
    if marks > limits.cells + _MARKS_PER_BRACKET * limits.rows:
        raise HTTPProblem(
            413, f"the body has more than {limits.cells:,} values: send fewer rows at a time"
        )
    reserve(4 * len(body) + _BYTES_PER_MARK * marks)
    try:
        document = from_json(body)
    except ValueError as error:
        raise HTTPProblem(422, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise HTTPProblem(422, "the body: should be an object")
    return document


def read_request(body: bytes, limits: TableLimits, reserve: Reserve) -> PredictRequest:
    """Return a request for predictions, whose rows are either all lists or all objects."""
    document = _parsed(body, limits, reserve)
    _check_fields(document, list(PredictRequest.model_fields), "rows")
    rows = document["rows"]
    if not isinstance(rows, list):
        raise HTTPProblem(422, "rows: should be a list")
    if not rows:
        raise HTTPProblem(422, "rows: should have at least 1 item")
    kind = list if isinstance(rows[0], list) else dict
    wrong = next((i for i, row in enumerate(rows) if type(row) is not kind), None)
    if wrong is not None:
        expected = "a list" if kind is list else "an object"
        raise HTTPProblem(422, f"rows[{wrong}]: should be {expected}, like the first row")
    limits.check(len(rows), max(map(len, rows)))
    for name in ("coverage", "quantiles"):  # beyond every limit, nothing needs to be validated
        if isinstance(document.get(name), list):
            document[name] = document[name][:1_000]
    try:
        return PredictRequest.model_validate(document)
    except ValidationError as error:
        raise HTTPProblem(422, _first_error(error)) from None


def _check_fields(document: dict[str, Any], known: Sequence[str], required: str) -> None:
    unknown = next((name for name in document if name not in known), None)
    if unknown is not None:
        raise HTTPProblem(422, f"{unknown[:100]}: is not permitted; fields are {', '.join(known)}")
    if required not in document:
        raise HTTPProblem(422, f"{required}: Field required")


def _first_error(error: ValidationError) -> str:
    """Return location and message of the error in the branch of a union that got furthest."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = max(errors, key=lambda e: (len(e["loc"]), e["type"] != "float_type"))
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in first["loc"]
        if isinstance(part, int) or not (part in _BRANCHES or part.startswith("list["))
    )
    return f"{place.lstrip('.')}: {first['msg']}"


def read_cells(values: Sequence[Any], place: str) -> NDArray[Any]:
    """Return the values of a column: floats if all are numbers, else objects, numbers as floats.

    Lists, objects and numbers that are not finite are refused; ``place`` is the location of the
    values for the message, with ``{}`` for the row.
    """
    types = set(map(type, values))
    if not types <= _CELLS:
        row = next(i for i, value in enumerate(values) if type(value) not in _CELLS)
        raise HTTPProblem(
            422, f"{place.format(row)}: should be a number, true, false, a string or null"
        )
    if types <= {float, int}:
        with suppress(OverflowError):
            numbers = np.array(values, dtype=np.float64)
            if np.isfinite(numbers).all():
                return numbers
    cells = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        cells[row] = _finite(value, place, row) if type(value) in (float, int) else value
    return cells


def _finite(value: float, place: str, row: int) -> float:
    with suppress(OverflowError):
        if math.isfinite(value):
            return float(value)
    raise HTTPProblem(422, f"{place.format(row)}: should be a finite number")


def read_labels(
    body: bytes, limits: TableLimits, reserve: Reserve
) -> list[tuple[str, NDArray[Any]]]:
    """Return ids and labels, with NaN for labels that are not known yet."""
    document = _parsed(body, limits, reserve)
    _check_fields(document, ["labels"], "labels")
    labels = document["labels"]
    if not isinstance(labels, list) or not 1 <= len(labels) <= MAX_LABELS:
        raise HTTPProblem(422, f"labels: should be a list of 1 to {MAX_LABELS:,} items")
    pairs = [_label(label, f"labels[{i}]") for i, label in enumerate(labels)]
    if sum(int(np.count_nonzero(~np.isnan(y))) for _, y in pairs) > MAX_LABELS:
        raise HTTPProblem(
            413,
            f"labels: belong to more than {MAX_LABELS:,} rows: post them in parts, with null for "
            "each label that is not in a part",
        )
    return pairs


def _label(label: object, place: str) -> tuple[str, NDArray[Any]]:
    if not isinstance(label, dict) or set(label) != {"id", "y"}:
        raise HTTPProblem(422, f"{place}: should be an object with id and y, and nothing else")
    key, y = label["id"], label["y"]
    if not isinstance(key, str) or len(key) > MAX_ID_LENGTH:
        raise HTTPProblem(
            422, f"{place}.id: should be a string of at most {MAX_ID_LENGTH} characters"
        )
    values, where = (y, f"{place}.y[{{}}]") if isinstance(y, list) else ([y], f"{place}.y")
    wrong = next((i for i, value in enumerate(values) if type(value) not in _NUMBERS), None)
    if y is None or wrong is not None:
        raise HTTPProblem(
            422, f"{where.format(wrong)}: should be a number, and true and false are not"
        )
    return key, read_cells(values, where).astype(np.float64)
