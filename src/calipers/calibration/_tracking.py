r"""Which score has a level now: quantiles of a stream of scores, at every level at once.

A score is standard normal while the model is right. *Experts* track the quantiles of the scores
that come: each has a memory for their location (half-lives `LOCATIONS`, 0 for none) and one for
their scale (`SCALES`), and learns the shape of what these leave over by stochastic approximation
of its quantiles. At each level the experts are weighted by how well they have predicted it lately,
measured by the pinball loss in the target's unit: exponential weights with a learning rate that
follows the regrets themselves [1]_, so that there is none to choose.

On top, each central interval has a margin that grows by ``GAIN (1 - alpha)`` of the current scale
after a miss and shrinks by ``GAIN alpha`` after a hit [2]_. Over T rows, whatever they are, hits
differ from their nominal number by no more than the margin has moved, divided by ``GAIN``: that is
what keeps the coverage, in the long run and in short windows. Where targets have values of their
own mass, a hit is one of the interval as it is seen, which ends on such values. An interval that is
a single value cannot be shorter though it covers more than was asked: where it holds its target the
margin shrinks by what is predicted beside that value, less than ``alpha``. So misses are never more
than ``alpha`` of the rows, and over rows whose interval has a width, coverage stays nominal. No
margin falls far below what makes its interval a point, from where it would be long in growing.

.. [1] Zaffran, Dieuleveut, Féron, Goude and Josse, "Adaptive conformal predictions for time series"
       (AgACI), ICML (2022).
.. [2] Angelopoulos, Candès and Tibshirani, "Conformal PID control for time series prediction",
       NeurIPS (2023); Gibbs and Candès, "Adaptive conformal inference under distribution shift",
       NeurIPS (2021).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
from scipy.special import ndtri

from calipers._checks import FloatArray

TAILS = np.array([0.0005, 0.0025, 0.005, 0.0125, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.325, 0.4])
"""Tails of the central intervals that have a margin of their own."""

LEVELS = np.concatenate([TAILS, [0.5], 1.0 - TAILS[::-1]])
NORMAL = ndtri(LEVELS)
"""The levels on the normal scale: scores of a model that is right."""

LOCATIONS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
SCALES = (0.0, 10.0, 30.0, 100.0, 300.0)
GAIN = 0.12

_DENSITY = np.exp(-0.5 * NORMAL**2) / np.sqrt(2.0 * np.pi)
_AWAY = np.where(NORMAL == 0, 1.0, NORMAL)
_PAIRS = np.array([(a, b) for a in LOCATIONS for b in SCALES])
_LOCATION_RATE, _SCALE_RATE = (
    np.where(half > 0, 1.0 - 2.0 ** (-1.0 / np.maximum(half, 0.5)), 0.0) for half in _PAIRS.T
)
_EXPERTS = len(_PAIRS)
_SHAPE_ROWS, _SHAPE_START = 500, 100  # memory of the shape, and what the start counts for
_FORGET = 2.0 ** (-1.0 / 500)  # of regrets
_SHARE = 0.001  # of the weights, which is spread evenly
_FAR = 4.0  # scales by which one score may at most be off for the memories
_BEYOND = 1.0  # what a margin may fall by after its interval is a point
_LEAST = 1e-3  # scale, in normal scores
_HALF = len(TAILS)


class Weighted(Protocol):
    """Candidates along the first axis, weighted by their discounted regrets."""

    regret: FloatArray
    weights: FloatArray
    spread: FloatArray  # discounted sums of squared regrets


def reweigh(state: Weighted, losses: FloatArray, loss: FloatArray) -> None:
    """Weight candidates after their losses, and the loss of what was predicted, are known."""
    regret = loss - losses
    squares = regret**2
    state.regret = _FORGET * state.regret + regret
    state.spread = _FORGET * state.spread + (state.weights * squares).sum(axis=0) + 1e-9 * loss**2
    rate = np.sqrt(np.log(len(losses)) / np.maximum(state.spread + squares.max(axis=0), 1e-300))
    exponent = state.regret * rate
    weights = np.exp(exponent - exponent.max(axis=0))
    state.weights = (1.0 - _SHARE) * weights / weights.sum(axis=0) + _SHARE / len(losses)


class Issued(NamedTuple):
    """What a row is predicted with: scores of `LEVELS`, each in ascending order."""

    own: FloatArray  # (experts, levels)
    middle: FloatArray  # (levels,): the experts' weighted mean
    scores: FloatArray  # (levels,): with margins, as intervals are made


@dataclass(eq=False)
class LevelTracker:
    """State of the experts, their weights, and the margins."""

    # (experts,)
    location: FloatArray
    scale: FloatArray
    # (experts, levels): quantiles of the scores, less the location, in units of the scale
    shape: FloatArray
    # (experts, levels)
    regret: FloatArray
    weights: FloatArray
    spread: FloatArray  # (levels,): discounted sums of squared regrets
    margin: FloatArray  # (tails,): in units of the experts' mean scale
    rows: FloatArray  # (): scores taken in

    @classmethod
    def start(cls) -> Self:
        """Begin with the model's own levels."""
        full = (_EXPERTS, len(LEVELS))
        return cls(
            location=np.zeros(_EXPERTS),
            scale=np.ones(_EXPERTS),
            shape=np.tile(NORMAL, (_EXPERTS, 1)),
            regret=np.zeros(full),
            weights=np.full(full, 1.0 / _EXPERTS),
            spread=np.zeros(len(LEVELS)),
            margin=np.zeros(_HALF),
            rows=np.zeros(()),
        )

    def issue(self) -> Issued:
        """Scores of `LEVELS` for the next row."""
        own = self.location[:, None] + self.scale[:, None] * self.shape
        middle = np.sort((self.weights * own).sum(axis=0))
        return Issued(own, middle, self._widened(middle))

    def learn(self, z: float, ends: tuple[float, float], size: float, issued: Issued) -> None:
        """Take in the score of a row that was predicted with what was issued then.

        ``ends`` are the scores between which the target would have been observed as the same value,
        ``size`` is the scale of the distribution, in units of the mean of recent rows.
        """
        own, middle, scores = issued
        lower, upper = scores[:_HALF], scores[:_HALF:-1]
        missed = (ends[1] < lower) | (ends[0] > upper)
        one_value = (ends[0] <= lower) & (upper <= ends[1])
        beside = 1.0 - np.diff(np.interp(ends, scores, LEVELS, left=0.0, right=1.0))
        alpha = np.minimum(2.0 * TAILS, np.where(one_value, beside, 1.0))
        half = np.maximum(middle[_HALF] - middle[:_HALF], middle[:_HALF:-1] - middle[_HALF])
        least = -half / self._unit() - _BEYOND
        self.margin = np.maximum(self.margin + GAIN * (missed - alpha), least)
        self._weigh(z - own, z - middle, size)
        self._follow(z, own)
        self.rows = self.rows + 1.0

    def _unit(self) -> float:
        """The experts' mean scale, in which margins are."""
        return float(self.weights.mean(axis=1) @ self.scale)

    def _widened(self, middle: FloatArray) -> FloatArray:
        """Quantiles with their margins, ever further out from the median."""
        half = self.margin * self._unit()
        median = middle[_HALF]
        lower = np.minimum(middle[:_HALF] - half, median)
        upper = np.maximum(middle[:_HALF:-1] + half, median)
        below = np.minimum.accumulate(lower[::-1])[::-1]
        above = np.maximum.accumulate(upper[::-1])
        return np.concatenate([below, [median], above])

    def _weigh(self, errors: FloatArray, error: FloatArray, unit: float) -> None:
        """Weight experts by their discounted regrets."""
        losses, loss = (np.where(e > 0, LEVELS, LEVELS - 1.0) * e * unit for e in (errors, error))
        reweigh(self, losses, loss)

    def _follow(self, z: float, own: FloatArray) -> None:
        """Move the experts towards a score, by steps as much longer as their tails are."""
        step = max(1.0 / _SHAPE_ROWS, 1.0 / (float(self.rows) + 1.0 + _SHAPE_START))
        wide = np.maximum((self.shape - self.shape[:, [_HALF]]) / _AWAY, 1.0)
        moved = self.shape + step * wide * (LEVELS - (z <= own)) / _DENSITY
        self.shape = np.sort(moved, axis=1)
        off = z - self.location
        near = np.clip(off, -_FAR * self.scale, _FAR * self.scale)
        size = np.minimum(1.2533 * np.abs(off), 1.5 * _FAR * self.scale)
        self.location = self.location + _LOCATION_RATE * near
        self.scale = np.maximum(self.scale + _SCALE_RATE * (size - self.scale), _LEAST)
