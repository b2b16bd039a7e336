r"""Normal scores of a mixture, :math:`z = \Phi^{-1}(F(y))`, and their inverse, far into the tails.

`F(y)` rounds to 1 beyond 8.3 standard deviations and to 0 beyond 38. So scores are computed from
the smaller of `F` and `1 - F`, and where that loses digits to underflow, from its logarithm, summed
over the components. Both directions work on blocks of rows.

Scales of zero need a rule, since no score is large enough for a target on their empty side. They
count as a few ulps of their mode, so that scores are huge, finite and in order; a target exactly on
a point mass has the score of the middle of the jump. Scores are clipped to 1e100, so that their
squares are finite.
"""

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from calipers._arrays import FloatArray, IntArray
from calipers._blocks import sum_members
from calipers.distributions import _formulas as formulas
from calipers.distributions._density import find_crossings, widened
from calipers.distributions._formulas import Members
from calipers.distributions._quantile import lower_quantile

MAX_SCORE = 1e100
# Probabilities below this are handled as logarithms; scores beyond the limit belong to them.
TINY = 1e-290
TINY_SCORE = float(-ndtri(TINY))


def mixture_scores(y: FloatArray, members: Members) -> FloatArray:
    """Normal score of `y`, (n,), in each row's mixture."""
    loc, left, right, weights = members
    atom = sum_members(weights * ((left + right == 0) & (loc == y)))
    below = sum_members(weights * formulas.cdf(y, loc, left, right)) - 0.5 * atom
    above = sum_members(weights * formulas.sf(y, loc, left, right)) + 0.5 * atom
    flip = above < below
    tail = np.minimum(below, above)
    z: FloatArray = ndtri(tail)
    far = np.flatnonzero(tail < TINY)
    if far.size:
        sign = np.where(flip[far], -1.0, 1.0)
        mirrored = members.take(far).mirrored(flip[far])
        log_tail = _log_cdf(sign * y[far], _log_terms(mirrored))
        z[far] = np.maximum(ndtri_exp(np.minimum(log_tail, np.log(0.5))), -MAX_SCORE)
    return np.where(flip, -z, z)


def mixture_values(z: FloatArray, members: Members) -> FloatArray:
    """Quantile of each row's mixture at the normal score `z`: the inverse of `mixture_scores`."""
    flip = z > 0
    depth, members = -np.abs(z), members.mirrored(flip)  # always solve in the lower tail
    beyond = (depth < -TINY_SCORE) & (depth > -np.inf)
    if not beyond.any():
        x = lower_quantile(ndtr(depth), members)
        return np.where(flip, -x, x)
    x = np.empty_like(z)
    near, far = np.flatnonzero(~beyond), np.flatnonzero(beyond)
    x[near] = lower_quantile(ndtr(depth[near]), members.take(near))
    x[far] = _far_quantile(depth[far], members.take(far))
    return np.where(flip, -x, x)


def _log_terms(members: Members) -> tuple[FloatArray, ...]:
    """Precomputed terms of the logarithm of the distribution function."""
    loc, left, right, weights = widened(members)
    below, above = formulas.side_masses(left, right)
    return loc, left, np.log(2.0 * weights * below), right, np.log(weights), np.log(above)


def _log_cdf(x: FloatArray, terms: tuple[FloatArray, ...]) -> FloatArray:
    """Logarithm of the distribution function, summed relative to the largest component."""
    loc, left, log_below, right, log_weight, log_above = terms
    t = (x - loc) / np.where(x < loc, left, right)
    tail = log_below + log_ndtr(np.minimum(t, 0.0))
    # Right of its mode, the probability of a component cannot underflow.
    right_of_mode = log_weight + np.log1p(-np.exp(log_above) * 2.0 * ndtr(-np.maximum(t, 0.0)))
    each = np.where(x < loc, tail, right_of_mode)
    top: FloatArray = each.max(axis=0)
    return np.where(np.isinf(top), top, top + np.log(sum_members(np.exp(each - top))))


def _far_quantile(depth: FloatArray, members: Members) -> FloatArray:
    """Solve log F(x) = log Phi(depth) between the smallest and largest component quantile.

    The equation is solved for the score, which is nearly linear in x in the extreme tails.
    """
    terms = _log_terms(members)
    log_p = np.minimum(log_ndtr(depth) - (terms[2] - np.log(members.weights)), -1e-300)
    quantiles = members.loc + terms[1] * ndtri_exp(log_p)

    def excess(x: FloatArray, rows: IntArray) -> FloatArray:
        log_cdf = _log_cdf(x, _log_terms(members.take(rows)))
        return ndtri_exp(np.minimum(log_cdf, np.log(0.5))) - depth[rows]

    return find_crossings(excess, quantiles.min(axis=0), quantiles.max(axis=0))[0]
