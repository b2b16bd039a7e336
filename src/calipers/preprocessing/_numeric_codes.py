r"""Detection of numeric codes: numeric columns whose equal values share more than nearby values do.

Examples are store numbers, postcodes, or the pressure on a day on which many rows were taken: rows
with the same value have something in common that rows with nearby values do not have. Trees find
that; networks, which are smooth functions, do not. Numeric codes are detected by the residuals
:math:`r` of a smooth function of all inputs. The covariance of two rows with the same
value, less that of two rows with neighbouring values, is the variance that the value explains as a
category, relative to the unexplained variance:

.. math:: \rho = \frac{\overline{r_i r_j}_{x_i = x_j} - \overline{r_i r_j}_{x_i \to x_j}}
          {\overline{r_i^2}}

Duplicated rows would always show such an effect, and are counted once.
"""

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray

_FEATURES = 256  # random frequencies of the smooth function
_PENALTIES = 10.0 ** np.arange(-2, 4)
_CLIP = 4.0  # standard deviations at which inputs and residuals are clipped
_ROWS = 5_000  # rows that the smooth function is fitted to; it predicts the others
_MIN_ROWS = 200
_MAX_INPUTS = 300  # the time to fit the smooth function grows as the cube of their number
_MIN_VALUES = 10  # a column must have more distinct values
_MIN_REPEATS = 2.0  # rows per value
_MIN_EXPLAINED = 0.1  # fraction of the unexplained variance that codes must explain
_NOT_BY_CHANCE = 6.0  # standard errors under the hypothesis that values are not codes
_AS_CODES = 3.0  # standard errors under the hypothesis that they are


def smooth_residuals(X: FloatArray, y: FloatArray) -> FloatArray:
    """Residuals of a smooth function of the inputs, each from a fit without that row's target.

    The function is a ridge regression on the inputs and random cosines of them, with the penalty
    of the lowest leave-one-out error. Residuals are in standard deviations of the targets.
    """
    rng = np.random.default_rng(0)
    train = np.sort(rng.permutation(len(y))[:_ROWS])
    # Divided by their largest value, since squares might overflow.
    X = X / np.maximum(np.abs(X).max(axis=0, initial=0.0), np.finfo(float).tiny)
    center, scale = X[train].mean(axis=0), X[train].std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    length = rng.gamma(2.0, 0.7, _FEATURES) / np.sqrt(X.shape[1])
    frequencies = rng.normal(size=(X.shape[1], _FEATURES)) * length
    phases = rng.uniform(0, 2 * np.pi, _FEATURES)

    def features(rows: NDArray[np.intp]) -> FloatArray:
        Z = np.clip((X[rows] - center) / scale, -_CLIP, _CLIP)
        cosines = np.sqrt(2) * np.cos(Z @ frequencies + phases)
        return np.column_stack([np.ones(len(Z)), Z, cosines])

    y = y / (float(np.abs(y).max(initial=0.0)) or 1.0)
    target = (y - y[train].mean()) / (y[train].std() or 1.0)
    design = features(train)
    eigenvalues, eigenvectors = np.linalg.eigh(design.T @ design)
    rotated = design @ eigenvectors
    moments = rotated.T @ target[train]
    best = np.inf
    for penalty in _PENALTIES:
        inverse = 1.0 / (np.maximum(eigenvalues, 0.0) + penalty)
        leverage = np.minimum(rotated**2 @ inverse, 0.99)
        errors = (target[train] - rotated @ (inverse * moments)) / (1.0 - leverage)
        if (error := float(np.mean(errors**2))) < best:
            best, best_errors, weights = error, errors, eigenvectors @ (inverse * moments)
    residuals = np.empty(len(y))
    residuals[train] = best_errors
    held_out = np.setdiff1d(np.arange(len(y)), train)
    for start in range(0, len(held_out), _ROWS):
        rows = held_out[start : start + _ROWS]
        residuals[rows] = target[rows] - features(rows) @ weights
    return residuals


def may_be_codes(values: FloatArray) -> bool:
    """Whether values repeat, and are not so few that networks can learn each of them anyway."""
    present = values[~np.isnan(values)]
    distinct = len(np.unique(present))
    enough_rows = len(present) >= max(_MIN_ROWS, _MIN_REPEATS * distinct)
    return enough_rows and distinct > _MIN_VALUES


def are_codes(values: FloatArray, residuals: FloatArray) -> bool:
    """Whether residuals of equal values are clearly more alike than those of neighbouring values.

    >>> rng = np.random.default_rng(0)
    >>> store = rng.integers(0, 50, 1000)
    >>> effects = rng.normal(size=50)[store] + rng.normal(size=1000)
    >>> are_codes(store.astype(float), effects), are_codes(store.astype(float), np.sin(store / 10))
    (True, False)
    """
    present = ~np.isnan(values)
    codes = np.unique(values[present], return_inverse=True)[1]
    r = residuals[present] - np.median(residuals[present])
    limit = _CLIP * float(np.median(np.abs(r))) / 0.6745  # so that single rows do not dominate
    r = np.clip(r, -limit, limit)
    r -= r.mean()
    rows = np.bincount(codes).astype(np.float64)
    sums, squares = np.bincount(codes, r), np.bincount(codes, r**2)
    variance = float(squares.sum() / rows.sum())
    repeated = rows > 1
    # Sum over the rows of a value of r_i times the mean r_j of its other rows.
    same = (sums[repeated] ** 2 - squares[repeated]) / (rows[repeated] - 1)
    count = float(rows[repeated].sum())
    if not variance or not count:
        return False
    covariance = float(same.sum()) / count
    error = float(np.sqrt(((same - covariance * rows[repeated]) ** 2).sum())) / count
    by_chance = variance * float(np.sqrt(2 * (rows[repeated] / (rows[repeated] - 1)).sum())) / count
    weight = 1.0 / np.maximum(rows[:-1], rows[1:])
    neighbours = float(
        (weight * sums[:-1] * sums[1:]).sum() / (weight * rows[:-1] * rows[1:]).sum()
    )
    excess = covariance - max(neighbours, 0.0)
    return excess > max(_MIN_EXPLAINED * variance, _NOT_BY_CHANCE * by_chance, _AS_CODES * error)


def distinct_rows(X: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that do not duplicate an earlier row."""
    rows = np.ascontiguousarray(X).view(np.dtype((np.void, X.dtype.itemsize * X.shape[1])))
    return np.sort(np.unique(rows.ravel(), return_index=True)[1])


def numeric_code_columns(X: FloatArray, columns: dict[int, FloatArray], y: FloatArray) -> list[int]:
    """Keys of the columns that are numeric codes.

    ``X`` holds all inputs, ``columns`` the numeric columns by any key, NaN where they are missing.
    """
    if X.shape[1] > _MAX_INPUTS:
        return []
    candidates = {key: values for key, values in columns.items() if may_be_codes(values)}
    if not candidates:
        return []
    rows = distinct_rows(X)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[: 2 * _ROWS])
    residuals = smooth_residuals(X[rows], y[rows])
    return [key for key, values in candidates.items() if are_codes(values[rows], residuals)]
