"""Mixtures of split normals after calibration, which are full distributions themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from calipers import _checks as checks
from calipers._blocks import blockwise
from calipers._checks import FloatArray
from calipers.calibration._effective import effective_note, rows_needed
from calipers.calibration._integrals import ROWS, crps, mean_and_variance
from calipers.calibration._level_map import LevelMap, MixtureRows
from calipers.distributions import (
    DerivedDistribution,
    SplitNormalMixture,
    TransformedMixture,
    mixture_scores,
    mixture_values,
)

Unsupported: TypeAlias = Literal["inf", "raise"]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class CalibratedMixture(DerivedDistribution):
    r"""Distributions whose levels have been corrected by a calibration.

    With the mixture's distribution function F and the calibration's map h from levels to scores,
    the quantile at p is :math:`F^{-1}(\Phi(h(p)))`. Every other method follows from that one
    definition: `cdf` is the inverse, `pdf` the derivative, `sample` the quantile at a random
    level, `crps`, `mean` and `var` are integrals over `cdf`. So they agree with each other, and
    quantiles never cross.

    Parameters
    ----------
    mixture : SplitNormalMixture or CalibratedMixture
        The model's prediction; one that has been corrected may be corrected again.
    calibration : LevelMap
        A `Calibration`, learned from `normal_scores` of the same model.
    row_weights : array-like, optional
        Weight of each row, where the calibration has weights for covariate shift; broadcasts
        against `shape`. The calibration's expected weight if not given.
    unsupported : {"inf", "raise"}
        What `interval` does where the calibration rows are too few for the requested coverage:
        return infinite bounds, or raise a ValueError that says how many rows are needed.
    local : array-like, optional
        What the map of each row depends on, where that is not a weight (see ``LevelMap``).

    Raises
    ------
    ValueError
        If a parameter is out of range or the shape of ``row_weights`` does not fit the rows.

    Notes
    -----
    `ppf`, `cdf`, `pdf` and `sample` are defined at every level: beyond the outermost calibration
    rows they have the model's tails, moved and stretched like the nearest rows. Only `interval`
    claims a coverage, so only `interval` depends on ``unsupported``.

    `mean`, `var` and `std` are those of the corrected distribution. `aleatoric_var` and
    `epistemic_var` are those of the members before the correction, and add up to the variance of
    the mixture, not to `var`: the calibration rows show how wide a distribution should be, but not
    how much of its variance is aleatoric.

    Arguments broadcast against `shape` as those of the mixture do.

    Examples
    --------
    >>> from calipers.calibration import Calibration
    >>> from calipers.distributions import SplitNormal
    >>> mixture = SplitNormalMixture(SplitNormal([[0.0, 5.0]], 1.0, 1.0))
    >>> too_wide = Calibration.from_scores(0.5 * ndtri(np.arange(1, 400) / 400))
    >>> dist = CalibratedMixture(mixture, too_wide)
    >>> lower, upper = dist.interval(0.95)
    >>> lower.round(2), upper.round(2)
    (array([-0.98,  4.02]), array([0.98, 5.98]))
    >>> dist.std.round(3), dist.cdf([0.0, 5.98]).round(3)
    (array([0.5, 0.5]), array([0.5  , 0.975]))
    >>> dist.interval(0.999)
    (array([-inf, -inf]), array([inf, inf]))
    """

    mixture: "SplitNormalMixture | CalibratedMixture"
    calibration: LevelMap
    unsupported: Unsupported
    local: NDArray[Any] | None
    _inner_field = "mixture"

    def __init__(
        self,
        mixture: "SplitNormalMixture | CalibratedMixture",
        calibration: LevelMap,
        row_weights: ArrayLike | None = None,
        unsupported: Unsupported = "inf",
        *,
        local: ArrayLike | None = None,
    ) -> None:
        if unsupported not in ("inf", "raise"):
            raise ValueError(f"unsupported must be 'inf' or 'raise', got {unsupported!r}")
        if row_weights is not None:
            local = checks.scale("row_weights", row_weights)
        if local is not None:
            try:
                local = np.broadcast_to(local, mixture.shape)
            except ValueError:
                raise ValueError(
                    f"row_weights must fit rows of shape {mixture.shape}, got shape "
                    f"{np.shape(local)}"
                ) from None
        object.__setattr__(self, "mixture", mixture)
        object.__setattr__(self, "calibration", calibration)
        object.__setattr__(self, "unsupported", unsupported)
        object.__setattr__(self, "local", local)

    def __getitem__(self, key: Any) -> "CalibratedMixture":
        return self.with_mixture(self.mixture[key], None if self.local is None else self.local[key])

    def with_mixture(
        self, mixture: "SplitNormalMixture | CalibratedMixture", local: NDArray[Any] | None
    ) -> "CalibratedMixture":
        """The same correction of other distributions."""
        return CalibratedMixture(
            mixture, self.calibration, unsupported=self.unsupported, local=local
        )

    @property
    def _steps(self) -> tuple["CalibratedMixture", ...]:
        """The chain of nested corrections including this one, the innermost first."""
        inner = self.mixture._steps if isinstance(self.mixture, CalibratedMixture) else ()
        return (*inner, self)

    def _apply(
        self,
        function: Callable[..., FloatArray | tuple[FloatArray, ...]],
        *arrays: FloatArray,
        outputs: int | None = None,
        block_rows: int | None = None,
    ) -> FloatArray:
        """Call `function` with blocks of rows and of `arrays`."""
        innermost = self._steps[0].mixture
        assert isinstance(innermost, SplitNormalMixture)  # noqa: S101 - for the type checker
        maps = tuple(step.calibration for step in self._steps)
        local = [step.local for step in self._steps]
        given = [each for each in local if each is not None]

        def of_block(*blocks: Any) -> FloatArray | tuple[FloatArray, ...]:
            parts, args, members = iter(blocks), blocks[len(given) : -1], blocks[-1]
            of_rows = tuple(None if each is None else next(parts) for each in local)
            return function(MixtureRows(members, maps, of_rows), *args)

        called, members = innermost.in_blocks(of_block)
        rows = [*given, *arrays]
        return blockwise(called, rows, members, outputs=outputs, block_rows=block_rows)

    def normal_scores(self, x: ArrayLike) -> FloatArray:
        """`cdf` on the normal scale, accurate arbitrarily far into the tails."""
        return self._apply(MixtureRows.levels, checks.not_nan("x", x))

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at `x`; infinite at a point mass."""
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        return self._apply(MixtureRows.logpdf, checks.not_nan("x", x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        return ndtr(self.normal_scores(x))

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(X > x), accurate in the upper tail."""
        return ndtr(-self.normal_scores(x))

    def ppf(self, p: ArrayLike) -> FloatArray:
        return self._values(ndtri(checks.probability("p", p)))

    def isf(self, q: ArrayLike) -> FloatArray:
        return self._values(-ndtri(checks.probability("q", q)))

    def _values(self, v: FloatArray) -> FloatArray:
        """Quantiles at levels on the normal scale."""
        local = self.local
        if local is not None and (any(local.strides) or not local.size):
            return self._apply(MixtureRows.values, v)
        # All rows have the same map, so a level has the same score in all of them.
        z = self.calibration.to_score(v, None if local is None else local.flat[0])
        if isinstance(self.mixture, CalibratedMixture):
            return self.mixture._values(z)
        of_block, members = self.mixture.in_blocks(mixture_values)
        return blockwise(of_block, [z], members)

    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the central interval.

        Where the calibration rows do not support the coverage, the bounds are infinite, or, if
        `unsupported` is "raise", a ``ValueError`` is raised.
        """
        level = checks.coverage(coverage)
        tail = 0.5 * (1.0 - level)
        supported = self.calibration.supports(tail, self.local)
        if self.unsupported == "raise" and not supported.all():
            self._refuse(np.broadcast_to(level, supported.shape)[~supported].max())
        v = ndtri(tail.reshape((1,) * (len(self.shape) - tail.ndim) + tail.shape))
        lower, upper = self._values(np.stack([v, -v]))
        return np.where(supported, lower, -np.inf), np.where(supported, upper, np.inf)

    def _refuse(self, coverage: float) -> None:
        rows = self.calibration.n_rows
        weight = getattr(self.calibration, "total_weight", rows)
        raise ValueError(
            f"coverage {coverage:g} needs at least {rows_needed(coverage)} calibration rows, each "
            f"of the same weight as the predicted row, got {rows} of total weight "
            f"{weight:g}{effective_note(self.calibration)}; unsupported='inf' gives "
            "infinite bounds instead"
        )

    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        """Independent draws of shape ``(*size, *shape)``: quantiles at random levels."""
        shape = (*((size,) if isinstance(size, int) else size), *self.shape)
        return self._apply(MixtureRows.values, rng.standard_normal(shape))

    def crps(self, y: ArrayLike) -> FloatArray:
        r"""Continuous ranked probability score of `y`, to about 1e-6 standard deviations.

        .. math:: \int (F(x) - 1[x \ge y])^2 dx
        """
        return self._apply(crps, checks.finite("y", y), block_rows=ROWS)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance by quadrature; like all moments they are sensitive to outlying scores.

        The mean is accurate to about 1e-6 standard deviations, the variance to a relative 1e-6.
        """
        mean, variance = self._apply(mean_and_variance, outputs=2, block_rows=ROWS)
        return mean, variance

    @property
    def per_network(self) -> int:
        """Number of consecutive members that are the components of one network."""
        return self.mixture.per_network


def normal_scores(
    dist: SplitNormalMixture | CalibratedMixture | TransformedMixture, y: ArrayLike
) -> FloatArray:
    r"""Normal scores of targets, :math:`z = \Phi^{-1}(F(y))`, accurate however far in the tails.

    Parameters
    ----------
    dist : SplitNormalMixture, CalibratedMixture or TransformedMixture
        Predictions for the rows, by networks that were not trained on them.
    y : array-like
        Targets; broadcasts against the distributions.

    Returns
    -------
    array
        Standard normal if the model is right.

    Examples
    --------
    >>> from calipers.distributions import SplitNormal
    >>> mixture = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    >>> normal_scores(mixture, [-1e6, -40.0, 0.5, 9.0])
    array([-1.e+06, -4.e+01,  5.e-01,  9.e+00])
    """
    target = checks.finite("y", y)
    if isinstance(dist, TransformedMixture):  # monotone transformations do not change the scores
        return normal_scores(dist.latent, dist.target_map.forward(target))
    if isinstance(dist, CalibratedMixture):
        return dist.normal_scores(target)
    of_block, members = dist.in_blocks(mixture_scores)
    return blockwise(of_block, (target,), members)
