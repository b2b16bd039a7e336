"""What an encoder learns of targets: of large categories, and of numbers that are names."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from calipers._checks import FloatArray
from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._encoder import TableEncoder
from calipers.preprocessing._encoders import NumberEncoder, distinct_levels, level_codes
from calipers.preprocessing._frames import as_frame
from calipers.preprocessing._repeats import columns_of_names
from calipers.preprocessing._targets import WIDTH, Differ, LargeCategories


def large_categories(
    table: TableEncoder,
    X: Any,
    encoded: FloatArray,
    y: FloatArray,
    weights: FloatArray | None = None,
    groups: Any = None,
) -> LargeCategories | None:
    """Rows and their targets as seen by categories whose levels differ; None without.

    Large categories, and numbers that are also names; ``encoded`` is what ``transform`` gives.
    """
    check_is_fitted(table, "columns_")
    if not table.target_encoding:
        return None
    frame = as_frame(X, table.columns_)
    rows = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    names: dict[int, FloatArray] = {}
    if groups is None or table.knows_targets:
        names = _names(table, frame, encoded, y, rows)
    codes, levels, kept, differ, numbers, place = {}, {}, {}, {}, {}, 0
    for i, (column, encoder) in enumerate(zip(table.columns_, table._encoders, strict=True)):
        width = len(encoder.names(column.name))
        if isinstance(encoder, CategoryEncoder) and encoder.large:
            own = {0: np.maximum(encoder.codes(encoder.read(frame[column.name])), -1)}
            count = {0: len(encoder.levels)}
            found = LargeCategories(own, count, {}, y, weights, groups).learnt(0).differ
            if any(found):
                at = place + encoder.kept + 1
                codes[at], levels[at], differ[at] = own[0], count[0], found
                kept[at] = encoder.kept
                width += 0 if encoder.means else 2
        elif isinstance(encoder, NumberEncoder) and i in names:
            at = place + width - (WIDTH if encoder.levels else 0)
            codes[at] = level_codes(names[i], encoder.read(frame[column.name]))
            levels[at], differ[at], numbers[at] = len(names[i]), Differ(True, True), names[i]
            width = at + WIDTH - place
        place += width
    if not codes:
        return None
    return LargeCategories(codes, levels, kept, y, weights, groups, differ, numbers)


def _names(
    table: TableEncoder, frame: Any, encoded: FloatArray, y: FloatArray, rows: NDArray[np.intp]
) -> dict[int, FloatArray]:
    """Levels of the columns whose numbers are also names, by the position of the column."""
    numbers: dict[int, NumberEncoder] = {
        i: e for i, e in enumerate(table._encoders) if type(e) is NumberEncoder
    }
    if table.knows_targets:
        return {i: np.array(e.levels) for i, e in numbers.items() if e.levels}
    values = {i: e.read(frame[table.columns_[i].name])[rows] for i, e in numbers.items()}
    found, repeated = {}, table.repeated
    if repeated is None:
        repeated = columns_of_names(encoded[rows], values, y[rows])
    for i in repeated:
        known = distinct_levels(values[i][~np.isnan(values[i])])
        codes = level_codes(known, values[i])
        counts = np.bincount(codes[codes >= 0], minlength=len(known))
        if (frequent := counts >= table.min_frequency).any():
            found[i] = known[frequent]
    return found


def learn_targets(
    table: TableEncoder, categories: LargeCategories, encoded: FloatArray
) -> FloatArray:
    """Learn what the targets of large categories, and of numbers that are names, are like.

    ``encoded`` is what ``transform`` gave for all rows before; gives what it does from now on.
    """
    columns, encoders, place = list(table.columns_), list(table._encoders), 0
    encoded = categories.inserted(encoded)
    left = categories.left(encoded, categories.rows)
    for i, (column, encoder) in enumerate(zip(columns, encoders, strict=True)):
        start, note = place, column.note
        place += len(encoder.names(column.name))
        if (
            isinstance(encoder, CategoryEncoder)
            and (at := start + encoder.kept + 1) in categories.kept
        ):
            learnt, codes = categories.learnt(at), categories.codes[at]
            encoders[i] = encoder.with_targets(learnt.means, learnt.spreads)
            note = note.replace("have inputs", "have inputs, all by their targets")
            place += WIDTH - 1
        elif isinstance(encoder, NumberEncoder) and (at := place) in categories.numbers:
            learnt, codes = categories.learnt(at, left=left), categories.codes[at]
            levels, own = categories.numbers[at], codes[categories.rows]
            counts = np.bincount(own[own >= 0], minlength=len(levels))
            known = encoder.with_levels(levels, counts, learnt.means, learnt.spreads)
            encoders[i], encoded[:, at] = known, known.numbers[0][codes]
            more = f"{len(levels):,} values repeat and differ: taken as numbers and as names"
            note = f"{note}; {more}" if note else more
            place += WIDTH
        else:
            continue
        encoded[:, at + 1], encoded[:, at + 2] = learnt.means[codes], learnt.spreads[codes]
        columns[i] = replace(column, note=note)
    table.columns_, table._encoders = tuple(columns), tuple(encoders)
    return encoded
