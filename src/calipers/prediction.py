"""What to predict for some rows (``Query``), and the arrays that answer it (``Prediction``)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._arrays import FloatArray
from calipers.distributions import (
    MAX_ATOMS,
    Distribution,
    ObservedDistribution,
    TransformedMixture,
    atoms,
    mean_density,
)

__all__ = ["Prediction", "Query"]

_MIN_MASS = 1e-9  # smaller differences of a distribution function are rounding errors
POINT = "prediction"
"""Column name of point predictions."""
MEMBER = ("loc", "left_scale", "right_scale", "weight")
"""Parameters of a network's split normal; the weight only if a network predicts several."""


@dataclass(frozen=True)
class Query:
    """What to predict for each row besides a point.

    Examples
    --------
    >>> Query(coverages=(0.5, 0.9), quantiles=(0.1,)).size(members=10)
    6
    """

    #: Coverages of the intervals; None for the ensemble's own, if its networks have any.
    coverages: tuple[float, ...] | None = None
    quantiles: tuple[float, ...] = ()  #: Levels of quantiles.
    #: Whether to return the split normals of the networks; networks that predict on another scale
    #: than the target's have none in its unit.
    members: bool = False
    density: int = 0  #: Number of values at which to return the density; 0 for none.
    variance: bool = False  #: Whether to return the variance.
    #: Whether to return the aleatoric and the epistemic variance, within and between networks.
    variance_parts: bool = False
    #: (rows,): Values at which to return the distribution function, such as observed targets.
    at: ArrayLike | None = field(default=None, compare=False)

    @property
    def needs_distribution(self) -> bool:
        """Whether bounds of one coverage are not enough."""
        names = {field.name for field in fields(self)} - {"coverages", "at"}
        return self.at is not None or any(getattr(self, name) for name in names)

    def size(self, members: int) -> int:
        """Count of numbers in the answer for one row; ``members`` is ``Ensemble.members_count``."""
        intervals = 1 if self.coverages is None else len(self.coverages)
        flags = sum(value is True for name, value in vars(self).items() if name != "members")
        single = flags + self.variance_parts + (self.at is not None)  # there are two parts
        atoms = 2 * MAX_ATOMS if self.density else 0
        several = 2 * intervals + len(self.quantiles) + 2 * self.density + atoms
        return 1 + single + several + (4 * members if self.members else 0)


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer of an ensemble to a query; the first axis of every array is that of the rows.

    Arrays that were not requested are None.
    """

    point: FloatArray  #: (rows,): Mean of the networks' point predictions.
    #: (k,): Coverages of ``intervals`` and levels of ``quantiles``.
    coverages: FloatArray
    quantile_levels: FloatArray
    intervals: FloatArray | None = None  #: (rows, 2, k): Lower and upper bounds for each coverage.
    quantiles: FloatArray | None = None  #: (rows, k): Quantiles.
    #: (rows,): Variance of the distribution, and the two parts of the networks' variance before
    #: calibration.
    variance: FloatArray | None = None
    aleatoric_variance: FloatArray | None = None
    epistemic_variance: FloatArray | None = None
    #: (rows, 3, networks): ``loc``, ``left_scale`` and ``right_scale`` of every network's split
    #: normal; if networks predict several, also their ``weight`` in the mixture, network by
    #: network.
    members: FloatArray | None = None
    #: (rows, 2, values): Values and the density around them, of the continuous part.
    density: FloatArray | None = None
    #: (rows, 2, k): With the density, if the target cannot take every value: values with positive
    #: probability, and these probabilities, padded with NaN.
    atoms: FloatArray | None = None
    cdf: FloatArray | None = None  #: (rows,): Distribution function at the values of ``Query.at``.
    #: (rows,): ``cdf`` without the probability of the value itself, if it may be positive.
    cdf_below: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.point)

    @property
    def has_ties(self) -> bool:
        """Whether any value of ``Query.at`` has positive probability and may tie with a bound."""
        if self.cdf is None or self.cdf_below is None:
            return False
        return bool((self.cdf - self.cdf_below > _MIN_MASS).any())

    def bounds(self, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of one of the coverages."""
        assert self.intervals is not None  # noqa: S101 - requested
        place = int(np.flatnonzero(self.coverages == coverage)[0])
        return self.intervals[:, 0, place], self.intervals[:, 1, place]

    def __getitem__(self, rows: slice) -> "Prediction":
        return replace(self, **{name: array[rows] for name, array in self._by_row().items()})

    def with_coverages(self, count: int) -> "Prediction":
        """Return the prediction with only its first ``count`` coverages."""
        if self.intervals is None:
            return self
        kept = self.intervals[:, :, :count] if count else None
        return replace(self, coverages=self.coverages[:count], intervals=kept)

    def _by_row(self) -> dict[str, Any]:
        """Arrays with one entry per row."""
        common = ("coverages", "quantile_levels")
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v for k, v in arrays.items() if v is not None and k not in common}

    def columns(self) -> dict[str, FloatArray]:
        """Points, bounds, quantiles, variances and members by name, each of shape (rows,)."""
        columns = {POINT: self.point}
        if self.intervals is not None:
            sides = np.moveaxis(self.intervals, 0, -1).swapaxes(0, 1)  # coverage by coverage
            columns |= dict(
                zip(interval_names(self.coverages), sides.reshape(-1, len(self)), strict=True)
            )
        if self.quantiles is not None:
            names = quantile_names(self.quantile_levels)
            columns |= dict(zip(names, self.quantiles.T, strict=True))
        columns |= {k: v for k, v in self._by_row().items() if v.ndim == 1 and k != "point"}
        if self.members is not None:
            for number, parts in enumerate(np.moveaxis(self.members, 0, -1).swapaxes(0, 1)):
                names = [f"{name}_{number}" for name in MEMBER[: len(parts)]]
                columns |= dict(zip(names, parts, strict=True))
        return columns

    @classmethod
    def concatenate(cls, parts: Sequence["Prediction"]) -> "Prediction":
        """Join the predictions of consecutive rows, which answer the same query."""
        first = parts[0]
        if len(parts) == 1:
            return first
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in first._by_row()
        }
        return replace(first, **joined)


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

    def prediction(self, query: Query) -> Prediction:
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


def checked_levels(name: str, value: float | Sequence[float]) -> list[float]:
    """Return coverages or quantile levels as a list; there must be some, between 0 and 1."""
    array = np.atleast_1d(checks.fraction(name, value))
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be one level or a list of some, got {value!r}")
    return [float(level) for level in array]


def frame_like(X: Any, values: FloatArray, columns: Sequence[str]) -> Any:
    """Return values of the rows of ``X`` as a polars frame if ``X`` is one, or a pandas frame."""
    if type(X).__module__.partition(".")[0] == "polars":
        import polars as pl

        return pl.DataFrame(np.ascontiguousarray(values), schema=list(columns))
    import pandas as pd  # slow to import, and only needed here

    return pd.DataFrame(values, columns=list(columns), index=getattr(X, "index", None))


def interval_names(coverages: Iterable[float]) -> list[str]:
    """Column names of bounds.

    Examples
    --------
    >>> interval_names([0.9, 0.9500001])
    ['lower_0.9', 'upper_0.9', 'lower_0.9500001', 'upper_0.9500001']
    """
    return [f"{side}_{level_name(level)}" for level in coverages for side in ("lower", "upper")]


def quantile_names(levels: Iterable[float]) -> list[str]:
    """Column names of quantiles."""
    return [f"quantile_{level_name(level)}" for level in levels]


def level_name(level: float) -> str:
    """The shortest text that identifies a level, so that no two share a name."""
    return repr(float(level))
