"""Target encoding by a ``TableEncoder``: of high-cardinality categories and numeric codes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from calipers._checks import FloatArray
from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._column import as_frame
from calipers.preprocessing._encoder import TableEncoder
from calipers.preprocessing._encoders import NumberEncoder, distinct_levels, level_codes
from calipers.preprocessing._numeric_codes import numeric_code_columns
from calipers.preprocessing._targets import WIDTH, Differ, EncodedColumn, TargetEncoding

if TYPE_CHECKING:
    import pandas as pd


def find_target_encoding(
    table: TableEncoder,
    X: Any,
    encoded: FloatArray,
    y: FloatArray,
    weights: FloatArray | None = None,
    groups: Any = None,
) -> TargetEncoding | None:
    """Find the columns of ``X`` to target-encode; None if there are none.

    These are high-cardinality categories whose levels differ, and numeric codes. ``encoded`` is
    what ``table.transform(X)`` returns.
    """
    check_is_fitted(table, "columns_")
    if not table.target_encoding:
        return None
    frame = as_frame(X, table.columns_)
    rows = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    numeric: dict[int, FloatArray] = {}
    if groups is None or table.knows_targets:
        numeric = _numeric_codes(table, frame, encoded, y, rows)
    columns, place = {}, 0
    for i, (column, encoder) in enumerate(zip(table.columns_, table._encoders, strict=True)):
        width = len(encoder.names(column.name))
        if isinstance(encoder, CategoryEncoder) and encoder.large:
            codes = np.maximum(encoder.codes(encoder.read(frame[column.name])), -1)
            found = EncodedColumn(codes, len(encoder.levels), encoder.kept)
            differ = TargetEncoding({}, y, weights, groups).learnt(found).differ
            if any(differ):
                columns[place + encoder.kept + 1] = found._replace(differ=differ)
                width += 0 if encoder.means else 2
        elif isinstance(encoder, NumberEncoder) and i in numeric:
            at, levels = place + width - (WIDTH if encoder.levels else 0), numeric[i]
            codes = level_codes(levels, encoder.read(frame[column.name]))
            differ = Differ(True, True)
            columns[at] = EncodedColumn(codes, len(levels), numbers=levels, differ=differ)
            width = at + WIDTH - place
        place += width
    return TargetEncoding(columns, y, weights, groups) if columns else None


def _numeric_codes(
    table: TableEncoder,
    frame: "pd.DataFrame",
    encoded: FloatArray,
    y: FloatArray,
    rows: NDArray[np.intp],
) -> dict[int, FloatArray]:
    """Levels of the columns that are numeric codes, by the position of the column."""
    encoders: dict[int, NumberEncoder] = {
        i: e for i, e in enumerate(table._encoders) if type(e) is NumberEncoder
    }
    if table.knows_targets:
        return {i: np.array(e.levels) for i, e in encoders.items() if e.levels}
    values = {i: e.read(frame[table.columns_[i].name])[rows] for i, e in encoders.items()}
    repeated = table.repeated
    if repeated is None:
        repeated = numeric_code_columns(encoded[rows], values, y[rows])
    result = {}
    for i in repeated:
        levels = distinct_levels(values[i][~np.isnan(values[i])])
        codes = level_codes(levels, values[i])
        counts = np.bincount(codes[codes >= 0], minlength=len(levels))
        if (frequent := counts >= table.min_frequency).any():
            result[i] = levels[frequent]
    return result


def learn_target_encoding(
    table: TableEncoder, encoding: TargetEncoding, encoded: FloatArray
) -> FloatArray:
    """Let the encoders of ``table`` learn the target encoding from all rows.

    ``encoded`` is the result of ``transform`` for these rows before; the new result is returned.
    """
    columns, place = list(table.columns_), 0
    encoders: list[Any] = list(table._encoders)
    encoded = encoding.inserted(encoded)
    residuals = encoding.residuals(encoded, encoding.rows)
    for i, (column, encoder) in enumerate(zip(columns, encoders, strict=True)):
        start, note = place, column.note
        place += len(encoder.names(column.name))
        large = isinstance(encoder, CategoryEncoder) and encoder.large
        at = start + encoder.kept + 1 if large else place
        found = encoding.columns.get(at)
        if found is None:
            continue
        learnt = encoding.learnt(found, residuals=residuals)
        changes = {"means": learnt.means.tolist(), "spreads": learnt.spreads.tolist()}
        if found.numbers is None:
            note = note.replace(
                "frequent have inputs", "frequent have inputs, all by their targets"
            )
            place += WIDTH - 1
        else:
            codes = found.codes[encoding.rows]
            counts = np.bincount(codes[codes >= 0], minlength=found.levels)
            changes |= {"levels": found.numbers.tolist(), "counts": counts.tolist()}
            repeat = f"{found.levels:,} values repeat and differ: used as numbers and as categories"
            note = f"{note}; {repeat}" if note else repeat
            place += WIDTH
        columns[i], encoders[i] = replace(column, note=note), replace(encoder, **changes)
        inputs = [part[found.codes] for part in encoders[i].numbers]
        encoded[:, at : at + WIDTH] = np.stack(inputs, axis=1)
    table.columns_, table._encoders = tuple(columns), tuple(encoders)
    return encoded
