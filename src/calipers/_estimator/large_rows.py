"""Encode the blocks of a large table for training, and summarise all of its rows.

``model`` is an ``IntervalRegressor`` that is being fitted, see ``calipers._estimator.large``.
"""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray, warn
from calipers.bank import Table, standardised
from calipers.distributions import Support, TargetMap, refuse_outside
from calipers.preprocessing import Column, DataError

Float32Array = NDArray[np.float32]

_NAMED = 10  # rows that a warning lists


class Scale(NamedTuple):
    """The transformation from rows to what networks are trained on."""

    table: Table  # of a sample of the rows, whose units and limits hold for all
    target_map: TargetMap | None  # the scale of the target
    ordinary: tuple[float, float]  # range of targets that are no gross errors

    def __call__(self, X: FloatArray, y: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Rows without gross errors of the target, in the units of the table."""
        kept = (y >= self.ordinary[0]) & (y <= self.ordinary[1])
        units = self.table.units
        target = y[kept] if self.target_map is None else self.target_map.forward(y[kept])
        target = (target - units.target_center) / units.target_scale
        return standardised(X[kept], units), target.astype(np.float32)


class Seen(NamedTuple):
    """Summary of blocks of rows."""

    support: Support  # that of a sample, without assumptions that these rows contradict
    target: tuple[float, float]  # lowest and highest
    low: FloatArray  # of each input
    high: FloatArray
    outlier_count: int  # targets that are likely to be errors
    outliers: list[int]  # row numbers of the first of them

    def __add__(self, other: "Seen") -> "Seen":  # type: ignore[override]
        lattice: dict[str, Any] = {"step": 0.0, "origin": 0.0, "decimals": 0, "values": ()}
        support = replace(
            self.support,
            low=None if other.support.low is None else self.support.low,
            high=None if other.support.high is None else self.support.high,
            **({} if other.support.step else lattice),
        )
        return Seen(
            support,
            (min(self.target[0], other.target[0]), max(self.target[1], other.target[1])),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.outlier_count + other.outlier_count,
            sorted(self.outliers + other.outliers)[:_NAMED],
        )


def encoded(
    model: Any, scale: Scale, support: Support, numbers: Any, X: Any, y: Any
) -> tuple[tuple[Float32Array, Float32Array], Seen]:
    """Encode a block of rows for training, and summarise it; ``numbers`` are its row numbers."""
    try:
        X, y = model.reader_.read_with_targets(model, X, y)
        if support.given:
            refuse_outside(y, support)
    except ValueError as error:
        raise _placed(error, numbers) from None
    outside = (y < scale.ordinary[0]) | (y > scale.ordinary[1])
    outliers = numbers[outside][:_NAMED].tolist()
    ends = (float(y.min()), float(y.max()))
    low, high = X.min(axis=0), X.max(axis=0)
    seen = Seen(support.widened(y), ends, low, high, int(outside.sum()), outliers)
    return scale(X, y), seen


def learnt(model: Any, seen: list[Seen]) -> Support:
    """Record the ranges of all rows in the model, and return the support of the target.

    Warns if rows were left out since their targets are likely to be errors.
    """
    total = reduce(add, seen)
    model.target_ = spanning(model.target_, *total.target)
    if model.reader_.encoder is None:
        columns = map(spanning, model.reader_.columns, total.low, total.high)
        model.reader_ = replace(model.reader_, columns=tuple(columns))
    if total.outliers:
        model.about_["far_targets"] = {"count": total.outlier_count, "rows": total.outliers}
        warn(
            f"y is far from all other targets in {total.outlier_count:,} rows, the first of them "
            f"{', '.join(map(str, total.outliers))} (from 0): networks are not trained on them. "
            "Correct or remove wrong values; if such targets are real, fit their logarithm"
        )
    return total.support


def _placed(error: ValueError, numbers: Any) -> DataError:
    """Return an error in a block with its position among all rows."""
    if isinstance(error, DataError) and error.row is not None:
        return DataError(error.problem, column=error.column, row=int(numbers[error.row]))
    return DataError(f"in the block of {len(numbers):,} rows from {numbers[0]:,} on: {error}")


def spanning(column: Any, low: float, high: float) -> Column:
    """Extend the range of a numeric column to ``low`` and ``high``."""
    ends = {"low": min(column.low, float(low)), "high": max(column.high, float(high))}
    return replace(column, **ends)
