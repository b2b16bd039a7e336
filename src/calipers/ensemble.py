"""An ensemble: a bank of networks as one predictive distribution.

The estimator, and with it the command line and the report, predicts through ``Ensemble.predict``;
the server through ``predict_each``, which answers several requests at once; the search scores
``members``. This module does not depend on them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import joblib
import numpy as np

from calipers import _checks as checks
from calipers._arrays import FloatArray
from calipers._blocks import sum_members
from calipers._text import counted
from calipers.aggregation import AGGREGATIONS, Aggregation, Interval
from calipers.bank import Bank, Upgraded
from calipers.calibration import (
    AdaptiveCoverage,
    Calibrator,
    Learned,
    NetworkDistribution,
    Unsupported,
    lagged,
    normal_scores,
)
from calipers.distributions import (
    Distribution,
    SplitNormalMixture,
    Support,
    TargetMap,
    latent_targets,
    mean_of,
    on_target_scale,
    refuse_outside,
    support_runs,
)
from calipers.heads import Head, Values
from calipers.prediction import Forward, Prediction, Query

__all__ = ["Ensemble"]

_BLOCK = 2**13  # rows predicted at a time, which bounds memory and gives every thread some work
_SEED = 20_250_611  # of the draws of a stream's targets within their cells
_ANY = 2**31  # calibration rows of a model without calibration, which supports every coverage


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks, their aggregation and their calibrations."""

    bank: Bank | Upgraded  #: The networks.
    #: Coverage that bounds were trained for, and default coverage of intervals.
    coverage: float
    aggregation: str  #: A key of ``AGGREGATIONS``.
    #: Corrections of the distribution, each on top of those before it.
    calibrations: tuple[Calibrator, ...] = ()
    #: "inf", "raise": What to do if the calibration rows do not support a coverage.
    unsupported: Unsupported = "inf"
    n_jobs: int | None = 1  #: Blocks of rows predicted at a time.
    #: Values that the target can take, to which predictions are restricted.
    support: Support = Support()  # noqa: RUF009 - a frozen value
    #: The scale on which the networks predict, if it is not the target's own.
    target_map: TargetMap | None = None

    @property
    def head(self) -> Head:
        """The head, which interprets the networks' outputs."""
        return self.bank.program.output

    @property
    def members_count(self) -> int:
        """Number of split normals that all networks predict together."""
        return len(self.bank) * self.head.components

    @property
    def gives_distribution(self) -> bool:
        """Whether intervals of any coverage, quantiles and variances are available."""
        return self.head.has_interval and self._aggregation.gives_distribution

    @property
    def _aggregation(self) -> Aggregation:
        return AGGREGATIONS[self.aggregation]

    def predict(self, X: FloatArray, query: Query | None = None) -> Prediction:
        """Answer a query about some rows, from one pass through the networks.

        By default, predict points and intervals of the ensemble's coverage. Raises ``ValueError``
        if the networks or the aggregation cannot answer it.
        """
        query = query or Query()
        self.check(query)
        at = None if query.at is None else np.asarray(query.at, np.float64)

        def of_block(rows: slice) -> Prediction:
            block_query = query if at is None else replace(query, at=at[rows])
            return self._forward(X[rows]).prediction(block_query)

        return Prediction.concatenate(self._blocks(of_block, len(X)))

    def predict_each(self, X: FloatArray, queries: Sequence[tuple[int, Query]]) -> list[Prediction]:
        """Answer several queries from one pass.

        ``queries`` are pairs of a number of rows and a query about them, in the order of the rows.
        Equal queries that follow each other are answered together.
        """
        if any(query.at is not None for _, query in queries):
            raise ValueError("Query.at is not supported by predict_each: use predict")
        forward, start = self._forward(X), 0
        predictions: list[Prediction] = []
        for query, group in groupby(queries, key=itemgetter(1)):
            self.check(query)
            ends = np.cumsum([rows for rows, _ in group]).tolist()
            part = forward if ends[-1] == len(X) else forward[start : start + ends[-1]]
            joint = part.prediction(query)
            single = len(ends) == 1
            predictions += [joint] if single else [joint[i:j] for i, j in pairwise([0, *ends])]
            start += ends[-1]
        return predictions

    def distribution(self, X: FloatArray) -> Distribution:
        """Predictive distribution of each row, calibrated if the ensemble is.

        Raises ``ValueError`` if the aggregation gives bounds and no distribution.
        """
        return on_target_scale(self.calibrated(X), self.target_map, self.support)

    def calibrated(self, X: FloatArray) -> NetworkDistribution:
        """Calibrated distribution on the scale on which the networks predict."""
        return self._calibrated(self.mixture(X), X)

    def on_own_scale(self, dist: NetworkDistribution) -> Distribution:
        """Transform the prediction of the networks to the target's own scale."""
        return on_target_scale(dist, self.target_map)

    def scores(
        self, dist: NetworkDistribution, y: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Normal scores of held-out targets, from which to calibrate.

        ``dist`` is the result of ``calibrated`` for their rows. A target value with positive
        probability has no single score: ``rng`` draws one within its cell.
        """
        return normal_scores(dist, self.latent_targets(dist, y, rng))

    def learn(
        self,
        X: FloatArray,
        y: FloatArray,
        delay: int = 0,
        predicted_by: "Sequence[Ensemble] | None" = None,
    ) -> tuple["Ensemble", Learned]:
        """Learn online from the targets of rows in time order.

        Each row counts as predicted by the ensemble as it was ``delay`` rows earlier, or by its
        ensemble in ``predicted_by``, an earlier one of this stream. Returns the ensemble for the
        rows that come next, with an ``AdaptiveCoverage`` as its last calibration, and what was
        predicted for each row before its target was known. A target outside the support widens it
        for the rows that are predicted later. Raises ``ValueError`` if the aggregation gives bounds
        and no distribution, or if the model predicts logarithms and a target has none.
        """
        if self.target_map is not None:
            self.target_map.check(y)
        widened, online = self.admitting(y), self._adaptive()
        fixed = tuple(c for c in self.calibrations if c is not online)
        if predicted_by is None:
            states, supports = None, self._supports(y, delay)
        else:
            adaptive = {id(ensemble): ensemble._adaptive() for ensemble in predicted_by}
            states = [adaptive[id(ensemble)] for ensemble in predicted_by]
            supports = [ensemble.support for ensemble in predicted_by]
        base = replace(widened, calibrations=fixed)
        dist = base.calibrated(X)
        latent, cells = base._in_cells(dist, y, supports, int(online.levels.rows))
        learned = online.learn(dist, latent, X, delay, cells, states)
        ensemble = replace(base, calibrations=(*fixed, learned.state))
        return ensemble, replace(learned, y=y, supports=supports, target_map=self.target_map)

    def _supports(self, y: FloatArray, delay: int) -> list[Support]:
        """Support with which each row is predicted, widened by the targets known by then."""
        support, supports = self.support, []
        outside = ~support.holds(y)
        for new, labelled in lagged(len(y), delay):
            if new is not None:
                supports.append(support)
            if labelled is not None and outside[labelled]:
                support = support.widened(y[labelled])
        return supports

    def _in_cells(
        self, dist: NetworkDistribution, y: FloatArray, supports: list[Support], first: int
    ) -> tuple[FloatArray, FloatArray | None]:
        """Latent targets of rows numbered from ``first``, and the ends of their cells, (2, n).

        Cells are those of the support with which a row was predicted. That of a target outside it
        is empty, so that every interval misses it; its latent value is drawn as if it were inside.
        """
        latent = np.empty(len(y))
        drawn = list(supports)
        for rows, support in support_runs(supports):
            for row in rows.start + np.flatnonzero(~support.holds(y[rows])):
                drawn[row] = support.widened(y[row])
        for rows, support in support_runs(drawn):
            # One random number per row of the stream, however it is split into calls.
            rng = np.random.Generator(np.random.PCG64(_SEED).advance(first + rows.start))
            ensemble = replace(self, support=support)
            latent[rows] = ensemble.latent_targets(dist[rows], y[rows], rng)
        if all(support.is_line for support in supports):
            return latent, None
        cells = np.empty((2, len(y)))
        for rows, support in support_runs(supports):
            cells[:, rows] = support.lower_edge(y[rows]), support.upper_edge(y[rows])
        return latent, cells if self.target_map is None else self.target_map.forward(cells)

    def _adaptive(self) -> AdaptiveCoverage:
        """What has been learned from a stream so far."""
        last = self.calibrations[-1] if self.calibrations else None
        if isinstance(last, AdaptiveCoverage):
            return last
        units = self.bank.units if isinstance(self.bank, Bank) else None
        places = (None, None) if units is None else (units.input_center, units.input_scale)
        return AdaptiveCoverage.start(_ANY if last is None else last.n_rows, *places)

    def admitting(
        self, y: FloatArray, *, sample: bool = False, name: str = "the target"
    ) -> "Ensemble":
        """Return the ensemble without assumptions about the target that these targets contradict.

        Warns if there are any, and calls the target by ``name``. Values with mass keep it; if the
        targets are a ``sample``, only those that some of them have. Bounds that the user gave are
        not an assumption: targets outside them raise ``ValueError``.
        """
        if self.support.given:
            refuse_outside(y, self.support)
        support = self.support.widened(y)
        if sample:
            new = {*support.atoms} - {*self.support.atoms}
            support = support.without_atoms(new - {*y.tolist()})
        if support != self.support:
            wrong = np.sum(~self.support.holds(y))
            checks.warn(
                f"{name} was assumed to be {self.support}, which does not hold for {wrong:,} "
                f"of {counted(len(y), 'row')}: from now on it is {support}"
            )
        return replace(self, support=support)

    def latent_targets(
        self, dist: NetworkDistribution, y: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Targets on the networks' scale, drawn within their cells if the support has any."""
        if not self.support.is_line:
            y = latent_targets(self.support, self.on_own_scale(dist), y, rng)
        return y if self.target_map is None else self.target_map.forward(y)

    def within_bounds(self, point: FloatArray) -> FloatArray:
        """Clip point predictions to the bounds of the target, unless an upgrade keeps them."""
        if self.support.is_line or isinstance(self.bank, Upgraded):
            return point
        return np.clip(point, *self.support.ends)

    def mixture(self, X: FloatArray) -> SplitNormalMixture:
        """Predictive distribution of each row before calibration, on the networks' scale."""
        self._needs_distribution("a distribution")
        blocks = self._blocks(lambda rows: self._mixture(self.bank.predict(X[rows])), len(X))
        return SplitNormalMixture.concatenate(blocks)

    def members(self, X: FloatArray) -> Interval:
        """Interval and point prediction of each network, of shape (networks, rows)."""
        blocks = self._blocks(lambda rows: self._members(self.bank.predict(X[rows])), len(X))
        return Interval(*(np.concatenate(sides, axis=1) for sides in zip(*blocks, strict=True)))

    def _blocks(self, function: Callable[[slice], Any], rows: int) -> list[Any]:
        """Results of ``function`` for blocks of rows, in parallel."""
        if rows <= _BLOCK:
            return [function(slice(None))]  # starting threads takes longer than a few rows
        parallel = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")
        starts = range(0, rows, _BLOCK)
        return list(parallel(joblib.delayed(function)(slice(i, i + _BLOCK)) for i in starts))

    def _forward(self, X: FloatArray) -> Forward:
        """Pass rows through the networks once."""
        values = self.bank.predict(X)
        mixture = self.head.mixture(values)
        if mixture is None:
            points = values["point"]
        else:
            points = mean_of(mixture.by_network, self.target_map)
        point = sum_members(points) / len(points)
        checks.finite("the prediction of the networks", point)
        point = self.within_bounds(point)
        if self.gives_distribution:
            mixture = self._mixture(values) if mixture is None else mixture
            calibrated = self._calibrated(mixture, X)
            point = self.within_bounds(point + self._moved(mixture, X, calibrated))
            dist = on_target_scale(calibrated, self.target_map, self.support)
            return Forward(self.coverage, point, dist=dist)
        if not self.head.has_interval:
            return Forward(self.coverage, point)
        bounds = self._aggregation(*self._members(values), coverage=self.coverage)
        assert isinstance(bounds, Interval)  # noqa: S101 - for the type checker
        lower, _, upper = (np.broadcast_to(side, (1, len(X)))[0] for side in bounds)
        sides = self.support.observe(np.stack([lower, upper], axis=1))
        return Forward(self.coverage, point, bounds=sides)

    def _calibrated(self, mixture: SplitNormalMixture, X: FloatArray) -> NetworkDistribution:
        dist: NetworkDistribution = mixture
        for calibration in self.calibrations:
            dist = calibration.calibrated(dist, X, self.unsupported)
        return dist

    def _moved(
        self, mixture: SplitNormalMixture, X: FloatArray, dist: NetworkDistribution
    ) -> FloatArray | float:
        """Shift of the medians by online learning, which point predictions follow."""
        if not self.calibrations or not isinstance(self.calibrations[-1], AdaptiveCoverage):
            return 0.0
        fixed = replace(self, calibrations=self.calibrations[:-1])
        before = self.on_own_scale(fixed._calibrated(mixture, X))
        return self.on_own_scale(dist).ppf(0.5) - before.ppf(0.5)

    def _mixture(self, values: Values) -> SplitNormalMixture:
        density = self.head.mixture(values)
        if density is not None:
            return density
        mixture = self._aggregation(*self._members(values), coverage=self.coverage)
        assert isinstance(mixture, SplitNormalMixture)  # noqa: S101 - for the type checker
        return mixture

    def _members(self, values: Values) -> Interval:
        self._needs_interval()
        mixture = self.head.mixture(values)
        if mixture is None:
            return Interval(**values)
        density = mixture.by_network
        lower, upper = density.interval(self.coverage)
        if self.target_map is not None:
            lower, upper = self.target_map.back(lower), self.target_map.back(upper)
        return Interval(lower, mean_of(density, self.target_map), upper)

    def check(self, query: Query) -> None:
        """Raise ValueError if a query cannot be answered, before any network runs."""
        if query.coverages:
            self._needs_interval()
            if any(level != self.coverage for level in query.coverages):
                self._needs_distribution(f"coverage {list(query.coverages)}")
        if query.needs_distribution:
            self._needs_distribution("quantiles" if query.quantiles else "a distribution")

    def _needs_interval(self) -> None:
        if not self.head.has_interval:
            raise ValueError(
                "networks that predict points alone have no intervals: choose another loss"
            )

    def _needs_distribution(self, what: str) -> None:
        self._needs_interval()
        if not self._aggregation.gives_distribution:
            raise ValueError(
                f"aggregation={self.aggregation!r} gives bounds for coverage {self.coverage:g} and "
                f"nothing else, so {what} is not available: use aggregation='snm', or train "
                "for that coverage"
            )
