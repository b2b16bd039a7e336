r"""The support of a target: the values that it can take, as a map from a continuous variable.

Networks predict a continuous distribution F of a *latent* value. What is observed is a step of it,

.. math:: y = T(z), \quad T = R \circ w,

where w is a strictly increasing, piecewise linear map (the identity if it has no knots) and R cuts
off at the bounds and rounds to the nearest value of a lattice, where there are any. Cells are
closed above: a value y belongs to the latent values in ``(lower_edge(y), upper_edge(y)]``.

T is monotone and y = T(y) for every value of the support, so that quantiles of y are
:math:`T(F^{-1}(p))` and an interval keeps its coverage when T is applied to its bounds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray

# Parts of a step by which a number may miss its place on a lattice, and on one of listed values.
_CLOSE, _CLOSE_LISTED = 1e-5, 1e-3


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
    >>> str(counts), str(Support())
    ('whole numbers from 0 on', 'any number')
    """

    #: Bounds; None where there is none. Predicted mass beyond a bound lies on the bound.
    low: float | None = None
    high: float | None = None
    #: Lattice ``origin + k step`` of the values, whole numbers k; a step of 0 for any value.
    step: float = 0.0
    origin: float = 0.0
    decimals: int = 0  #: Digits after the point that values of the lattice have.
    #: Knots of w, from the latent scale to the target's, both strictly increasing; beyond them it
    #: goes on with slope 1.
    latent: tuple[float, ...] = ()
    observed: tuple[float, ...] = ()
    given: bool = False  #: Whether the bounds are the user's own, which data may not contradict.
    #: First values of the lattice, from `origin` on, to the last bit, where they are no decimal
    #: numbers: those of a target that has been standardised, say.
    values: tuple[float, ...] = ()

    @property
    def is_line(self) -> bool:
        """Whether every number can be taken, so that there is nothing to do."""
        return self.low is None and self.high is None and not self.step

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds, infinite where there is none."""
        low = -np.inf if self.low is None else self.low
        return low, np.inf if self.high is None else self.high

    def __str__(self) -> str:
        what = "any number" if self.low is None and self.high is None else "numbers"
        if self.values:
            what = f"numbers {self.step:.3g} apart"
        elif self.step == 1 and self.origin == int(self.origin):
            what = "whole numbers"
        elif self.step:
            what = f"multiples of {self.step:g}"
            what += f" from {self.origin:g}" if self.origin and self.low is None else ""
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"{what} from {self.low:g} on"
        return what if self.high is None else f"{what} up to {self.high:g}"

    def observe(self, latent: ArrayLike) -> FloatArray:
        """T: the observed value of each latent one; infinite ones go to the bounds."""
        value = self._warped(np.asarray(latent, np.float64), self.latent, self.observed)
        if self.step:
            value = self.at(np.ceil((value - self.origin) / self.step - 0.5))
        return np.clip(value, *self.ends)

    def at(self, place: ArrayLike) -> FloatArray:
        """Values of the lattice by their number, 0 at the origin."""
        number = np.asarray(place, np.float64)
        value = self.origin + number * self.step
        if not self.values:
            return np.round(value, self.decimals)
        known = np.array(self.values)
        listed = (number >= 0) & (number < len(known))
        return np.where(listed, known[np.where(listed, number, 0).astype(int)], value)

    def upper_edge(self, y: ArrayLike) -> FloatArray:
        """Latent value up to which what is observed is at most ``y``: P(Y <= y) is F there."""
        value = np.asarray(y, np.float64)
        edge = value
        if self.step:
            place = np.floor((value - self.origin) / self.step + self._close)
            edge = self.origin + (place + 0.5) * self.step
        return self._within(value, self._to_latent(edge), value < self.ends[0])

    def lower_edge(self, y: ArrayLike) -> FloatArray:
        """Latent value up to which what is observed is less than ``y``: P(Y < y) is F there."""
        value = np.asarray(y, np.float64)
        edge = value
        if self.step:
            place = np.ceil((value - self.origin) / self.step - self._close)
            edge = self.origin + (place - 0.5) * self.step
        return self._within(value, self._to_latent(edge), value <= self.ends[0], strict=True)

    def slope(self, y: ArrayLike) -> FloatArray:
        """Derivative of the latent value by the observed one, where values are continuous."""
        value = np.asarray(y, np.float64)
        slopes = np.ones(len(self.latent) + 1)
        if len(self.latent) > 1:
            slopes[1:-1] = np.diff(self.latent) / np.diff(self.observed)
        found = slopes[np.searchsorted(self.observed, value)]
        low, high = self.ends
        return np.where((value > low) & (value < high) & (self.step == 0), found, 0.0)

    def holds(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether each value is one that the target can take."""
        value = np.asarray(y, np.float64)
        low, high = self.ends
        inside = (value >= low) & (value <= high)
        return inside & (self._on_lattice(value) if self.step else True)

    def widened(self, y: ArrayLike) -> Self:
        """What is left of the support after seeing values that contradict parts of it."""
        value = np.asarray(y, np.float64)
        found = asdict(self)
        low, high = self.ends
        found["low"] = None if (value < low).any() else self.low
        found["high"] = None if (value > high).any() else self.high
        if self.step and not self._on_lattice(value).all():
            found |= {"step": 0.0, "origin": 0.0, "decimals": 0, "values": ()}
        return type(self)(**found)

    @property
    def _close(self) -> float:
        return _CLOSE_LISTED if self.values else _CLOSE

    def _on_lattice(self, value: FloatArray) -> NDArray[np.bool_]:
        place = np.rint((value - self.origin) / self.step)
        if self.values:
            return np.abs(self.at(place) - value) < self._close * self.step
        return np.asarray(self.at(place) == value)

    def _to_latent(self, value: FloatArray) -> FloatArray:
        return self._warped(value, self.observed, self.latent)

    def _within(
        self, value: FloatArray, edge: FloatArray, below: NDArray[np.bool_], strict: bool = False
    ) -> FloatArray:
        """Edges, infinite beyond the bounds."""
        high = self.ends[1]
        above = value > high if strict else value >= high
        return np.where(below, -np.inf, np.where(above, np.inf, edge))

    @staticmethod
    def _warped(x: FloatArray, start: tuple[float, ...], end: tuple[float, ...]) -> FloatArray:
        """Piecewise linear through the knots, with slope 1 beyond them."""
        if not start:
            return x
        inside = np.clip(x, start[0], start[-1])
        with np.errstate(invalid="ignore"):
            return np.asarray(np.interp(inside, start, end) + (x - inside))

    def to_dict(self) -> dict[str, Any]:
        """The support as plain JSON."""
        found = asdict(self)
        return found | {name: list(found[name]) for name in ("latent", "observed", "values")}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The support that ``to_dict`` wrote."""
        known = {name: document[name] for name in ("low", "high", "step", "origin")}
        ends = {name: None if end is None else float(end) for name, end in known.items()}
        lists = {
            name: tuple(map(float, document.get(name, ())))
            for name in ("latent", "observed", "values")
        }
        return cls(**{**document, **ends, **lists})
