"""Normal scores of targets: their probability integral transform on the normal scale."""

from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._blocks import blockwise
from calipers._checks import FloatArray
from calipers.calibration._calibrated import CalibratedMixture
from calipers.distributions import SplitNormalMixture, TransformedMixture, mixture_scores


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
