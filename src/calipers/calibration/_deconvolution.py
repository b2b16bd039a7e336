"""The distribution of a quantity that is seen only with normal errors of known size.

Errors of networks' means are targets' own noise plus what networks happen to disagree by. Given how
large the second part is, expectation-maximisation finds the distribution of the first: it begins
with the observed values shrunk so that their variance is right, which is the answer where all is
normal, and a few steps give heavy and skewed tails back what a common factor takes from them. More
steps would fit the sample and not its distribution.
"""

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray

# Points of the grid on each side of the median, steps of expectation-maximisation, and rows that
# speak for one point of the grid.
POINTS, STEPS, SPEAKERS = 120, 8, 10
# Share of the first guess that lies at values as observed, for tails that should not shrink.
UNSHRUNK = 0.02

# What all networks are wrong by may be so many times what they disagree by, as variances.
SHARED = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
# Where disagreement is less than this share of the squared errors, there is less to take away than
# expectation-maximisation is off by, above all in steep tails: it counts in proportion to the
# share.
LARGE_SHARE = 0.1
# Squared errors count up to so many variances in how large the noise is.
FURTHEST = 25.0


def deconvolved(
    values: FloatArray, shrunk: FloatArray, variance: FloatArray, relative: float
) -> FloatArray:
    """Values without their errors: the right distribution over rows, ranked as first shrunk.

    ``variance`` is that of each value's error; ``relative`` is a further one, as a multiple of the
    square of what is sought.
    """
    order = np.argsort(shrunk, kind="stable")
    grid, start, sample, weight = _grid(shrunk[order], values[order])
    rows = order[sample]
    spread = variance[rows, None] + relative * grid**2
    spread = np.maximum(spread, np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        fit = -0.5 * (values[rows, None] - grid) ** 2 / spread - 0.5 * np.log(spread)
    fit = np.exp(fit - fit.max(axis=1, keepdims=True))
    mass = start
    for _ in range(STEPS):
        share = fit * mass
        total = share.sum(axis=1, keepdims=True)
        mass = weight @ (share / np.where(total > 0, total, 1.0))
        mass = mass / mass.sum()
    found = np.empty_like(shrunk)
    level = (np.arange(order.size) + 0.5) / order.size
    found[order] = np.interp(level, np.cumsum(mass) - 0.5 * mass, grid)
    return found


def _grid(
    shrunk: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.intp], FloatArray]:
    """Points, their first masses, the rows to fit to and these rows' weights; both are sorted."""
    n = shrunk.size
    side = np.unique(np.geomspace(1, max(n / 2, 1), POINTS).astype(int)) - 1
    starts = np.unique(np.concatenate([side, n - 1 - side]))
    sizes = np.diff(np.append(starts, n))
    sample = [
        start + np.linspace(0, size - 1, min(size, SPEAKERS)).astype(int)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]
    picked = np.array([part.size for part in sample])
    weight = np.repeat(sizes / picked, picked) / n
    middle = starts + sizes // 2
    points = np.concatenate([shrunk[middle], values[middle]])
    mass = np.concatenate([(1.0 - UNSHRUNK) * sizes, UNSHRUNK * sizes]) / n
    order = np.argsort(points, kind="stable")
    return points[order], mass[order], np.concatenate(sample), weight


def noise_of(
    error: FloatArray, variance: FloatArray, unit: FloatArray, tau2: FloatArray, relative: float
) -> FloatArray:
    """What errors of a fold's mean would be without the part of this variance.

    Its variance is that predicted and so many times that of disagreement, since what networks are
    wrong about together is large where they disagree; errors themselves say how many times.
    """
    fits = [_noise_size(error, variance, unit + times * tau2) for times in SHARED]
    best = int(np.argmax([likelihood for _, likelihood in fits]))
    size, own = fits[best][0], unit + SHARED[best] * tau2
    scale = np.sqrt(own)
    values = error / scale
    middle = np.median(values)
    values = values - middle
    part = variance / own
    shrunk = values * np.sqrt(size / (size + part))
    share = float(part.mean()) / (size + float(part.mean()))
    trust = min(share / LARGE_SHARE, 1.0)
    more = deconvolved(values, shrunk, part, relative) - shrunk
    return scale * (middle + shrunk + trust * more)


def _noise_size(error: FloatArray, variance: FloatArray, own: FloatArray) -> tuple[float, float]:
    """Variance of the noise in units of `own`, and how likely that makes the errors.

    The likelihood is that of a t distribution, so that far errors have no say of their own.
    """
    values, part = error / np.sqrt(own), variance / own
    squares = (values - np.median(values)) ** 2
    low, high = 1e-12, 1e12
    for _ in range(80):
        size = float(np.sqrt(low * high))
        if np.minimum(squares / (size + part), FURTHEST).mean() > 1.0:
            low = size
        else:
            high = size
    total = size + part
    likelihood = -0.5 * np.log(total * own) - 3.0 * np.log1p(squares / total / 3.0)
    return size, float(likelihood.sum())


def mean_square(values: FloatArray) -> float:
    """Mean square about the median, to which far values add no more than some."""
    squares = (values - np.median(values)) ** 2
    return float(np.minimum(squares, FURTHEST * np.median(squares)).mean())
