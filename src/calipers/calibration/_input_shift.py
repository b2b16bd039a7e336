"""Where the distributions should have been: a linear correction learnt from recent rows.

What a row misses its median by, in units of its scale, is regressed on the standardised inputs by
ridge regression with forgetting, for each half-life in `MEMORIES`. The correction of a row is a
weighted mean of these and of none at all, with weights by how well each has predicted lately:
losses are pinball losses, in units of the mean scale of recent rows, about quantiles that each
candidate tracks for itself, so that a correction counts which makes intervals shorter
and not only points better.

After a jump a regression would need several half-lives to forget what was. So when what is left
over stays on one side (a cumulative sum, Page 1954), the last of them starts again from the rows
that follow.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from scipy.special import ndtri

from calipers._blocks import sum_members
from calipers._checks import FloatArray

MEMORIES = (100.0, 400.0, 100.0)
"""Half-lives in rows; the last starts again after a jump."""

MOST_INPUTS = 32
"""With more inputs than this the correction is the same for all rows."""

_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_DENSITY = np.exp(-0.5 * ndtri(_LEVELS) ** 2) / np.sqrt(2.0 * np.pi)
_KEEP = 2.0 ** (-1.0 / np.array(MEMORIES))
_CANDIDATES = len(MEMORIES) + 1  # the first is none
_RIDGE, _RIDGE_OF_LEVEL = 5.0, 0.1  # rows that speak for no slope, and for no intercept
_STEP, _SLACK, _RUN = 1.5, 0.6, 8.0  # of the sum: the most of a row, what is taken off, its end
_FORGET = 2.0 ** (-1.0 / 500)  # of regrets
_SHARE = 0.001  # of the weights, which is spread evenly
_FAR = 4.0  # scales beyond which a row counts for less
_FURTHEST = 20.0  # standardised inputs


@dataclass(eq=False)
class InputShift:
    """State of the regressions and of the weights between them."""

    # (inputs,): standardise the inputs
    center: FloatArray
    unit: FloatArray
    gram: FloatArray  # (memories, inputs + 1, inputs + 1)
    # (memories, inputs + 1): of the regressions, the intercept first
    moment: FloatArray
    slope: FloatArray
    # (memories + 1,)
    regret: FloatArray
    weights: FloatArray
    # (): discounted squared regrets; the size of recent errors; rows taken in
    spread: FloatArray
    scale: FloatArray
    rows: FloatArray
    quantiles: FloatArray  # (memories + 2, 5): of the errors of each candidate, and of their mean
    run: FloatArray  # (2,): how long errors have been on the upper side, and on the lower

    @classmethod
    def start(cls, center: FloatArray | None = None, unit: FloatArray | None = None) -> Self:
        """Begin with no correction, for inputs of known centre and unit."""
        if center is None or unit is None or len(center) > MOST_INPUTS:
            center = unit = np.zeros(0)
        memories, inputs = len(MEMORIES), len(center) + 1
        return cls(
            center=np.array(center, dtype=np.float64),
            unit=np.array(unit, dtype=np.float64),
            gram=np.zeros((memories, inputs, inputs)),
            moment=np.zeros((memories, inputs)),
            slope=np.zeros((memories, inputs)),
            regret=np.zeros(_CANDIDATES),
            weights=np.full(_CANDIDATES, 1.0 / _CANDIDATES),
            spread=np.zeros(()),
            scale=np.ones(()),
            rows=np.zeros(()),
            quantiles=np.tile(ndtri(_LEVELS), (_CANDIDATES + 1, 1)),
            run=np.zeros(2),
        )

    def copy(self) -> Self:
        """An independent copy."""
        return type(self)(**{f.name: np.array(getattr(self, f.name)) for f in fields(self)})

    def standardised(self, X: FloatArray) -> FloatArray:
        """An intercept and the inputs that the regressions see."""
        ones = np.ones((len(X), 1))
        if not len(self.center):
            return ones
        with np.errstate(over="ignore", invalid="ignore"):
            inputs = np.nan_to_num((X - self.center) / np.where(self.unit > 0, self.unit, np.inf))
        return np.concatenate([ones, np.clip(inputs, -_FURTHEST, _FURTHEST)], axis=1)

    def of_rows(self, inputs: FloatArray) -> FloatArray:
        """Corrections of standardised rows, in units of each row's scale."""
        return sum_members((inputs * (self.weights[1:] @ self.slope)).T)

    def issue(self, inputs: FloatArray) -> FloatArray:
        """Correction of a standardised row by each candidate, and in the end by their mean."""
        each = np.concatenate([[0.0], self.slope @ inputs])
        return np.append(each, self.weights @ each)

    def learn(self, inputs: FloatArray, error: float, scale: float, issued: FloatArray) -> None:
        """Take in what a row missed its median by, in units of its scale, and that scale.

        The scale is in units of its mean over recent rows.

        ``issued`` are the corrections that it was predicted with.
        """
        self._weigh(error - issued, scale)
        self._watch((error - issued[-1]) / self.scale)
        each = issued[:-1]
        left = np.abs(error - each[1:])
        count = np.minimum(1.0, _FAR * self.scale / np.maximum(left, 1e-300))
        off = min(abs(error - issued[-1]), 1.5 * _FAR * float(self.scale))
        self.scale = np.maximum(self.scale + 0.02 * (1.25 * off - self.scale), 1e-3)
        self.gram = _KEEP[:, None, None] * self.gram
        self.gram += count[:, None, None] * np.outer(inputs, inputs)
        self.moment = _KEEP[:, None] * self.moment + (count * error)[:, None] * inputs
        ridge = np.diag([_RIDGE_OF_LEVEL] + [_RIDGE] * (len(inputs) - 1))
        solved = np.linalg.solve(self.gram + ridge, self.moment[..., None])[..., 0]
        self.slope = np.asarray(solved, dtype=np.float64)
        self.rows = self.rows + 1.0

    def _watch(self, error: float) -> None:
        """Start the last regression again where errors keep to one side."""
        step = np.clip(error, -_STEP, _STEP)
        self.run = np.maximum(self.run + np.stack([step, -step]) - _SLACK, 0.0)
        if self.run.max() > _RUN:
            self.run = np.zeros(2)
            self.gram[-1], self.moment[-1] = 0.0, 0.0

    def _weigh(self, errors: FloatArray, scale: float) -> None:
        """Weight candidates by their discounted regrets; the last error is that of their mean."""
        off = errors[:, None] - self.quantiles
        losses = scale * (np.where(off > 0, _LEVELS, _LEVELS - 1.0) * off / _DENSITY).sum(axis=1)
        step = max(1.0 / 300.0, 1.0 / (float(self.rows) + 50.0)) * max(1.0, float(self.scale))
        moved = self.quantiles + step * (_LEVELS - (off <= 0)) / _DENSITY
        self.quantiles = np.sort(moved, axis=1)
        regret = losses[-1] - losses[:-1]
        self.regret = _FORGET * self.regret + regret
        squares = regret**2
        self.spread = _FORGET * self.spread + self.weights @ squares + 1e-9 * losses[-1] ** 2
        rate = np.sqrt(np.log(_CANDIDATES) / max(float(self.spread + squares.max()), 1e-300))
        weights = np.exp(rate * (self.regret - self.regret.max()))
        self.weights = (1.0 - _SHARE) * weights / weights.sum() + _SHARE / _CANDIDATES
