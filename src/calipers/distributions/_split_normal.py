"""The split normal distribution: two halves of normal distributions joined at their mode."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IndexLike
from calipers._blocks import blockwise
from calipers.distributions import _formulas as formulas
from calipers.distributions._distribution import ClosedForm, Formula
from calipers.distributions._exact_fit import fit_scales


@dataclass(frozen=True, eq=False, init=False)
class SplitNormal(ClosedForm):
    r"""Split normal distributions, one or an array of any shape.

    The density is

    .. math:: f(x) = \sqrt{2/\pi}\,(\sigma_1 + \sigma_2)^{-1}
              \exp\left(-\frac{(x - \mu)^2}{2 \sigma^2}\right),

    with :math:`\sigma = \sigma_1` below the mode :math:`\mu` and :math:`\sigma_2` above. One scale
    of zero gives a half normal distribution, two give a point mass.

    Parameters
    ----------
    loc : array-like
        Mode, finite.
    left_scale, right_scale : array-like
        Scales below and above the mode, finite and nonnegative.

    Attributes
    ----------
    loc, left_scale, right_scale : array
        The parameters, broadcast to one shape, as read-only views of the arguments.
    repaired : array of bool
        Where `from_interval` had to repair its input; False everywhere otherwise.

    Raises
    ------
    ValueError
        If a parameter is out of range, or if shapes do not broadcast.

    Notes
    -----
    The methods are those of `Distribution`. `cdf` and `sf` have a relative accuracy of 1e-12 down
    to 1e-300; densities are infinite at a point mass.

    Examples
    --------
    >>> dist = SplitNormal(loc=[0.0, 10.0], left_scale=1.0, right_scale=[1.0, 3.0])
    >>> dist.cdf([0.0, 10.0])
    array([0.5 , 0.25])
    >>> dist.ppf([[0.25], [0.75]]).round(3)
    array([[-0.674, 10.   ],
           [ 0.674, 12.902]])
    >>> lower, upper = dist.interval(0.95)
    >>> lower.round(2), upper.round(2)
    (array([-1.96,  8.36]), array([ 1.96, 16.38]))
    >>> dist.sample(1000, rng=np.random.default_rng(0)).shape
    (1000, 2)
    >>> float(SplitNormal(0.0, 1.0, 3.0).cdf(-37.0)), float(SplitNormal(0.0, 0.0, 0.0).crps(3.0))
    (2.862785...e-300, 3.0)
    """

    loc: FloatArray
    left_scale: FloatArray
    right_scale: FloatArray
    repaired: BoolArray
    _formulas: ClassVar[Any] = formulas

    def __init__(self, loc: ArrayLike, left_scale: ArrayLike, right_scale: ArrayLike) -> None:
        names = ("loc", "left_scale", "right_scale")
        arrays = (
            checks.finite("loc", loc),
            checks.scale("left_scale", left_scale),
            checks.scale("right_scale", right_scale),
        )
        shape = checks.common_shape(names, arrays)
        for name, array in zip((*names, "repaired"), (*arrays, np.asarray(False)), strict=True):
            object.__setattr__(self, name, np.broadcast_to(array, shape))

    def _marked(self, repaired: BoolArray) -> "SplitNormal":
        object.__setattr__(self, "repaired", np.broadcast_to(repaired, self.shape))
        return self

    @classmethod
    def from_interval(
        cls, lower: ArrayLike, point: ArrayLike, upper: ArrayLike, coverage: float
    ) -> "SplitNormal":
        r"""Fit exactly: mode at `point`, equal tails outside [`lower`, `upper`].

        The result has :math:`F(lower) = \alpha/2` and :math:`F(upper) = 1 - \alpha/2` with
        :math:`\alpha = 1 - coverage`, where the paper minimises the squares of the differences
        (eq. split-normal-loss).

        Numbers out of order (a point outside its bounds, crossed bounds) are repaired by sorting
        the three of them, as is done with crossing quantiles; `repaired` marks where. A point on a
        bound is allowed: that quantile is then the mode. Three equal numbers give a point mass.

        Parameters
        ----------
        lower, point, upper : array-like
            Finite numbers of shapes that broadcast, less than 1.8e308 apart.
        coverage : float
            Mass between `lower` and `upper`, above 0 and below 1.

        Examples
        --------
        >>> dist = SplitNormal.from_interval([-1, 2], [0, 1], [3, 5], coverage=0.95)
        >>> dist.cdf([-1, 1]).round(12), dist.sf([3, 5]).round(12)
        (array([0.025, 0.025]), array([0.025, 0.025]))
        >>> dist.loc, dist.repaired
        (array([0., 2.]), array([False,  True]))
        """
        level = float(checks.coverage(coverage))
        names = ("lower", "point", "upper")
        arrays = [checks.finite(n, v) for n, v in zip(names, (lower, point, upper), strict=True)]
        checks.common_shape(names, arrays)

        def fit(low: FloatArray, mode: FloatArray, high: FloatArray) -> tuple[FloatArray, ...]:
            least, most = np.minimum(low, high), np.maximum(low, high)
            middle = np.clip(mode, least, most)
            least, most = np.minimum(least, mode), np.maximum(most, mode)
            return middle, *fit_scales(middle - least, most - middle, level)

        loc, left, right = blockwise(fit, arrays, outputs=3)
        for scale in (left, right):
            rule = "must be finite, but upper - lower is too large for that"
            checks.checked("scale", scale, rule, strict=True)
        repaired = (arrays[0] > arrays[1]) | (arrays[1] > arrays[2])
        return cls(loc, left, right)._marked(repaired)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.loc.shape

    def __getitem__(self, key: IndexLike) -> "SplitNormal":
        subset = SplitNormal(self.loc[key], self.left_scale[key], self.right_scale[key])
        return subset._marked(self.repaired[key])

    def apply(self, function: Formula, *rows: FloatArray, **options: Any) -> FloatArray:
        return blockwise(function, (*rows, *self._parameters), **options)

    @property
    def _parameters(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.loc, self.left_scale, self.right_scale

    def hdi(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the shortest interval that holds this mass.

        Its density is the same at both ends, so they are equally many scales from the mode.

        Examples
        --------
        >>> lower, upper = SplitNormal(0.0, 1.0, [1.0, 2.0]).hdi(0.95)
        >>> lower.round(2), upper.round(2)
        (array([-1.96, -1.96]), array([1.96, 3.92]))
        """
        lower, upper = self.apply(formulas.hdi, checks.coverage(coverage), outputs=2)
        return lower, upper

    def hdr(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        lower, upper = self.hdi(coverage)
        return np.expand_dims(lower, 0), np.expand_dims(upper, 0)

    @property
    def mode(self) -> FloatArray:
        """Where the density is highest: `loc`."""
        return self.loc

    @property
    def var(self) -> FloatArray:
        return blockwise(formulas.var, (self.left_scale, self.right_scale))

    @property
    def std(self) -> FloatArray:
        return blockwise(formulas.std, (self.left_scale, self.right_scale))

    @property
    def aleatoric_var(self) -> FloatArray:
        """Variance, all of which is aleatoric."""
        return self.var

    @property
    def epistemic_var(self) -> FloatArray:
        """Zero: one network does not disagree with itself."""
        return np.zeros(self.shape)
