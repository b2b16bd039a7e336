"""An ensemble: a bank of networks seen as one prediction, in blocks of rows.

Nothing here knows of estimators; the regressor, the study and the server all predict through it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers.aggregation import AGGREGATORS, Interval
from calipers.bank import Bank, Upgraded
from calipers.calibration import CalibratedMixture, Calibration
from calipers.distributions import SplitNormal, SplitNormalMixture

FloatArray = NDArray[np.float64]
Values = dict[str, FloatArray]  # what the bank predicts, by field
Distribution = SplitNormalMixture | CalibratedMixture

DISTRIBUTIONS = ("snm", "normal")
"""Aggregations that give a distribution; the others give bounds of one coverage."""

_BLOCK = 2**16  # rows predicted at a time, which bounds the memory that prediction needs


class Forecast(NamedTuple):
    """What an ensemble says of some rows, from one pass through its networks.

    Attributes
    ----------
    point : array of shape (rows,)
        Mean of the networks' points.
    interval : Interval or None
        Of the ensemble's own coverage; None where the networks predict points alone.
    distribution : Distribution or None
        None where the aggregation gives bounds alone.
    """

    point: FloatArray
    interval: Interval | None
    distribution: Distribution | None


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks, the way to aggregate them, and what calibration has found.

    Attributes
    ----------
    bank : Bank or Upgraded
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

    bank: Bank | Upgraded
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
        parts = self._blocks(lambda block: self._members(self.bank.predict(block)), X)
        return Interval(*(np.concatenate(sides, axis=1) for sides in zip(*parts, strict=True)))

    def point(self, X: FloatArray) -> FloatArray:
        """Mean of the networks' points, of shape (rows,)."""
        return np.concatenate(self._blocks(lambda block: self._point(self.bank.predict(block)), X))

    def forecast(self, X: FloatArray) -> Forecast:
        """Point, interval and distribution at once, for no more rows than a block has."""
        values = self.bank.predict(X)
        point = self._point(values)
        if set(values) == {"point"}:
            return Forecast(point, None, None)
        if self.aggregation in DISTRIBUTIONS:
            dist = self._calibrated(self._mixture(values), X)
            lower, upper = dist.interval(self.coverage)
            return Forecast(point, Interval(lower, point, upper), dist)
        lower, _, upper = self._aggregated(values, len(X))
        return Forecast(point, Interval(lower, point, upper), None)

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
        self.needs_distribution("a distribution")
        blocks = self._blocks(lambda block: self._mixture(self.bank.predict(block)), X)
        parts = [mixture.components for mixture in blocks]
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
            self.needs_distribution(f"coverage {coverages.tolist()}")
        return np.concatenate(self._blocks(lambda block: self._bounds(block, coverages), X))

    def quantiles(self, X: FloatArray, levels: FloatArray) -> FloatArray:
        """Quantiles of each row's distribution, of shape (rows, levels)."""
        self.needs_distribution("quantiles")

        def of_block(block: FloatArray) -> FloatArray:
            return self._distribution(block).ppf(levels[:, None]).T

        return np.concatenate(self._blocks(of_block, X))

    def variance(self, X: FloatArray) -> FloatArray:
        """Variance of each row's distribution."""
        self.needs_distribution("a variance")

        return np.concatenate(self._blocks(lambda block: self._distribution(block).var, X))

    def _blocks(self, function: Callable[[FloatArray], Any], X: FloatArray) -> list[Any]:
        if len(X) <= _BLOCK:
            return [function(X)]  # starting threads would take longer than a few rows
        parallel = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")
        starts = range(0, len(X), _BLOCK)
        return list(parallel(joblib.delayed(function)(X[i : i + _BLOCK]) for i in starts))

    def _calibrated(self, mixture: SplitNormalMixture, X: FloatArray) -> Distribution:
        dist: Distribution = mixture
        for step, calibration in enumerate(self.calibrations, start=1):
            last = step == len(self.calibrations)
            weights = self.row_weight(X) if last and self.row_weight is not None else None
            dist = CalibratedMixture(dist, calibration, weights, self.unsupported)
        return dist

    def _distribution(self, X: FloatArray) -> Distribution:
        return self._calibrated(self._mixture(self.bank.predict(X)), X)

    def _density(self, values: Values) -> SplitNormal:
        """Density that each network predicts, where its head gives one."""
        if set(values) == {"mean", "scale"}:
            return SplitNormal(values["mean"], values["scale"], values["scale"])
        if set(values) == {"loc", "left_scale", "right_scale"}:
            return SplitNormal(**values)
        raise ValueError(
            "networks that predict points alone have no intervals: choose another loss"
        )

    def _mixture(self, values: Values) -> SplitNormalMixture:
        if not self._has_bounds:
            return SplitNormalMixture(self._density(values))
        mixture = AGGREGATORS[self.aggregation](*self._members(values), coverage=self.coverage)
        assert isinstance(mixture, SplitNormalMixture)  # noqa: S101 - for the type checker
        return mixture

    def _members(self, values: Values) -> Interval:
        if self._has_bounds:
            return Interval(**values)
        density = self._density(values)
        lower, upper = density.interval(self.coverage)
        return Interval(lower, density.mean, upper)

    def _point(self, values: Values) -> FloatArray:
        if "point" in values:
            return np.mean(values["point"], axis=0)
        return np.mean(self._density(values).mean, axis=0)

    def _aggregated(self, values: Values, rows: int) -> Interval:
        """Bounds of the networks' own coverage, where the aggregation gives nothing else."""
        bounds = AGGREGATORS[self.aggregation](*self._members(values), coverage=self.coverage)
        return Interval(*(np.broadcast_to(side, (1, rows))[0] for side in bounds))

    def _bounds(self, X: FloatArray, coverages: FloatArray) -> FloatArray:
        if self.aggregation in DISTRIBUTIONS:
            pair = self._distribution(X).interval(coverages[:, None])
        else:
            lower, _, upper = self._aggregated(self.bank.predict(X), len(X))
            shape = (len(coverages), len(X))
            pair = np.broadcast_to(lower, shape), np.broadcast_to(upper, shape)
        return np.stack([side.T for side in pair], axis=1)

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.bank.program.objective.output.fields

    @property
    def _has_bounds(self) -> bool:
        return "lower" in self._fields

    def needs_distribution(self, what: str) -> None:
        """Refuse what an aggregation that gives bounds alone cannot give."""
        if self.aggregation not in DISTRIBUTIONS:
            raise ValueError(
                f"aggregation={self.aggregation!r} gives bounds for coverage {self.coverage:g} and "
                f"nothing else, so {what} cannot be had from it: use aggregation='snm', or train "
                "for that coverage"
            )
