"""The outputs of one pass through the networks, from which queries are answered."""

from dataclasses import dataclass

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions import (
    Distribution,
    ObservedDistribution,
    TransformedMixture,
    atoms,
    mean_density,
)
from calipers.prediction import Prediction, Query


@dataclass(frozen=True, eq=False)
class Forward:
    """Outputs of one pass: points, and either bounds of one coverage or distributions."""

    coverage: float
    point: FloatArray
    bounds: FloatArray | None = None
    dist: Distribution | None = None

    def __getitem__(self, rows: slice) -> "Forward":
        bounds = None if self.bounds is None else self.bounds[rows]
        return Forward(
            self.coverage, self.point[rows], bounds, None if self.dist is None else self.dist[rows]
        )

    def answer(self, query: Query) -> Prediction:
        """Return the arrays that answer a query."""
        intervals, requested = None, query.coverages
        if requested is None:
            requested = () if self.bounds is None and self.dist is None else (self.coverage,)
        coverages, levels = np.array(requested), np.array(query.quantiles)
        dist, arrays = self.dist, {}
        if self.bounds is not None and requested:
            intervals = np.repeat(self.bounds[:, :, None], len(requested), axis=2)
        if dist is not None:
            if requested:
                pair = dist.interval(coverages[:, None])
                intervals = np.stack([side.T for side in pair], axis=1)
            if query.quantiles:
                arrays["quantiles"] = dist.ppf(levels[:, None]).T
            if query.variance:
                arrays["variance"] = dist.var
            if query.variance_parts:
                arrays["aleatoric_variance"] = dist.aleatoric_var
                arrays["epistemic_variance"] = dist.epistemic_var
            if query.members and not isinstance(getattr(dist, "latent", dist), TransformedMixture):
                parts = dist.components
                members = [parts.loc.T, parts.left_scale.T, parts.right_scale.T]
                if dist.weights.ndim > 1:
                    members.append(dist.weights.T)
                arrays["members"] = np.stack(members, axis=1)
            if query.density:
                arrays["density"] = mean_density(dist, query.density)
                if isinstance(dist, ObservedDistribution):
                    arrays["atoms"] = atoms(dist)
            if query.at is not None:
                arrays["cdf"] = dist.cdf(query.at)
                if isinstance(dist, ObservedDistribution):
                    arrays["cdf_below"] = dist.cdf_below(query.at)
        return Prediction(self.point, coverages, levels, intervals, **arrays)
