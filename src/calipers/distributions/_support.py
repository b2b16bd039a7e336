r"""The support of a target: the values that it can take, as a map from a continuous variable.

Networks predict a continuous distribution F of a *latent* value z. The observed value is

.. math:: y = T(z), \quad T = R \circ w,

where w is an increasing, piecewise linear map (the identity if it has no knots), which is constant
only where the target is one of its atoms, and R rounds to the nearest value of a lattice, if there
is one, and clips to the bounds. Cells are closed above: y is observed for the latent values in
``(lower_edge(y), upper_edge(y)]``.

T is monotone and y = T(y) for every value of the support, so that quantiles of y are
:math:`T(F^{-1}(p))` and an interval keeps its coverage when T is applied to its bounds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers._text import digits, listed

# Tolerance of values on a lattice, and on one of listed values, as fractions of a step.
_CLOSE, _CLOSE_LISTED = 1e-5, 1e-3
_LISTS = ("latent", "observed", "values", "atoms")


@dataclass(frozen=True)
class Support:
    """Values that a target can take.

    Examples
    --------
    >>> counts = Support(low=0.0, step=1.0)
    >>> counts.observe([-0.7, 0.4, 2.5, 2.6]).tolist()
    [0.0, 0.0, 2.0, 3.0]
    >>> counts.lower_edge([0.0, 1.0]).tolist(), counts.upper_edge([0.0, 1.0]).tolist()
    ([-inf, 0.5], [0.5, 1.5])
    >>> str(counts), str(Support(atoms=(0.0,)))
    ('non-negative integers', 'any number, often 0')
    """

    #: Bounds; None where there is none. Predicted mass beyond a bound lies on the bound.
    low: float | None = None
    high: float | None = None
    #: Lattice ``origin + k step`` of the values, for integers k; a step of 0 allows any value.
    step: float = 0.0
    origin: float = 0.0
    decimals: int = 0  #: Number of decimals of the values of the lattice.
    #: Knots of w, from the latent scale to the target's, both increasing, strictly but for an atom
    #: or a bound that many targets have, which have two knots; beyond them w has slope 1.
    latent: tuple[float, ...] = ()
    observed: tuple[float, ...] = ()
    given: bool = False  #: Whether the bounds were given by the user; data may not contradict them.
    #: First values of the lattice, from `origin` on, to the last bit, where they are not decimal
    #: numbers, such as those of a standardised target.
    values: tuple[float, ...] = ()
    #: Values between the bounds that have mass, in ascending order, where others have none.
    atoms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not low <= high:
            raise ValueError(f"low must not be above high, got {low:g} and {high:g}")
        if not 0 <= self.step < np.inf:
            raise ValueError(f"step must be a number from 0 on, got {self.step!r}")

    @property
    def is_line(self) -> bool:
        """Whether every number is as possible as its neighbours, so that T is the identity."""
        return self.low is None and self.high is None and not self.step and not self.atoms

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds, infinite where there is none."""
        low = -np.inf if self.low is None else self.low
        return low, np.inf if self.high is None else self.high

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value that the target can take: on a lattice, within the bounds."""
        low, high = self.bounds
        if self.step and np.isfinite(low):
            low = float(self.at(np.ceil((low - self.origin) / self.step - self._close)))
        if self.step and np.isfinite(high):
            high = float(self.at(np.floor((high - self.origin) / self.step + self._close)))
        return low, high

    def __str__(self) -> str:
        kind = "any number" if self.low is None and self.high is None else "numbers"
        if self.values:
            kind = f"numbers {self.step:.3g} apart"
        elif self.step == 1 and self.origin == int(self.origin):
            kind = "integers"
        elif self.step:
            size = digits(self.step)
            kind = f"numbers {size} apart" if self.origin else f"multiples of {size}"
        low, high = self.ends
        if self.low is not None and self.high is not None:
            kind = f"{kind} from {digits(low)} to {digits(high)}"
        elif self.low is not None:
            kind = f"non-negative {kind}" if low == 0 else f"{kind} from {digits(low)} upwards"
        elif self.high is not None:
            kind = f"{kind} up to {digits(high)}"
        return f"{kind}, often {listed(map(digits, self.atoms))}" if self.atoms else kind

    def observe(self, latent: ArrayLike) -> FloatArray:
        """Apply T: the observed value of each latent one; infinite values become the bounds."""
        value = self._warped(np.asarray(latent, np.float64), self.latent, self.observed)
        return self.nearest(value)

    def nearest(self, y: ArrayLike) -> FloatArray:
        """Apply R: the nearest value that the target can take, the lower one of two."""
        value = np.asarray(y, np.float64)
        if self.step:
            value = self.at(np.ceil((value - self.origin) / self.step - 0.5))
        return np.clip(value, *self.ends)

    def at(self, place: ArrayLike) -> FloatArray:
        """Values of the lattice by index, which is 0 at the origin."""
        number = np.asarray(place, np.float64)
        value = self.origin + number * self.step
        if not self.values:
            return np.round(value, self.decimals)
        values = np.array(self.values)
        listed = (number >= 0) & (number < len(values))
        return np.where(listed, values[np.where(listed, number, 0).astype(int)], value)

    def upper_edge(self, y: ArrayLike) -> FloatArray:
        """Latent value up to which the observed value is at most ``y``, so P(Y <= y) is F there."""
        edge = value = np.asarray(y, np.float64)
        low, high = self.ends
        if self.step:
            place = np.floor((value - self.origin) / self.step + self._close)
            edge = self.origin + (place + 0.5) * self.step
        edge = self._warped(edge, self.observed, self.latent)
        return np.where(value < low, -np.inf, np.where(value >= high, np.inf, edge))

    def lower_edge(self, y: ArrayLike) -> FloatArray:
        """Latent value up to which the observed value is below ``y``, so P(Y < y) is F there."""
        edge = value = np.asarray(y, np.float64)
        low, high = self.ends
        if self.step:
            place = np.ceil((value - self.origin) / self.step - self._close)
            edge = self.origin + (place - 0.5) * self.step
        edge = self._warped(edge, self.observed, self.latent)
        for latent, (knot, following) in zip(self.latent, pairwise(self.observed), strict=False):
            if knot == following:
                edge = np.where(value == knot, latent, edge)
        return np.where(value <= low, -np.inf, np.where(value > high, np.inf, edge))

    def slope(self, y: ArrayLike) -> FloatArray:
        """Derivative of the latent value by the observed one, 0 where y is not continuous."""
        value = np.asarray(y, np.float64)
        slopes = np.ones(len(self.latent) + 1)
        if len(self.latent) > 1:
            with np.errstate(divide="ignore"):  # at an atom
                slopes[1:-1] = np.diff(self.latent) / np.diff(self.observed)
        slope = slopes[np.searchsorted(self.observed, value)]
        low, high = self.ends
        continuous = (value > low) & (value < high) & (self.step == 0)
        return np.where(continuous & ~np.isin(value, self.atoms), slope, 0.0)

    def holds(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether the target can take each value."""
        value = np.asarray(y, np.float64)
        low, high = self.bounds
        inside = (value >= low) & (value <= high)
        return inside & (self._on_lattice(value) if self.step else True)

    def widened(self, y: ArrayLike) -> Self:
        """The support without the bounds and the lattice that the values ``y`` contradict."""
        return self.without(*self.contradicted(y))

    def contradicted(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether values contradict the lower bound, the upper bound and the lattice, in a row."""
        value = np.asarray(y, np.float64)
        low, high = self.bounds
        off = bool(self.step) and not self._on_lattice(value).all()
        return np.array([(value < low).any(), (value > high).any(), off])

    def without(self, low: bool, high: bool, lattice: bool) -> Self:
        """The support without the lower bound, the upper bound and the lattice, or some of them.

        Values whose mass has two edges keep it, as atoms.
        """
        support = self._off_lattice() if lattice else self
        ends = {x for x, dropped in zip(support.bounds, (low, high), strict=True) if dropped}
        left = {x for x in ends if support.observed.count(x) > 1}
        support = replace(
            support,
            low=None if low else support.low,
            high=None if high else support.high,
            atoms=tuple(sorted({*support.atoms, *left})),
        )
        return support.without_atoms(())

    def without_atoms(self, values: Collection[float]) -> Self:
        """The support in which ``values`` have no mass."""
        knots = [(z, x) for z, x in zip(self.latent, self.observed, strict=True) if x not in values]
        support = replace(self, atoms=tuple(x for x in self.atoms if x not in values))
        latent, observed = zip(*knots, strict=True) if knots and not support.is_line else ((), ())
        return replace(support, latent=latent, observed=observed)

    def _off_lattice(self) -> Self:
        """The support without the lattice; the values between knots one step apart are atoms."""
        cells = [False, *np.isclose(np.diff(self.observed), self.step).tolist(), False]
        tiny = 1e-3 * float(np.diff(self.latent).min(initial=self.step))
        knots: list[tuple[float, float]] = []
        for start, edge, (below, above) in zip(
            self.latent, self.observed, pairwise(cells), strict=False
        ):
            places = [edge - 0.5 * self.step] * below + [edge + 0.5 * self.step] * above
            places = self.nearest(places).tolist() if places else [edge]
            knots += zip((start, start + tiny), places, strict=False)
        if cells[1]:  # a knot below, so that the atom is not the first
            knots.insert(0, (knots[0][0] - self.step, knots[0][1] - self.step))
        latent, observed = zip(*knots, strict=True) if knots else ((), ())
        atoms = {x for x, following in pairwise(observed) if x == following} - {*self.ends}
        return replace(
            self,
            step=0.0,
            origin=0.0,
            decimals=0,
            values=(),
            latent=latent,
            observed=observed,
            atoms=tuple(sorted(atoms)),
        )

    @property
    def _close(self) -> float:
        return _CLOSE_LISTED if self.values else _CLOSE

    def _on_lattice(self, value: FloatArray) -> NDArray[np.bool_]:
        place = np.rint((value - self.origin) / self.step)
        if self.values:
            return np.abs(self.at(place) - value) < self._close * self.step
        return np.asarray(self.at(place) == value)

    @staticmethod
    def _warped(x: FloatArray, start: tuple[float, ...], end: tuple[float, ...]) -> FloatArray:
        """Piecewise-linear map through the knots, with slope 1 beyond them.

        Of two knots that start at ``x`` it takes the last, as ``interp`` does.
        """
        if not start:
            return x
        inside = np.clip(x, start[0], start[-1])
        with np.errstate(invalid="ignore"):
            return np.asarray(np.interp(inside, start, end) + (x - inside))

    def to_dict(self) -> dict[str, Any]:
        """The support as plain JSON."""
        document = asdict(self)
        return document | {name: list(document[name]) for name in _LISTS}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Restore a support from ``to_dict``."""
        numbers = {
            name: None if document[name] is None else float(document[name])
            for name in ("low", "high", "step", "origin")
        }
        lists = {name: tuple(map(float, document.get(name, ()))) for name in _LISTS}
        return cls(**{**document, **numbers, **lists})


def support_runs(supports: Iterable[Support]) -> Iterator[tuple[slice, Support]]:
    """Consecutive rows of equal support, given that of each row.

    >>> [(run.stop, str(one)) for run, one in support_runs([Support(0.0), Support(0.0), Support()])]
    [(2, 'non-negative numbers'), (3, 'any number')]
    """
    start = 0
    for support, run in groupby(supports):
        stop = start + sum(1 for _ in run)
        yield slice(start, stop), support
        start = stop
