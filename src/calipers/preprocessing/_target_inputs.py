"""Target encoding by a ``TableEncoder``: of high-cardinality categories and numeric codes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray, IntArray
from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._encoder import TableEncoder
from calipers.preprocessing._encoders import NumberEncoder, distinct_levels, level_codes
from calipers.preprocessing._learn import FEWEST_ROWS
from calipers.preprocessing._numeric_codes import numeric_code_columns
from calipers.preprocessing._targets import WIDTH, Differ, EncodedColumn, TargetEncoding


def find_target_encoding(
    table: TableEncoder,
    values: Mapping[str, NDArray[Any]],
    encoded: FloatArray,
    y: FloatArray,
    weights: FloatArray | None = None,
    groups: IntArray | None = None,
    repeated: list[int] | None = None,
) -> TargetEncoding | None:
    """Find the columns of a table to target-encode; None if there are none.

    These are high-cardinality categories whose levels differ, and numeric codes, which are looked
    for unless ``repeated`` lists them. ``values`` are those of the columns, as ``table.read``
    returns them, and ``encoded`` what ``table.encode`` makes of these.
    """
    if not table.target_encoding:
        return None
    found: dict[int, EncodedColumn] = {}
    used = TargetEncoding(found, y, weights).rows
    for i, (column, encoder) in enumerate(zip(table.columns_, table._encoders, strict=True)):
        if isinstance(encoder, CategoryEncoder) and encoder.large:
            texts = values[column.name]
            named = encoder.with_rare(texts[used]) if table.min_frequency is None else encoder
            codes = np.maximum(named.codes(texts), -1)
            found[i] = EncodedColumn(codes, len(named.levels), named.kept, number=i, named=named)
    every = TargetEncoding(found, y, weights, groups)
    differ = {i: learned.differ for i, learned in every.learned(used).items()}
    found = {i: found[i]._replace(differ=differ[i]) for i in found if any(differ[i])}
    if groups is None or table.knows_targets:
        numbers = _numeric_codes(table, values, encoded, y, used, repeated)
        for i, levels in numbers.items():
            codes = level_codes(levels, values[table.columns_[i].name])
            found[i] = EncodedColumn(codes, len(levels), None, levels, Differ(True, True), i)
    columns, place = {}, 0
    for i, (column, encoder) in enumerate(zip(table.columns_, table._encoders, strict=True)):
        width = len(encoder.names(column.name))
        if i in found:
            kept = found[i].kept
            known = bool(getattr(encoder, "means", None))
            present = WIDTH if known else int(kept is not None)  # inputs of the encoding
            columns[place + (width - present if kept is None else kept + 1)] = found[i]
            width += WIDTH - present
        place += width
    return TargetEncoding(columns, y, weights, groups) if columns else None


def _numeric_codes(
    table: TableEncoder,
    values: Mapping[str, NDArray[Any]],
    encoded: FloatArray,
    y: FloatArray,
    rows: NDArray[np.intp],
    repeated: list[int] | None,
) -> dict[int, FloatArray]:
    """Levels of the columns that are numeric codes, by the position of the column."""
    encoders: dict[int, NumberEncoder] = {
        i: e for i, e in enumerate(table._encoders) if type(e) is NumberEncoder
    }
    if table.knows_targets:
        return {i: np.array(e.levels) for i, e in encoders.items() if e.levels}
    numbers = {i: values[table.columns_[i].name][rows] for i in encoders}
    if repeated is None:
        repeated = numeric_code_columns(encoded[rows], numbers, y[rows])
    result = {}
    for i in repeated:
        levels = distinct_levels(numbers[i][~np.isnan(numbers[i])])
        codes = level_codes(levels, numbers[i])
        counts = np.bincount(codes[codes >= 0], minlength=len(levels))
        if (frequent := counts >= (table.min_frequency or FEWEST_ROWS)).any():
            result[i] = levels[frequent]
    return result


def learn_target_encoding(
    table: TableEncoder, encoding: TargetEncoding, encoded: FloatArray
) -> FloatArray:
    """Let the encoders of ``table`` learn the target encoding from all rows.

    ``encoded`` is the result of ``transform`` for these rows before; the new result is returned.
    """
    columns: list[Any] = list(table.columns_)
    encoders: list[Any] = list(table._encoders)
    encoded = encoding.inserted(encoded)
    learned = encoding.learned(encoding.rows, encoding.residuals(encoded, encoding.rows))
    for at, found in encoding.columns.items():
        i, note = found.number, columns[found.number].note
        changes = {"means": learned[at].means.tolist(), "spreads": learned[at].spreads.tolist()}
        if found.numbers is None:
            note = note.replace(
                "frequent have inputs", "frequent have inputs, all by their targets"
            )
        else:
            codes = found.codes[encoding.rows]
            counts = np.bincount(codes[codes >= 0], minlength=found.levels)
            changes |= {"levels": found.numbers.tolist(), "counts": counts.tolist()}
            repeat = f"{found.levels:,} values repeat and differ: used as numbers and as categories"
            note = f"{note}; {repeat}" if note else repeat
        columns[i] = replace(columns[i], note=note)
        encoders[i] = replace(found.named or encoders[i], **changes)
        inputs = [part[found.codes] for part in encoders[i].numbers]
        encoded[:, at : at + WIDTH] = np.stack(inputs, axis=1)
    table.columns_, table._encoders = tuple(columns), tuple(encoders)
    return encoded
