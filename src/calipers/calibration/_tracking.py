r"""Online tracking of the quantiles of a stream of scores, at all levels at once.

Scores are standard normal while the model is right. *Experts* track the quantiles of the incoming
scores: each has a half-life for their location (`LOCATIONS`, 0 for a fixed location) and one for
their scale (`SCALES`), and learns the shape of the standardised scores by stochastic approximation
of its quantiles. At each level the experts are weighted by their recent pinball loss in the
target's unit, with exponential weights whose learning rate adapts to the regrets [1]_, so that
there is none to choose.

In addition, each central interval has a margin that grows by ``GAIN (1 - alpha)`` of the current
scale after a miss and shrinks by ``GAIN alpha`` after a hit [2]_. Over any T rows, the number of
hits differs from its nominal value by at most the net change of the margin divided by ``GAIN``;
this maintains the coverage, in the long run and in short windows. A target with mass is a hit in
part: by the fraction of its mass, as predicted, between the levels of the interval. Such hits are
what calibration aims at, too. Observed intervals, which end on such values, contain more: they miss
a target only if all of its mass is outside. A margin stops falling soon after its interval has
become a point, since otherwise it would take long to grow again.

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

from calipers._arrays import FloatArray

TAILS = np.array([0.0005, 0.0025, 0.005, 0.0125, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.325, 0.4])
"""Tail probabilities of the central intervals that have a margin."""

LEVELS = np.concatenate([TAILS, [0.5], 1.0 - TAILS[::-1]])
NORMAL = ndtri(LEVELS)
"""The levels on the normal scale, which are the scores of a correct model."""

LOCATIONS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
SCALES = (0.0, 10.0, 30.0, 100.0, 300.0)
GAIN = 0.12

_DENSITY = np.exp(-0.5 * NORMAL**2) / np.sqrt(2.0 * np.pi)
_NONZERO_NORMAL = np.where(NORMAL == 0, 1.0, NORMAL)
_PAIRS = np.array([(a, b) for a in LOCATIONS for b in SCALES])
_LOCATION_RATE, _SCALE_RATE = (
    np.where(half > 0, 1.0 - 2.0 ** (-1.0 / np.maximum(half, 0.5)), 0.0) for half in _PAIRS.T
)
_EXPERTS = len(_PAIRS)
_SHAPE_ROWS, _SHAPE_START = 500, 100  # memory of the shape and weight of its start, in rows
_FORGET = 2.0 ** (-1.0 / 500)  # discount of regrets
_UNIFORM = 0.001  # fraction of the weights that is spread evenly
_MAX_STEP = 4.0  # deviations of a score are clipped to this many scales
_SLACK = 1.0  # amount by which a margin may fall after its interval has become a point
_MIN_SCALE = 1e-3  # in normal scores
MAX_SCORE = 1e30  # scores are clipped to this
_HALF = len(TAILS)


class Weighted(Protocol):
    """Candidates along the first axis, weighted by their discounted regrets."""

    regret: FloatArray
    weights: FloatArray
    spread: FloatArray  # discounted sums of squared regrets


def reweigh(state: Weighted, losses: FloatArray, loss: FloatArray) -> None:
    """Update the weights from the candidates' losses and the loss of the actual prediction."""
    regret = loss - losses
    squares = regret**2
    state.regret = _FORGET * state.regret + regret
    state.spread = _FORGET * state.spread + (state.weights * squares).sum(axis=0) + 1e-9 * loss**2
    rate = np.sqrt(np.log(len(losses)) / np.maximum(state.spread + squares.max(axis=0), 1e-300))
    exponent = state.regret * rate
    weights = np.exp(exponent - exponent.max(axis=0))
    state.weights = (1.0 - _UNIFORM) * weights / weights.sum(axis=0) + _UNIFORM / len(losses)


class Issued(NamedTuple):
    """Scores of `LEVELS` with which a row is predicted, each in ascending order."""

    experts: FloatArray  # (experts, levels)
    mean: FloatArray  # (levels,): the experts' weighted mean
    scores: FloatArray  # (levels,): the mean with margins, which gives the intervals


