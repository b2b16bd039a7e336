"""An ensemble: a bank of networks seen as one prediction, in blocks of rows.

Nothing here knows of estimators; the regressor, the study and the server all predict through it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers.aggregation import AGGREGATORS, Interval
from calipers.bank import Bank
from calipers.calibration import CalibratedMixture, Calibration
from calipers.distributions import SplitNormal, SplitNormalMixture

FloatArray = NDArray[np.float64]
Distribution = SplitNormalMixture | CalibratedMixture

DISTRIBUTIONS = ("snm", "normal")
"""Aggregations that give a distribution; the others give bounds of one coverage."""

_BLOCK = 2**16  # rows predicted at a time, which bounds the memory that prediction needs


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks, the way to aggregate them, and what calibration has found.

    Attributes
    ----------
    bank : Bank
        The networks.
    coverage : float
        What their bounds were trained for, and the coverage of an interval where none is asked.
    aggregation : str
        A key of ``AGGREGATORS``.
    calibrations : tuple of Calibration
        Corrections of the distribution, each on top of those before it.
    row_weight : callable, optional
        Weight of each row under covariate shift, for the last calibration.
    unsupported : {"inf", "raise"}
        What an interval is whose coverage the calibration rows do not support.
    n_jobs : int, optional
        Blocks of rows predicted at a time.
    """

    bank: Bank
    coverage: float
    aggregation: str
    calibrations: tuple[Calibration, ...] = ()
    row_weight: Callable[[FloatArray], FloatArray] | None = None
    unsupported: Any = "inf"
    n_jobs: int | None = 1

    def part(self, networks: Any) -> "Ensemble":
        """Some of the networks, without calibration."""
        return replace(self, bank=self.bank[networks], calibrations=(), row_weight=None)

    def members(self, X: FloatArray) -> Interval:
        """Each network's own interval and point, of shape (networks, rows)."""
        parts = self._blocks(self._members, X)
        return Interval(*(np.concatenate(sides, axis=1) for sides in zip(*parts, strict=True)))

    def point(self, X: FloatArray) -> FloatArray:
        """Mean of the networks' points, of shape (rows,)."""
        return np.concatenate(self._blocks(self._point, X))

    def distribution(self, X: FloatArray) -> Distribution:
        """Predictive distribution of each row, calibrated where the ensemble is.

        Raises
        ------
        ValueError
            If the aggregation gives bounds and no distribution.
        """
        return self._calibrated(self.mixture(X), X)

    def mixture(self, X: FloatArray) -> SplitNormalMixture:
        """Predictive distribution of each row, as the networks have it."""
        self._needs_distribution("a distribution")
        parts = [mixture.components for mixture in self._blocks(self._mixture, X)]
        if len(parts) == 1:
            return SplitNormalMixture(parts[0])
        names = ("loc", "left_scale", "right_scale")
        joined = (np.concatenate([getattr(p, name) for p in parts], axis=1) for name in names)
        return SplitNormalMixture(SplitNormal(*joined))

    def interval(self, X: FloatArray, coverages: FloatArray) -> FloatArray:
        """Lower and upper bounds, of shape (rows, 2, coverages).

        Raises
        ------
        ValueError
            If another coverage is asked than the networks were trained for and the aggregation
            gives no distribution.
        """
        if np.any(coverages != self.coverage):
            self._needs_distribution(f"coverage {coverages.tolist()}")
        return np.concatenate(self._blocks(lambda block: self._bounds(block, coverages), X))

    def quantiles(self, X: FloatArray, levels: FloatArray) -> FloatArray:
        """Quantiles of each row's distribution, of shape (rows, levels)."""
        self._needs_distribution("quantiles")

        def of_block(block: FloatArray) -> FloatArray:
            return self._calibrated(self._mixture(block), block).ppf(levels[:, None]).T

        return np.concatenate(self._blocks(of_block, X))

    def variance(self, X: FloatArray) -> FloatArray:
        """Variance of each row's distribution."""
        self._needs_distribution("a variance")

        def of_block(block: FloatArray) -> FloatArray:
            return self._calibrated(self._mixture(block), block).var

        return np.concatenate(self._blocks(of_block, X))

    def _blocks(self, function: Callable[[FloatArray], Any], X: FloatArray) -> list[Any]:
        parallel = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")
        starts = range(0, max(len(X), 1), _BLOCK)
        return list(parallel(joblib.delayed(function)(X[i : i + _BLOCK]) for i in starts))

    def _calibrated(self, mixture: SplitNormalMixture, X: FloatArray) -> Distribution:
        dist: Distribution = mixture
        for step, calibration in enumerate(self.calibrations, start=1):
            last = step == len(self.calibrations)
            weights = self.row_weight(X) if last and self.row_weight is not None else None
            dist = CalibratedMixture(dist, calibration, weights, self.unsupported)
        return dist

    def _density(self, X: FloatArray) -> SplitNormal:
        """Density that each network predicts, where its head gives one."""
        values = self.bank.predict(X)
        if set(values) == {"mean", "scale"}:
            return SplitNormal(values["mean"], values["scale"], values["scale"])
        if set(values) == {"loc", "left_scale", "right_scale"}:
            return SplitNormal(**values)
        raise ValueError(
            "networks that predict points alone have no intervals: choose another loss"
        )

    def _mixture(self, X: FloatArray) -> SplitNormalMixture:
        if not self._has_bounds:
            return SplitNormalMixture(self._density(X))
        mixture = AGGREGATORS[self.aggregation](*self._members(X), coverage=self.coverage)
        assert isinstance(mixture, SplitNormalMixture)  # noqa: S101 - for the type checker
        return mixture

    def _members(self, X: FloatArray) -> Interval:
        if self._has_bounds:
            return Interval(**self.bank.predict(X))
        density = self._density(X)
        lower, upper = density.interval(self.coverage)
        return Interval(lower, density.mean, upper)

    def _point(self, X: FloatArray) -> FloatArray:
        if "point" in self._fields:
            return np.mean(self.bank.predict(X)["point"], axis=0)
        return np.mean(self._density(X).mean, axis=0)

    def _bounds(self, X: FloatArray, coverages: FloatArray) -> FloatArray:
        if self.aggregation in DISTRIBUTIONS:
            pair = self._calibrated(self._mixture(X), X).interval(coverages[:, None])
        else:
            bounds = AGGREGATORS[self.aggregation](*self._members(X), coverage=self.coverage)
            shape = (len(coverages), len(X))
            pair = np.broadcast_to(bounds.lower, shape), np.broadcast_to(bounds.upper, shape)
        return np.stack([side.T for side in pair], axis=1)

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.bank.program.objective.output.fields

    @property
    def _has_bounds(self) -> bool:
        return "lower" in self._fields

    def _needs_distribution(self, what: str) -> None:
        if self.aggregation not in DISTRIBUTIONS:
            raise ValueError(
                f"aggregation={self.aggregation!r} gives bounds for coverage {self.coverage:g} and "
                f"nothing else, so {what} cannot be had from it: use aggregation='snm', or train "
                "for that coverage"
            )
