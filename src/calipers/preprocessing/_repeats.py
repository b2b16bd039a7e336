r"""Numbers that are also names: columns whose equal values share more than their size tells.

A store's number, a postcode, the pressure of a day on which many rows were taken: rows of exactly
the same value have something in common that rows of nearly the same value have not. Trees find
that, and smooth functions, which networks are, cannot. Whether a column is of this kind shows in
what a smooth function of all inputs leaves of the targets. With residuals :math:`r`, the covariance
of two rows of the same value, less that of two rows of neighbouring values, is the variance that
the value as a name explains:

.. math:: \rho = \frac{\overline{r_i r_j}_{x_i = x_j} - \overline{r_i r_j}_{x_i \to x_j}}
          {\overline{r_i^2}}

Rows that are the same in all inputs would always show it, and count once.
"""

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray

_FEATURES = 256  # random frequencies of the smooth function
_PENALTIES = 10.0 ** np.arange(-2, 4)
_FAR = 4.0  # standard deviations beyond which inputs are no larger
_ROWS = 5_000  # that the smooth function is fitted to; it predicts the others
_LEAST_ROWS = 200
_MOST_INPUTS = 300  # beyond, the time of the smooth function, which grows by the cube, is too much
_FEWEST, _REPEATED = 10, 2.0  # more values than this, and as many rows of each on average
_SHARE = 0.1  # of what a smooth function leaves that names must explain
_BEYOND_DOUBT = 6.0  # standard errors, if there were no names
_CLEAR = 3.0  # standard errors, for names like these


def smooth_residuals(X: FloatArray, y: FloatArray) -> FloatArray:
    """What a smooth function of the inputs leaves of each target, fitted without that target.

    Ridge regression on the inputs and random cosines of them, of its penalties the one that leaves
    least. In standard deviations of the targets.
    """
    rng = np.random.default_rng(0)
    fitted = np.sort(rng.permutation(len(y))[:_ROWS])
    X = X / np.maximum(np.abs(X).max(axis=0, initial=0.0), np.finfo(float).tiny)  # for squares
    center, scale = X[fitted].mean(axis=0), X[fitted].std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    reach = rng.gamma(2.0, 0.7, _FEATURES) / np.sqrt(X.shape[1])
    frequencies = rng.normal(size=(X.shape[1], _FEATURES)) * reach
    phases = rng.uniform(0, 2 * np.pi, _FEATURES)

    def features(rows: NDArray[np.intp]) -> FloatArray:
        Z = np.clip((X[rows] - center) / scale, -_FAR, _FAR)
        cosines = np.sqrt(2) * np.cos(Z @ frequencies + phases)
        return np.column_stack([np.ones(len(Z)), Z, cosines])

    y = y / (float(np.abs(y).max(initial=0.0)) or 1.0)
    target = (y - y[fitted].mean()) / (y[fitted].std() or 1.0)
    known = features(fitted)
    values, vectors = np.linalg.eigh(known.T @ known)
    rotated = known @ vectors
    moments = rotated.T @ target[fitted]
    best = np.inf
    for penalty in _PENALTIES:
        shrunk = 1.0 / (np.maximum(values, 0.0) + penalty)
        own = np.minimum(rotated**2 @ shrunk, 0.99)  # share of each row's target in its prediction
        left = (target[fitted] - rotated @ (shrunk * moments)) / (1.0 - own)
        if (error := float(np.mean(left**2))) < best:
            best, found, weights = error, left, vectors @ (shrunk * moments)
    residuals = np.empty(len(y))
    residuals[fitted] = found
    others = np.setdiff1d(np.arange(len(y)), fitted)
    for start in range(0, len(others), _ROWS):
        rows = others[start : start + _ROWS]
        residuals[rows] = target[rows] - features(rows) @ weights
    return residuals


def may_be_names(values: FloatArray) -> bool:
    """Whether values repeat, and are not so few that networks learn each by itself."""
    there = values[~np.isnan(values)]
    distinct = len(np.unique(there))
    return len(there) >= _LEAST_ROWS and distinct > _FEWEST and len(there) >= _REPEATED * distinct


def are_names(values: FloatArray, residuals: FloatArray) -> bool:
    """Whether equal values share what neighbouring values do not, beyond doubt.

    >>> rng = np.random.default_rng(0)
    >>> store = rng.integers(0, 50, 1000)
    >>> own = rng.normal(size=50)[store] + rng.normal(size=1000)
    >>> are_names(store.astype(float), own), are_names(store.astype(float), np.sin(store / 10))
    (True, False)
    """
    known = ~np.isnan(values)
    codes = np.unique(values[known], return_inverse=True)[1]
    left = residuals[known] - np.median(residuals[known])
    reach = _FAR * float(np.median(np.abs(left))) / 0.6745  # that single rows have no more say
    left = np.clip(left, -reach, reach)
    left -= left.mean()
    rows = np.bincount(codes).astype(np.float64)
    sums, squares = np.bincount(codes, left), np.bincount(codes, left**2)
    variance = float(squares.sum() / rows.sum())
    repeated = rows > 1
    # Each row counts once, by the mean over the others of its value.
    same = (sums[repeated] ** 2 - squares[repeated]) / (rows[repeated] - 1)
    count = float(rows[repeated].sum())
    if not variance or not count:
        return False
    covariance = float(same.sum()) / count
    error = float(np.sqrt(((same - covariance * rows[repeated]) ** 2).sum())) / count
    by_chance = variance * float(np.sqrt(2 * (rows[repeated] / (rows[repeated] - 1)).sum())) / count
    share = 1.0 / np.maximum(rows[:-1], rows[1:])
    beside = float((share * sums[:-1] * sums[1:]).sum() / (share * rows[:-1] * rows[1:]).sum())
    excess = covariance - max(beside, 0.0)
    return excess > max(_SHARE * variance, _BEYOND_DOUBT * by_chance, _CLEAR * error)


def distinct_rows(X: FloatArray) -> NDArray[np.intp]:
    """The first of the rows that are the same in all inputs."""
    rows = np.ascontiguousarray(X).view(np.dtype((np.void, X.dtype.itemsize * X.shape[1])))
    return np.sort(np.unique(rows.ravel(), return_index=True)[1])


def columns_of_names(X: FloatArray, columns: dict[int, FloatArray], y: FloatArray) -> list[int]:
    """Keys of the columns, NaN where they are missing, whose numbers are also names.

    ``X`` are all inputs, ``columns`` those of numbers by any key.
    """
    if X.shape[1] > _MOST_INPUTS:
        return []
    candidates = {key: values for key, values in columns.items() if may_be_names(values)}
    if not candidates:
        return []
    rows = distinct_rows(X)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[: 2 * _ROWS])
    residuals = smooth_residuals(X[rows], y[rows])
    return [key for key, values in candidates.items() if are_names(values[rows], residuals)]
