"""The outputs of one pass through the networks, and the arrays that answer a query of them."""

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
        """Arrays that answer a query."""
        intervals, asked = None, query.coverages
        if asked is None:
            asked = () if self.bounds is None and self.dist is None else (self.coverage,)
        coverages, levels = np.array(asked), np.array(query.quantiles)
        dist, found = self.dist, {}
        if self.bounds is not None and asked:
            intervals = np.repeat(self.bounds[:, :, None], len(asked), axis=2)
        if dist is not None:
            if asked:
                pair = dist.interval(coverages[:, None])
                intervals = np.stack([side.T for side in pair], axis=1)
            if query.quantiles:
                found["quantiles"] = dist.ppf(levels[:, None]).T
            if query.variance:
                found["variance"] = dist.var
            if query.variance_parts:
                found["aleatoric_variance"] = dist.aleatoric_var
                found["epistemic_variance"] = dist.epistemic_var
            if query.members and not isinstance(getattr(dist, "latent", dist), TransformedMixture):
                parts = dist.components
                each = [parts.loc.T, parts.left_scale.T, parts.right_scale.T]
                if dist.weights.ndim > 1:
                    each.append(dist.weights.T)
                found["members"] = np.stack(each, axis=1)
            if query.density:
                found["density"] = mean_density(dist, query.density)
                if isinstance(dist, ObservedDistribution):
                    found["atoms"] = atoms(dist)
            if query.at is not None:
                found["cdf"] = dist.cdf(query.at)
                if isinstance(dist, ObservedDistribution):
                    found["cdf_below"] = dist.cdf_below(query.at)
        return Prediction(self.point, coverages, levels, intervals, **found)