@dataclass(eq=False)
class LevelTracker:
    """State of the experts, their weights, and the margins."""

    # (experts,)
    location: FloatArray
    scale: FloatArray
    # (experts, levels): quantiles of the scores, standardised by location and scale
    shape: FloatArray
    # (experts, levels)
    regret: FloatArray
    weights: FloatArray
    spread: FloatArray  # (levels,): discounted sums of squared regrets
    margin: FloatArray  # (tails,): in units of the experts' mean scale
    rows: FloatArray  # (): number of scores so far

    @classmethod
    def start(cls) -> Self:
        """Return the initial state, which leaves the model's levels unchanged."""
        even = np.full((_EXPERTS, len(LEVELS)), 1.0 / _EXPERTS)
        return cls(
            location=np.zeros(_EXPERTS),
            scale=np.ones(_EXPERTS),
            shape=np.tile(NORMAL, (_EXPERTS, 1)),
            regret=np.zeros_like(even),
            weights=even,
            spread=np.zeros(len(LEVELS)),
            margin=np.zeros(_HALF),
            rows=np.zeros(()),
        )

    def issue(self) -> Issued:
        """Scores of `LEVELS` for the next row."""
        experts = self.location[:, None] + self.scale[:, None] * self.shape
        experts = np.clip(experts, -MAX_SCORE, MAX_SCORE)
        mean = np.sort((self.weights * experts).sum(axis=0))
        return Issued(experts, mean, self._widened(mean))

    def learn(self, z: float, ends: tuple[float, float], size: float, issued: Issued) -> None:
        """Learn from the score ``z`` of a row that was predicted with ``issued``.

        ``ends`` are the scores between which the target would have been observed as the same value,
        ``size`` is the scale of the distribution, in units of the mean scale of recent rows.
        """
        experts, mean, scores = issued
        lower, upper = scores[:_HALF], scores[:_HALF:-1]
        missed = (z < lower) | (z > upper)
        below, at = np.interp(ends, scores, LEVELS, left=0.0, right=1.0)
        if at > below:  # the target has mass, of which this fraction is outside
            inside = np.minimum(at, 1.0 - TAILS) - np.maximum(below, TAILS)
            missed = 1.0 - np.maximum(inside, 0.0) / (at - below)
        half = np.maximum(mean[_HALF] - mean[:_HALF], mean[:_HALF:-1] - mean[_HALF])
        least = -half / self._unit() - _SLACK
        self.margin = np.maximum(self.margin + GAIN * (missed - 2.0 * TAILS), least)
        losses, loss = (
            np.where(error > 0, LEVELS, LEVELS - 1.0) * error * size
            for error in (z - experts, z - mean)
        )
        reweigh(self, losses, loss)
        self._follow(z, experts)
        self.rows = self.rows + 1.0

    def _unit(self) -> float:
        """The experts' mean scale, which is the unit of margins."""
        return float(self.weights.mean(axis=1) @ self.scale)

    def _widened(self, mean: FloatArray) -> FloatArray:
        """Quantiles with their margins, kept in ascending order."""
        half = self.margin * self._unit()
        median = mean[_HALF]
        lower = np.minimum(mean[:_HALF] - half, median)
        upper = np.maximum(mean[:_HALF:-1] + half, median)
        below = np.minimum.accumulate(lower[::-1])[::-1]
        above = np.maximum.accumulate(upper[::-1])
        return np.concatenate([below, [median], above])

    def _follow(self, z: float, experts: FloatArray) -> None:
        """Move the experts towards a score, with longer steps where their tails are heavier."""
        step = max(1.0 / _SHAPE_ROWS, 1.0 / (float(self.rows) + 1.0 + _SHAPE_START))
        tail = np.maximum((self.shape - self.shape[:, [_HALF]]) / _NONZERO_NORMAL, 1.0)
        moved = self.shape + step * tail * (LEVELS - (z <= experts)) / _DENSITY
        # Many late targets may be far beyond what the experts were when their rows were predicted.
        self.shape = np.clip(np.sort(moved, axis=1), -MAX_SCORE, MAX_SCORE)
        deviation = z - self.location
        clipped = np.clip(deviation, -_MAX_STEP * self.scale, _MAX_STEP * self.scale)
        size = np.minimum(1.2533 * np.abs(deviation), 1.5 * _MAX_STEP * self.scale)
        self.location = self.location + _LOCATION_RATE * clipped
        self.scale = np.maximum(self.scale + _SCALE_RATE * (size - self.scale), _MIN_SCALE)
