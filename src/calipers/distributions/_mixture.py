"""Mixtures of split normal distributions, the predictions of an ensemble."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._arrays import FloatArray, IndexLike
from calipers._blocks import blockwise, blockwise_ragged, sum_members
from calipers.distributions import _mixture_formulas as formulas
from calipers.distributions._density import mixture_modes
from calipers.distributions._distribution import ClosedForm
from calipers.distributions._formulas import Members
from calipers.distributions._regions import density_region, shortest_interval
from calipers.distributions._split_normal import SplitNormal


@dataclass(frozen=True, eq=False, init=False, repr=False)
class SplitNormalMixture(ClosedForm):
    r"""Mixtures of split normal distributions, one per row or an array of any shape.

    The density is :math:`f(x) = \sum_j w_j f_j(x)` over the members :math:`j`: the components of
    all networks of an ensemble, one or several of each.

    Parameters
    ----------
    components : SplitNormal of shape (members, ...)
        Members along the first axis, network by network; the other axes are the shape of the
        mixture.
    weights : array-like of shape (members,) or (members, ...), optional
        Positive numbers, divided by their sum: the same for all rows, or different for each row.
        Equal if not given.
    per_network : int
        Number of consecutive members that are the components of one network. It affects only
        `aleatoric_var`, `epistemic_var` and `by_network`.

    Raises
    ------
    ValueError
        If there are no members, if weights are not one positive number for each, or if the number
        of members is not a multiple of ``per_network``.

    Notes
    -----
    The methods are those of `Distribution`. `cdf` and `sf` have a relative accuracy of 1e-12 down
    to 1e-300, `logpdf` does not underflow, and densities are infinite at a point mass. Quantiles
    `x` satisfy F(x-) <= p <= F(x) up to 1e-12 min(p, 1 - p) and a change of `x` by one ulp.

    Examples
    --------
    >>> members = SplitNormal(loc=[[0.0, 1.0], [4.0, 1.0]], left_scale=1.0, right_scale=1.0)
    >>> mixture = SplitNormalMixture(members)
    >>> mixture.mean, mixture.var
    (array([2., 1.]), array([5., 1.]))
    >>> lower, upper = mixture.interval(0.95)
    >>> lower.round(3), upper.round(3)
    (array([-1.645, -0.96 ]), array([5.645, 2.96 ]))
    >>> mixture.ppf([[0.5], [0.75]]).round(3)
    array([[2.   , 1.   ],
           [4.   , 1.674]])
    >>> mixture.sample((2, 3), rng=np.random.default_rng(0)).shape
    (2, 3, 2)
    >>> coin = SplitNormalMixture(SplitNormal([0.0, 1.0], 0.0, 0.0))
    >>> float(coin.crps(0.5))
    0.25
    """

    components: SplitNormal
    weights: FloatArray
    per_network: int
    _formulas: ClassVar[Any] = formulas

    def __init__(
        self, components: SplitNormal, weights: ArrayLike | None = None, *, per_network: int = 1
    ) -> None:
        if not components.shape or len(components) == 0:
            raise ValueError(
                "components must have members along a first axis of at least 1, "
                f"got shape {components.shape}"
            )
        members = len(components)
        weights = np.ones(members) if weights is None else checks.positive("weights", weights)
        if weights.shape not in ((members,), components.shape):
            rows = "" if len(components.shape) == 1 else f" or {components.shape}"
            raise ValueError(
                f"weights must be one number per member, shape ({members},){rows}, "
                f"got {weights.shape}"
            )
        if per_network < 1 or members % per_network:
            raise ValueError(
                f"per_network must be a divisor of the {members} members, got {per_network}"
            )
        total = weights.sum() if weights.ndim == 1 else sum_members(weights)
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "weights", weights / total)
        object.__setattr__(self, "per_network", per_network)

    @classmethod
    def concatenate(cls, parts: Sequence["SplitNormalMixture"]) -> "SplitNormalMixture":
        """One array of mixtures from arrays of consecutive rows with equal numbers of members."""
        first = parts[0]
        if len(parts) == 1:
            return first
        arrays = zip(*(part.components._parameters for part in parts), strict=True)
        components = SplitNormal(*(np.concatenate(array, axis=1) for array in arrays))
        if first.weights.ndim == 1:
            return first._with(components, first.weights)
        return first._with(components, np.concatenate([part.weights for part in parts], axis=1))

    def _with(self, components: SplitNormal, weights: FloatArray) -> "SplitNormalMixture":
        changed = copy(self)  # dividing weights by their sum again would change the last bits
        object.__setattr__(changed, "components", components)
        object.__setattr__(changed, "weights", weights)
        return changed

    @property
    def shape(self) -> tuple[int, ...]:
        return self.components.shape[1:]

    def __getitem__(self, key: IndexLike) -> "SplitNormalMixture":
        keys = (slice(None), *(key if isinstance(key, tuple) else (key,)))
        weights = self.weights if self.weights.ndim == 1 else self.weights[keys]
        return self._with(self.components[keys], weights)

    @property
    def by_network(self) -> "SplitNormal | SplitNormalMixture":
        """Distribution of each network, of shape (networks, ...).

        Examples
        --------
        >>> members = SplitNormal([[0.0], [2.0], [7.0], [7.0]], 1.0, 1.0)
        >>> SplitNormalMixture(members, [1, 3, 2, 2], per_network=2).by_network.mean
        array([[1.5],
               [7. ]])
        """
        if self.per_network == 1:
            return self.components

        def of_networks(array: FloatArray) -> FloatArray:
            return array.reshape(-1, self.per_network, *self.shape).swapaxes(0, 1)

        weights = self.weights
        if weights.ndim == 1:
            weights = weights.reshape(-1, *(1,) * len(self.shape))
        weights = np.broadcast_to(weights, self.components.shape)
        components = SplitNormal(*(of_networks(array) for array in self.components._parameters))
        return SplitNormalMixture(components, of_networks(weights))

    def apply(
        self, function: Callable[..., Any], *rows: FloatArray, ragged: bool = False, **options: Any
    ) -> Any:
        """Call a function of blocks of `rows` and their `Members`.

        The options are those of `blockwise`, or of `blockwise_ragged`.
        """
        members: tuple[FloatArray, ...] = self.components._parameters
        common = [self.weights[:, None]]
        if self.weights.ndim > 1:  # weights differ between rows
            members, common = (*members, self.weights), []

        def of_block(*blocks: FloatArray) -> Any:
            return function(*blocks[: len(rows)], Members(*blocks[len(rows) :], *common))

        return (blockwise_ragged if ragged else blockwise)(of_block, rows, members, **options)

    def hdi(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the shortest interval that holds this mass, exactly.

        Parameters and results are those of `interval`.

        Examples
        --------
        >>> skewed = SplitNormalMixture(SplitNormal([0.0, 0.1], 0.5, 2.0))
        >>> [round(float(bound), 3) for bound in skewed.hdi(0.9)]
        [-0.775, 3.342]
        >>> [round(float(bound), 3) for bound in skewed.interval(0.9)]
        [-0.528, 3.777]
        """
        lower, upper = self.apply(shortest_interval, checks.coverage(coverage), outputs=2)
        return lower, upper

    def hdr(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the highest density region, a union of intervals.

        The region is the smallest set that holds this mass. Where the mixture has one mode it is
        the interval that `hdi` returns. Parameters and results are those of `Distribution.hdr`.

        Examples
        --------
        >>> two_modes = SplitNormalMixture(SplitNormal([[0.0], [10.0]], 1.0, 1.0))
        >>> lower, upper = two_modes.hdr(0.95)
        >>> lower.round(2).tolist(), upper.round(2).tolist()
        ([[-1.96], [8.04]], [[1.96], [11.96]])
        """
        level = checks.coverage(coverage)
        lower, upper = self.apply(density_region, level, outputs=2, ragged=True)
        return lower, upper

    def modes(self) -> FloatArray:
        """Local maxima of the density.

        Modes that rise above an adjacent valley by less than a thousandth may be missed.

        Returns
        -------
        array of shape (k, ...)
            In ascending order along the first axis. Rows with fewer than k modes are padded with
            NaN.

        Examples
        --------
        >>> SplitNormalMixture(SplitNormal([[0.0, 0.0], [0.0, 9.0]], 1.0, 1.0)).modes().round(3)
        array([[ 0.,  0.],
               [nan,  9.]])
        """
        (modes,) = self.apply(mixture_modes, outputs=1, ragged=True)
        return modes

    @property
    def aleatoric_var(self) -> FloatArray:
        """Mean of the networks' variances: the noise that each of them predicts."""
        return self.apply(partial(formulas.aleatoric_var, per_network=self.per_network))

    @property
    def epistemic_var(self) -> FloatArray:
        """Variance of the networks' means: their disagreement."""
        return self.apply(partial(formulas.epistemic_var, per_network=self.per_network))

    @property
    def var(self) -> FloatArray:
        """Variance: the sum of `aleatoric_var` and `epistemic_var` (law of total variance)."""
        return self.aleatoric_var + self.epistemic_var

    @property
    def std(self) -> FloatArray:
        return self.apply(formulas.std)
