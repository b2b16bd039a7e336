"""A linear correction of the location of distributions, learned online from recent rows.

The deviation of targets from their medians is regressed on the standardised inputs by ridge
regression with forgetting, for each half-life in `MEMORIES`, in two forms. The *relative* form
measures every error in units of its row's scale, for targets that drift in proportion to their
uncertainty. The *absolute* form measures it in the unit of the target, with rows weighted by
precision, so that a constant shift is a single number whatever the scales.

The correction of a row is a weighted mean of these candidates and of no correction, weighted by
their recent performance. The losses are pinball losses, in units of the mean scale of recent rows,
about quantiles that each candidate tracks for itself, so that a correction is rewarded for shorter
intervals and not only for better point predictions.

After a jump a regression would need several half-lives to forget the past. So when the residuals
stay on one side (a cumulative sum, Page 1954), the last regression of each form restarts from the
rows that follow.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from calipers._arrays import FloatArray
from calipers._blocks import sum_members
from calipers.calibration._tracking import reweigh

MEMORIES = (100.0, 400.0, 100.0)
"""Half-lives, in rows, of the regressions of each form; the last restarts after a jump."""

MAX_INPUTS = 32
"""With more inputs than this the correction is the same for all rows."""

_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_DENSITY = np.exp(-0.5 * ndtri(_LEVELS) ** 2) / np.sqrt(2.0 * np.pi)
_KEEP = np.tile(2.0 ** (-1.0 / np.array(MEMORIES)), 2)
_REGRESSIONS = len(_KEEP)
_RELATIVE = np.arange(_REGRESSIONS) < len(MEMORIES)
_RESTARTED = [len(MEMORIES) - 1, _REGRESSIONS - 1]
_CANDIDATES = _REGRESSIONS + 1  # the first makes no correction
_RIDGE, _RIDGE_OF_LEVEL = 5.0, 0.1  # penalty, in rows, of slopes and of the intercept
# Cumulative sum: largest step of a row, slack subtracted from each step, and restart threshold.
_MAX_STEP, _SLACK, _THRESHOLD = 1.5, 0.6, 8.0
_HUBER = 4.0  # residual, in recent scales, beyond which a row has less weight
_MAX_INPUT = 20.0  # standardised inputs are clipped to this
_MAX_ERROR = 1e6  # errors, in scales of the row, are clipped to this
_MAX_PRECISION = 10.0  # ratio of the recent scale to that of a row, up to which its weight grows


@dataclass(eq=False)
class InputShift:
    """State of the regressions and of the weights of the candidates."""

    # (inputs,): location and scale that standardise the inputs
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
    # (): discounted sum of squared regrets; scale of recent errors; number of rows learned from
    spread: FloatArray
    scale: FloatArray
    rows: FloatArray
    typical: FloatArray  # (): mean scale of recent rows in the target's unit; 0 before the first
    # (regressions + 2, 5): quantiles of the errors of each candidate, and of their weighted mean
    quantiles: FloatArray
    run: FloatArray  # (2,): cumulative sums of positive and of negative errors

    @classmethod
    def start(cls, center: FloatArray | None = None, unit: FloatArray | None = None) -> Self:
        """Return the initial state, without a correction, for inputs of this centre and unit."""
        if center is None or unit is None or len(center) > MAX_INPUTS:
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
        """Design matrix of the regressions: an intercept and the standardised inputs."""
        ones = np.ones((len(X), 1))
        if not len(self.center):
            return ones
        with np.errstate(over="ignore", invalid="ignore"):
            inputs = np.nan_to_num((X - self.center) / np.where(self.unit > 0, self.unit, np.inf))
        return np.concatenate([ones, np.clip(inputs, -_MAX_INPUT, _MAX_INPUT)], axis=1)

    def of_rows(self, inputs: FloatArray, scale: FloatArray) -> FloatArray:
        """Corrections, in the target's unit, of rows with standardised ``inputs`` and ``scale``."""
        forms = (_RELATIVE, ~_RELATIVE)
        relative, absolute = (self.weights[1:] * form @ self.slope for form in forms)
        return sum_members((inputs * (np.outer(scale, relative) + self.typical * absolute)).T)

    @property
    def reach(self) -> float:
        """Largest correction, in units of a row's scale or of the typical one."""
        return _MAX_INPUT * float(np.abs(self.slope).sum(axis=1).max())

    def issue(self, inputs: FloatArray, scale: float) -> FloatArray:
        """Corrections of a standardised row by each candidate, then by their weighted mean."""
        unit = np.where(_RELATIVE, scale, self.typical)
        candidates = np.concatenate([[0.0], (self.slope @ inputs) * unit])
        return np.append(candidates, self.weights @ candidates)

    def size(self, scale: float) -> float:
        """``scale`` in units of the mean scale of recent rows."""
        ratio = scale / max(float(self.typical), 1e-300) if self.typical else 1.0
        return float(np.clip(ratio, 1e-6, 1e6))

    def learn(self, inputs: FloatArray, error: float, scale: float, issued: FloatArray) -> None:
        """Learn from the deviation of a row from its median and the scale of its distribution.

        ``issued`` are the corrections with which the row was predicted.
        """
        if not self.typical:
            self.typical = np.asarray(scale)
        size = self.size(scale)
        residuals = np.clip((error - issued) / scale, -_MAX_ERROR, _MAX_ERROR)
        self._reweight(residuals, size)
        self._restart_after_jump(residuals[-1] / self.scale)
        weight = np.minimum(1.0, _HUBER * self.scale / np.maximum(np.abs(residuals[1:-1]), 1e-300))
        off = min(abs(residuals[-1]), 1.5 * _HUBER * float(self.scale))
        self.scale = np.maximum(self.scale + 0.02 * (1.25 * off - self.scale), 1e-3)
        error = float(np.clip(error / scale, -_MAX_ERROR, _MAX_ERROR))
        self._regress(inputs, error, size, weight)
        self._rescale(0.99 + 0.01 * size)
        self.rows = self.rows + 1.0

    def _regress(self, inputs: FloatArray, error: float, size: float, weight: FloatArray) -> None:
        """Add a row to all regressions; its error is in units of its own scale."""
        precision = min(1.0 / max(size, 1e-300), _MAX_PRECISION)
        weight = weight * np.where(_RELATIVE, 1.0, precision**2)
        target = np.where(_RELATIVE, error, error * size)
        self.gram = _KEEP[:, None, None] * self.gram
        self.gram += weight[:, None, None] * np.outer(inputs, inputs)
        self.moment = _KEEP[:, None] * self.moment + (weight * target)[:, None] * inputs
        ridge = np.diag([_RIDGE_OF_LEVEL] + [_RIDGE] * (len(inputs) - 1))
        moment = self.moment[..., None]
        try:
            solution = np.linalg.solve(self.gram + ridge, moment)
        except np.linalg.LinAlgError:  # entries so large that the ridge is lost to rounding
            solution = np.linalg.pinv(self.gram + ridge, hermitian=True) @ moment
        self.slope = np.clip(solution[..., 0], -_MAX_ERROR, _MAX_ERROR)

    def _rescale(self, factor: float) -> None:
        """Multiply the mean scale by ``factor`` and convert the absolute regressions to it."""
        self.typical = self.typical * factor
        ratio = np.where(_RELATIVE, 1.0, factor)[:, None]
        self.gram *= ratio[..., None] ** 2
        self.moment *= ratio
        self.slope /= ratio

    def _restart_after_jump(self, error: float) -> None:
        """Restart the last regression of each form when errors stay on one side."""
        step = np.clip(error, -_MAX_STEP, _MAX_STEP)
        self.run = np.maximum(self.run + np.stack([step, -step]) - _SLACK, 0.0)
        if self.run.max() > _THRESHOLD:
            self.run = np.zeros(2)
            self.gram[_RESTARTED], self.moment[_RESTARTED] = 0.0, 0.0

    def _reweight(self, errors: FloatArray, scale: float) -> None:
        """Weight candidates by their discounted regrets; the last error is that of their mean."""
        off = errors[:, None] - self.quantiles
        losses = scale * (np.where(off > 0, _LEVELS, _LEVELS - 1.0) * off / _DENSITY).sum(axis=1)
        step = max(1.0 / 300.0, 1.0 / (float(self.rows) + 50.0)) * max(1.0, float(self.scale))
        moved = self.quantiles + step * (_LEVELS - (off <= 0)) / _DENSITY
        self.quantiles = np.sort(moved, axis=1)
        reweigh(self, losses[:-1], losses[-1])
