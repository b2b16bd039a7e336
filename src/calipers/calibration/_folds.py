"""Out-of-fold predictions: for each row, those of the networks that were not trained on it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers.distributions import SplitNormal, SplitNormalMixture


class Folds(NamedTuple):
    """Networks sorted by the fold they were trained without, and the fold of each row."""

    order: NDArray[np.intp]  # (networks,): sorts networks by fold
    row_fold: NDArray[np.intp]  # (n,): number of each row's fold
    n_folds: int
    per_fold: int  # networks

    def grouped(self, values: FloatArray) -> FloatArray:
        """Values of shape (members, n) as (folds, members per fold, n)."""
        each = len(values) // len(self.order)
        order = (self.order[:, None] * each + np.arange(each)).ravel()
        return values[order].reshape(self.n_folds, self.per_fold * each, -1)

    def out_of_fold(self, values: FloatArray) -> FloatArray:
        """Values of the networks not trained on each row, of shape (members per fold, n)."""
        return self.grouped(values)[self.row_fold, :, np.arange(self.row_fold.size)].T


def out_of_fold(
    components: SplitNormal | SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike
) -> SplitNormalMixture:
    """Mixture, for each row, of the networks that were trained without the row's fold.

    ``components`` holds the prediction of every network for every row: a split normal of shape
    (networks, n), or a mixture of shape (n,) where networks predict several components. Every fold
    must have the same number of networks.

    Examples
    --------
    >>> components = SplitNormal([[0.0, 1.0], [2.0, 3.0]], 1.0, 1.0)
    >>> out_of_fold(components, network_folds=[0, 1], row_folds=[1, 0]).mean
    array([2., 1.])
    """
    mixture = as_mixture(components)
    return held_out_networks(mixture, folds_of(mixture, network_folds, row_folds))


def as_mixture(components: SplitNormal | SplitNormalMixture) -> SplitNormalMixture:
    """A split normal per network as a mixture; a mixture is returned unchanged."""
    if isinstance(components, SplitNormalMixture):
        return components
    return SplitNormalMixture(components)


def held_out_networks(mixture: SplitNormalMixture, folds: Folds) -> SplitNormalMixture:
    """Mixture of the networks that were trained without each row's fold."""
    components, weights = mixture.components, mixture.weights
    parts = (components.loc, components.left_scale, components.right_scale)
    out_of_fold_weights = None
    if weights.ndim > 1 or np.any(weights != weights[0]):
        weights = weights if weights.ndim > 1 else weights[:, None]
        out_of_fold_weights = folds.out_of_fold(np.broadcast_to(weights, components.shape))
    return SplitNormalMixture(
        SplitNormal(*(folds.out_of_fold(part) for part in parts)),
        out_of_fold_weights,
        per_network=mixture.per_network,
    )


def folds_of(mixture: SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike) -> Folds:
    """Check the folds of networks and rows, and sort the networks by fold."""
    of_networks, of_rows = np.asarray(network_folds), np.asarray(row_folds)
    shape = (len(mixture.components) // mixture.per_network, *mixture.shape)
    if (*of_networks.shape, *of_rows.shape) != shape or len(shape) != 2:
        raise ValueError(
            f"network_folds and row_folds must fit components of shape {shape}, "
            f"got {of_networks.shape} and {of_rows.shape}"
        )
    names, counts = np.unique(of_networks, return_counts=True)
    if counts.min() != counts.max():
        raise ValueError(f"every fold must have the same number of networks, got {counts.tolist()}")
    unknown = np.setdiff1d(of_rows, names)
    if unknown.size:
        raise ValueError(f"no network was trained without fold {unknown[0]!r} of row_folds")
    order = np.argsort(of_networks, kind="stable")
    return Folds(order, np.searchsorted(names, of_rows), len(names), int(counts[0]))
