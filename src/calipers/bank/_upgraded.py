"""A bank whose points come from elsewhere: the second of two steps of learning.

The first step trained networks for points. The second trains *heads*, networks that give an
interval around a point, on what those points miss by. The points' networks take no part in it, so
that nothing they know can be forgotten. Were the heads to learn from rows that the points were
trained on, they would learn errors that are too small; which points a row is compared with is
therefore up to the caller, who knows which networks have not seen it.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers.bank._bank import Bank
from calipers.bank._lanes import Scaling
from calipers.bank._program import Program
from calipers.bank._shared_rows import FloatArray, Plan, Table, center_and_scale


class Points(Protocol):
    """What gives points and is not a bank; trained beforehand and never changed."""

    @property
    def held_out(self) -> NDArray[np.integer[Any]] | None:
        """Folds, from 0, of the rows that heads are trained on, if networks know some of them.

        Network i was trained without the rows of fold i, counted round if there are several for
        each. None where no network has seen any of those rows.
        """

    def __call__(self, inputs: FloatArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Points, of shape (rows,) or (networks, rows), and what the heads see of each row."""

    def __getitem__(self, chosen: slice | ArrayLike) -> "Points":
        """The points of some of the networks."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What there is to store."""

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> "Points":
        """The same with what was stored."""


@dataclass(frozen=True, eq=False)
class BankPoints:
    """Points of a bank, each network's for the head of the same number; heads see the inputs."""

    bank: Bank

    def __call__(self, inputs: FloatArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Points of shape (networks, rows), and the inputs as they are."""
        return self.bank.predict(inputs)["point"], inputs

    def __getitem__(self, chosen: slice | ArrayLike) -> "BankPoints":
        """The points of some of the networks."""
        return BankPoints(self.bank[chosen])


@dataclass(frozen=True, eq=False)
class ColumnPoints:
    """Points that come with the rows, as the last input, one for all heads, which see it too."""

    def __call__(self, inputs: FloatArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Points of shape (rows,), and the inputs as they are."""
        return np.asarray(inputs[:, -1], dtype=np.float64), inputs

    def __getitem__(self, chosen: slice | ArrayLike) -> "ColumnPoints":
        """The points of some of the networks."""
        return self


@dataclass(frozen=True, eq=False)
class Upgraded:
    """Points and the heads that were added to them: predicts as a ``Bank`` does."""

    points: BankPoints | ColumnPoints | Points  # where the points come from
    heads: Bank  # networks whose parameters are relative to the point

    @property
    def program(self) -> Program:
        """What the heads have in common."""
        return self.heads.program

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, chosen: slice | ArrayLike) -> "Upgraded":
        """Some of the members, by an index array, a mask or a slice."""
        return Upgraded(self.points[chosen], self.heads[chosen])

    def predict(self, inputs: FloatArray) -> dict[str, NDArray[np.float64]]:
        """Every member's parameters for every row, see ``Bank.predict``."""
        points, seen = self.points(inputs)
        values = self.heads.predict(seen)
        head = self.program.output
        return {
            name: value + points if head.is_place(name) else value for name, value in values.items()
        }


def error_table(seen: FloatArray, errors: FloatArray, weights: FloatArray | None = None) -> Table:
    """A table of what points miss by, for heads: scaled, but never moved, so that 0 stays 0."""
    center, scale = center_and_scale(seen, weights)
    units = Scaling(center, scale, np.float64(0), _size(errors, weights))
    return Table.from_arrays(seen, errors, units)


def around_zero(plan: Plan, table: Table) -> Plan:
    """A plan of a head: scaled by its own rows as any other, but with errors left around 0."""
    scaling = table.scaling(plan.rows, plan.weights)
    size = _size(table.target[plan.rows], plan.weights)
    return replace(plan, scaling=scaling._replace(target_center=np.float64(0), target_scale=size))


def _size(errors: FloatArray, weights: FloatArray | None) -> np.float64:
    """Root mean square, 1 where there are no errors at all."""
    peak = float(np.max(np.abs(errors), initial=0.0)) or 1.0
    share = np.asarray(errors, dtype=np.float64) / peak
    return np.float64(peak * (np.sqrt(np.average(share**2, weights=weights)) or 1.0))
