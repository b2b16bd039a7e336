"""A bank of interval heads around the point predictions of an existing model.

The point model was trained first. *Heads*, networks that predict an interval around a point, are
then trained on its errors. The weights of the point model do not change.
On rows that the point model was trained on, heads would learn errors that are too small. So the
caller, who knows which networks were not trained on a row, computes the errors.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import AnyFloatArray
from calipers.bank._bank import Bank
from calipers.bank._lanes import Scaling
from calipers.bank._program import Program
from calipers.bank._shared_rows import Plan, Table, mean_and_scale


class Points(Protocol):
    """A point model other than a bank, trained beforehand and never changed."""

    @property
    def held_out(self) -> NDArray[np.integer[Any]] | None:
        """Folds, from 0, of the rows that heads are trained on.

        Network i was trained without the rows of fold i (modulo the number of folds, if there are
        more networks). None where no network has seen any of these rows.
        """

    def __call__(self, inputs: AnyFloatArray) -> tuple[NDArray[np.float64], AnyFloatArray]:
        """Point predictions, (rows,) or (networks, rows), and the inputs of the heads."""

    def __getitem__(self, chosen: slice | ArrayLike) -> "Points":
        """The point model of the chosen networks alone."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to store."""

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> "Points":
        """The point model with stored arrays."""


@dataclass(frozen=True, eq=False)
class BankPoints:
    """Point predictions of a bank: network i predicts the point of head i, from the same inputs."""

    bank: Bank

    def __call__(self, inputs: AnyFloatArray) -> tuple[NDArray[np.float64], AnyFloatArray]:
        """Point predictions of shape (networks, rows), and the inputs unchanged."""
        return self.bank.predict(inputs)["point"], inputs

    def __getitem__(self, chosen: slice | ArrayLike) -> "BankPoints":
        """The point model of the chosen networks alone."""
        return BankPoints(self.bank[chosen])


@dataclass(frozen=True, eq=False)
class ColumnPoints:
    """Point predictions in the last input, which is also an input of the heads."""

    def __call__(self, inputs: AnyFloatArray) -> tuple[NDArray[np.float64], AnyFloatArray]:
        """Point predictions of shape (rows,), and the inputs unchanged."""
        return np.asarray(inputs[:, -1], dtype=np.float64), inputs

    def __getitem__(self, chosen: slice | ArrayLike) -> "ColumnPoints":
        """The point model itself, which does not depend on networks."""
        return self


@dataclass(frozen=True, eq=False)
class Upgraded:
    """A point model with the heads that were added to it; predicts like a ``Bank``."""

    points: BankPoints | ColumnPoints | Points  # the point model
    heads: Bank  # networks whose parameters are relative to the point

    @property
    def program(self) -> Program:
        """What the heads have in common."""
        return self.heads.program

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, chosen: slice | ArrayLike) -> "Upgraded":
        """The members chosen by an index array, a mask or a slice."""
        return Upgraded(self.points[chosen], self.heads[chosen])

    def predict(self, inputs: AnyFloatArray) -> dict[str, NDArray[np.float64]]:
        """Every member's parameters for every row, see ``Bank.predict``."""
        points, head_inputs = self.points(inputs)
        values = self.heads.predict(head_inputs)
        head = self.program.output
        return {
            name: value + points if head.is_location(name) else value
            for name, value in values.items()
        }


def error_table(
    inputs: AnyFloatArray, errors: AnyFloatArray, weights: AnyFloatArray | None = None
) -> Table:
    """Table of the heads' inputs and the errors of points; errors are scaled but not centred."""
    center, scale = mean_and_scale(inputs, weights)
    units = Scaling(center, scale, np.float64(0), _root_mean_square(errors, weights))
    return Table.from_arrays(inputs, errors, units)


def around_zero(plan: Plan, table: Table) -> Plan:
    """The plan of a head, scaled by its own training rows, but without centring the errors."""
    scaling = table.scaling(plan.rows, plan.weights)
    scale = _root_mean_square(table.target[plan.rows], plan.weights)
    return replace(plan, scaling=scaling._replace(target_center=np.float64(0), target_scale=scale))


def _root_mean_square(errors: AnyFloatArray, weights: AnyFloatArray | None) -> np.float64:
    """Root mean square of errors without overflow; 1 where all errors are 0."""
    peak = float(np.max(np.abs(errors), initial=0.0)) or 1.0
    relative = np.asarray(errors, dtype=np.float64) / peak
    return np.float64(peak * (np.sqrt(np.average(relative**2, weights=weights)) or 1.0))
