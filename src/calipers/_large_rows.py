"""Rows of a large table as networks train on them, and what all of them together tell.

``model`` is an ``IntervalRegressor`` that is being fitted, see ``calipers._large``.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray, warn
from calipers.bank import Table, standardised
from calipers.distributions import Support, TargetMap, refuse_outside
from calipers.preprocessing import Column, DataError

Float32Array = NDArray[np.float32]

_NAMED = 10  # rows that a warning names


class Scale(NamedTuple):
    """How rows become what networks train on."""

    table: Table  # of a sample of the rows, whose units and limits hold for all
    target_map: TargetMap | None  # the scale of the target
    ordinary: tuple[float, float]  # ends of the targets that are no gross errors

    def __call__(self, X: FloatArray, y: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Rows whose targets are no gross errors, in the units of the table."""
        kept = (y >= self.ordinary[0]) & (y <= self.ordinary[1])
        units = self.table.units
        goal = y[kept] if self.target_map is None else self.target_map.forward(y[kept])
        goal = (goal - units.target_center) / units.target_scale
        return standardised(X[kept], units), goal.astype(np.float32)


class Seen(NamedTuple):
    """What blocks of rows tell beside what is trained on."""

    support: Support  # that they leave of that of a sample
    target: tuple[float, float]  # lowest and highest
    low: FloatArray  # of each input
    high: FloatArray
    far_count: int  # targets that are likely to be errors
    far: list[int]  # numbers of the first of them

    def __add__(self, other: "Seen") -> "Seen":  # type: ignore[override]
        mine, its = self.support, other.support
        lattice: dict[str, Any] = {"step": 0.0, "origin": 0.0, "decimals": 0, "values": ()}
        support = replace(
            mine,
            low=None if its.low is None else mine.low,
            high=None if its.high is None else mine.high,
            **({} if its.step else lattice),
        )
        few, many = min(self.target[0], other.target[0]), max(self.target[1], other.target[1])
        return Seen(
            support,
            (few, many),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.far_count + other.far_count,
            sorted(self.far + other.far)[:_NAMED],
        )


def encoded(
    model: Any, scale: Scale, support: Support, numbers: Any, X: Any, y: Any
) -> tuple[tuple[Float32Array, Float32Array], Seen]:
    """Rows of a block as networks train on them, and what was seen in it."""
    try:
        X, y = model.reader_.read_with_targets(model, X, y)
        if support.given:
            refuse_outside(y, support)
    except ValueError as error:
        raise _placed(error, numbers) from None
    outside = (y < scale.ordinary[0]) | (y > scale.ordinary[1])
    far = numbers[outside][:_NAMED].tolist()
    ends = (float(y.min()), float(y.max()))
    low, high = X.min(axis=0), X.max(axis=0)
    seen = Seen(support.widened(y), ends, low, high, int(outside.sum()), far)
    return scale(X, y), seen


def learnt(model: Any, seen: list[Seen]) -> Support:
    """Tell the model what was seen in all rows; gives the support that they leave.

    Warns if targets are left out since they are likely to be errors.
    """
    found = seen[0]
    for other in seen[1:]:
        found = found + other
    model.target_ = spanning(model.target_, *found.target)
    if model.reader_.encoder is None:
        columns = map(spanning, model.reader_.columns, found.low, found.high)
        model.reader_ = replace(model.reader_, columns=tuple(columns))
    if found.far:
        model.about_["far_targets"] = {"count": found.far_count, "rows": found.far}
        warn(
            f"y is far from all other targets in {found.far_count:,} rows, the first of them "
            f"{', '.join(map(str, found.far))} (from 0): networks do not learn from them. "
            "Correct or leave out what is wrong; if such targets are real, fit their logarithm",
        )
    return found.support


def _placed(error: ValueError, numbers: Any) -> DataError:
    """An error in a block, with its place among all rows."""
    if isinstance(error, DataError) and error.row is not None:
        return DataError(error.problem, column=error.column, row=int(numbers[error.row]))
    return DataError(f"in the block of {len(numbers):,} rows from {numbers[0]:,} on: {error}")


def spanning(column: Any, low: float, high: float) -> Column:
    """What is known of a column of numbers, with the range of all rows."""
    ends = {"low": min(column.low, float(low)), "high": max(column.high, float(high))}
    return replace(column, **ends)
