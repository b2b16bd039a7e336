"""Deconvolution: the distribution of a quantity observed with normal errors of known variance.

The error of a fold's mean prediction is the noise of the target plus the chance deviation of the
networks. Given the variance of the deviation, expectation-maximisation estimates the distribution
of the noise. It starts from the observed values, shrunk so that their variance is right, which is
already the solution where everything is normal; a few steps then restore the heavy and skewed tails
that a common factor shrinks too much. More steps would overfit the sample.
"""

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray

# Grid points on each side of the median, steps of expectation-maximisation, and the most rows that
# represent one grid point.
POINTS, STEPS, ROWS_PER_POINT = 120, 8, 10
# Fraction of the initial mass placed at the unshrunk values, for tails that should not shrink.
UNSHRUNK = 0.02

# Candidate ratios of the variance of the error shared by all networks to that of disagreement.
SHARED = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
# Where disagreement is less than this fraction of the squared errors, deconvolution would change
# less than its own error, above all in steep tails, so its result counts in proportion to the
# fraction.
LARGE_FRACTION = 0.1
# Squared errors are clipped to this many variances in estimates of the noise variance.
MAX_SQUARE = 25.0


def deconvolved(
    values: FloatArray, shrunk: FloatArray, variance: FloatArray, relative: float
) -> FloatArray:
    """Values without their errors: the deconvolved distribution in the order of ``shrunk``.

    ``variance`` is the variance of each value's error; ``relative`` adds an error variance that is
    a multiple of the squared error-free value.
    """
    order = np.argsort(shrunk, kind="stable")
    grid, start, sample, weight = _grid(shrunk[order], values[order])
    rows = order[sample]
    total_variance = variance[rows, None] + relative * grid**2
    total_variance = np.maximum(total_variance, np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        squares = (values[rows, None] - grid) ** 2
        likelihood = -0.5 * squares / total_variance - 0.5 * np.log(total_variance)
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    mass = start
    for _ in range(STEPS):
        joint = likelihood * mass
        total = joint.sum(axis=1, keepdims=True)
        mass = weight @ (joint / np.where(total > 0, total, 1.0))
        mass = mass / mass.sum()
    result = np.empty_like(shrunk)
    level = (np.arange(order.size) + 0.5) / order.size
    result[order] = np.interp(level, np.cumsum(mass) - 0.5 * mass, grid)
    return result


def _grid(
    shrunk: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.intp], FloatArray]:
    """Grid points, their initial masses, the rows to fit and their weights, from sorted values."""
    n = shrunk.size
    side = np.unique(np.geomspace(1, max(n / 2, 1), POINTS).astype(int)) - 1
    starts = np.unique(np.concatenate([side, n - 1 - side]))
    sizes = np.diff(np.append(starts, n))
    sample = [
        start + np.linspace(0, size - 1, min(size, ROWS_PER_POINT)).astype(int)
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
    """Errors of a fold's mean without their component of this ``variance``.

    The noise variance is taken to be proportional to the predicted variance ``unit`` plus a
    multiple of the disagreement ``tau2``, since the error that networks share is large where they
    disagree; the multiple in `SHARED` is chosen by likelihood.
    """
    fits = [_noise_variance(error, variance, unit + ratio * tau2) for ratio in SHARED]
    best = int(np.argmax([likelihood for _, likelihood in fits]))
    size, unit = fits[best][0], unit + SHARED[best] * tau2
    scale = np.sqrt(unit)
    values = error / scale
    median = np.median(values)
    values = values - median
    removed = variance / unit
    shrunk = values * np.sqrt(size / (size + removed))
    fraction = float(removed.mean()) / (size + float(removed.mean()))
    trust = min(fraction / LARGE_FRACTION, 1.0)
    change = deconvolved(values, shrunk, removed, relative) - shrunk
    return scale * (median + shrunk + trust * change)


def _noise_variance(
    error: FloatArray, variance: FloatArray, unit: FloatArray
) -> tuple[float, float]:
    """Variance of the noise in units of ``unit``, and the log likelihood of the errors.

    The likelihood is that of a t distribution, so that outliers do not dominate it.
    """
    values, removed = error / np.sqrt(unit), variance / unit
    squares = (values - np.median(values)) ** 2
    low, high = 1e-12, 1e12
    for _ in range(80):
        size = float(np.sqrt(low * high))
        if np.minimum(squares / (size + removed), MAX_SQUARE).mean() > 1.0:
            low = size
        else:
            high = size
    total = size + removed
    likelihood = -0.5 * np.log(total * unit) - 3.0 * np.log1p(squares / total / 3.0)
    return size, float(likelihood.sum())


def mean_square(values: FloatArray) -> float:
    """Mean square about the median, with outlying squares clipped."""
    squares = (values - np.median(values)) ** 2
    return float(np.minimum(squares, MAX_SQUARE * np.median(squares)).mean())
