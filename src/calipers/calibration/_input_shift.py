"""Where the distributions should have been: a linear correction learnt from recent rows.

What a row misses its median by is regressed on the standardised inputs by ridge regression with
forgetting, for each half-life in `MEMORIES`, in two forms. The *relative* form has every error in
units of its row's own scale, for targets that drift in proportion to what is uncertain. The
*absolute* form has it in the unit of the target, rows weighted by how certain they were, so that a
shift which is the same everywhere is one number whatever the scales.

The correction of a row is a weighted mean of these and of none at all, with weights by how well
each has predicted lately: losses are pinball losses, in units of the mean scale of recent rows,
about quantiles that each candidate tracks for itself, so that a correction counts which makes
intervals shorter and not only points better.

After a jump a regression would need several half-lives to forget what was. So when what is left
over stays on one side (a cumulative sum, Page 1954), the last of each form starts again from the
rows that follow.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.calibration._tracking import reweigh

MEMORIES = (100.0, 400.0, 100.0)
"""Half-lives in rows of the regressions of a form; the last starts again after a jump."""

MOST_INPUTS = 32
"""With more inputs than this the correction is the same for all rows."""

_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_DENSITY = np.exp(-0.5 * ndtri(_LEVELS) ** 2) / np.sqrt(2.0 * np.pi)
_KEEP = np.tile(2.0 ** (-1.0 / np.array(MEMORIES)), 2)
_REGRESSIONS = len(_KEEP)
_RELATIVE = np.arange(_REGRESSIONS) < len(MEMORIES)
_RESTARTED = [len(MEMORIES) - 1, _REGRESSIONS - 1]
_CANDIDATES = _REGRESSIONS + 1  # the first is none
_RIDGE, _RIDGE_OF_LEVEL = 5.0, 0.1  # rows that speak for no slope, and for no intercept
_STEP, _SLACK, _RUN = 1.5, 0.6, 8.0  # of the sum: the most of a row, what is taken off, its end
_FAR = 4.0  # scales beyond which a row counts for less
_FURTHEST = 20.0  # standardised inputs
_LARGEST = 1e6  # error, in scales of the row
_CERTAIN = 10.0  # times the recent scale over that of a row, up to which its weight grows


@dataclass(eq=False)
class InputShift:
    """State of the regressions and of the weights between them."""

    # (inputs,): standardise the inputs
    center: FloatArray
    unit: FloatArray
    gram: FloatArray  # (regressions, inputs + 1, inputs + 1)
    # (regressions, inputs + 1): the intercept first; relative regressions before absolute ones,
    # which are in units of the typical scale
    moment: FloatArray
    slope: FloatArray
    # (regressions + 1,)
    regret: FloatArray
    weights: FloatArray
    # (): discounted squared regrets; the size of recent errors; rows taken in
    spread: FloatArray
    scale: FloatArray
    rows: FloatArray
    typical: FloatArray  # (): mean scale of recent rows in the target's unit; 0 before the first
    quantiles: FloatArray  # (regressions + 2, 5): errors of each candidate, and their mean's
    run: FloatArray  # (2,): how long errors have been on the upper side, and on the lower

    @classmethod
    def start(cls, center: FloatArray | None = None, unit: FloatArray | None = None) -> Self:
        """Begin with no correction, for inputs of known centre and unit."""
        if center is None or unit is None or len(center) > MOST_INPUTS:
            center = unit = np.zeros(0)
        inputs = len(center) + 1
        return cls(
            center=np.array(center, dtype=np.float64),
            unit=np.array(unit, dtype=np.float64),
            gram=np.zeros((_REGRESSIONS, inputs, inputs)),
            moment=np.zeros((_REGRESSIONS, inputs)),
            slope=np.zeros((_REGRESSIONS, inputs)),
            regret=np.zeros(_CANDIDATES),
            weights=np.full(_CANDIDATES, 1.0 / _CANDIDATES),
            spread=np.zeros(()),
            scale=np.ones(()),
            rows=np.zeros(()),
            typical=np.zeros(()),
            quantiles=np.tile(ndtri(_LEVELS), (_CANDIDATES + 1, 1)),
            run=np.zeros(2),
        )

    def standardised(self, X: FloatArray) -> FloatArray:
        """An intercept and the inputs that the regressions see."""
        ones = np.ones((len(X), 1))
        if not len(self.center):
            return ones
        with np.errstate(over="ignore", invalid="ignore"):
            inputs = np.nan_to_num((X - self.center) / np.where(self.unit > 0, self.unit, np.inf))
        return np.concatenate([ones, np.clip(inputs, -_FURTHEST, _FURTHEST)], axis=1)

    def of_rows(self, inputs: FloatArray, scale: FloatArray) -> FloatArray:
        """Corrections of standardised rows of these scales, in the target's unit."""
        forms = (_RELATIVE, ~_RELATIVE)
        relative, absolute = (self.weights[1:] * form @ self.slope for form in forms)
        return sum_members((inputs * (np.outer(scale, relative) + self.typical * absolute)).T)

    @property
    def reach(self) -> float:
        """Largest correction, in units of a row's scale or of the typical one."""
        return _FURTHEST * float(np.abs(self.slope).sum(axis=1).max())

    def issue(self, inputs: FloatArray, scale: float) -> FloatArray:
        """Correction of a standardised row by each candidate, and in the end by their mean."""
        unit = np.where(_RELATIVE, scale, self.typical)
        each = np.concatenate([[0.0], (self.slope @ inputs) * unit])
        return np.append(each, self.weights @ each)

    def size(self, scale: float) -> float:
        """A scale in units of its mean over recent rows."""
        ratio = scale / max(float(self.typical), 1e-300) if self.typical else 1.0
        return float(np.clip(ratio, 1e-6, 1e6))

    def learn(self, inputs: FloatArray, error: float, scale: float, issued: FloatArray) -> None:
        """Take in what a row missed its median by, and the scale of its distribution.

        ``issued`` are the corrections that it was predicted with.
        """
        if not self.typical:
            self.typical = np.asarray(scale)
        size = self.size(scale)
        left = np.clip((error - issued) / scale, -_LARGEST, _LARGEST)
        self._weigh(left, size)
        self._watch(left[-1] / self.scale)
        near = np.minimum(1.0, _FAR * self.scale / np.maximum(np.abs(left[1:-1]), 1e-300))
        off = min(abs(left[-1]), 1.5 * _FAR * float(self.scale))
        self.scale = np.maximum(self.scale + 0.02 * (1.25 * off - self.scale), 1e-3)
        self._regress(inputs, float(np.clip(error / scale, -_LARGEST, _LARGEST)), size, near)
        self._rescale(0.99 + 0.01 * size)
        self.rows = self.rows + 1.0

    def _regress(self, inputs: FloatArray, error: float, size: float, count: FloatArray) -> None:
        """Count a row in all regressions; its error is in units of its own scale."""
        certain = min(1.0 / max(size, 1e-300), _CERTAIN)
        count = count * np.where(_RELATIVE, 1.0, certain**2)
        target = np.where(_RELATIVE, error, error * size)
        self.gram = _KEEP[:, None, None] * self.gram
        self.gram += count[:, None, None] * np.outer(inputs, inputs)
        self.moment = _KEEP[:, None] * self.moment + (count * target)[:, None] * inputs
        ridge = np.diag([_RIDGE_OF_LEVEL] + [_RIDGE] * (len(inputs) - 1))
        moment = self.moment[..., None]
        try:
            solved = np.linalg.solve(self.gram + ridge, moment)
        except np.linalg.LinAlgError:  # so large that the ridge is lost
            solved = np.linalg.pinv(self.gram + ridge, hermitian=True) @ moment
        self.slope = np.clip(solved[..., 0], -_LARGEST, _LARGEST)

    def _rescale(self, factor: float) -> None:
        """Move the mean scale by a factor, and express the absolute regressions in units of it."""
        self.typical = self.typical * factor
        ratio = np.where(_RELATIVE, 1.0, factor)[:, None]
        self.gram *= ratio[..., None] ** 2
        self.moment *= ratio
        self.slope /= ratio

    def _watch(self, error: float) -> None:
        """Start the last regression of each form again where errors keep to one side."""
        step = np.clip(error, -_STEP, _STEP)
        self.run = np.maximum(self.run + np.stack([step, -step]) - _SLACK, 0.0)
        if self.run.max() > _RUN:
            self.run = np.zeros(2)
            self.gram[_RESTARTED], self.moment[_RESTARTED] = 0.0, 0.0

    def _weigh(self, errors: FloatArray, scale: float) -> None:
        """Weight candidates by their discounted regrets; the last error is that of their mean."""
        off = errors[:, None] - self.quantiles
        losses = scale * (np.where(off > 0, _LEVELS, _LEVELS - 1.0) * off / _DENSITY).sum(axis=1)
        step = max(1.0 / 300.0, 1.0 / (float(self.rows) + 50.0)) * max(1.0, float(self.scale))
        moved = self.quantiles + step * (_LEVELS - (off <= 0)) / _DENSITY
        self.quantiles = np.sort(moved, axis=1)
        reweigh(self, losses[:-1], losses[-1])
