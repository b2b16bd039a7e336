"""Scorers for scikit-learn's searches and cross-validation, negated so that greater is better.

Pass them as ``scoring`` to ``GridSearchCV`` or ``cross_val_score``. The estimator needs
``predict_interval`` or ``predict_dist``, alone or as the last step of a ``Pipeline``.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from calipers.metrics._distributions import crps
from calipers.metrics._intervals import interval_score


def neg_interval_score(
    estimator: object,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    coverage: float | None = None,
) -> float:
    """Negative interval score of an estimator's intervals, in the target's unit.

    Parameters
    ----------
    estimator : estimator with ``predict_interval(X, coverage=...)`` and ``coverage``
        A fitted estimator, or a pipeline that ends with one.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Inputs and targets.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.
    coverage : float, optional
        Nominal probability of the intervals, by default the estimator's ``coverage``. A search over
        ``coverage`` must fix it for all candidates:
        ``functools.partial(neg_interval_score, coverage=0.9)``.

    Examples
    --------
    >>> class Constant:
    ...     def predict_interval(self, X, coverage):
    ...         return np.tile([0.0, 2.0], (len(X), 1))
    >>> neg_interval_score(Constant(), [[0], [0]], [1, 2.5], coverage=0.5)
    -3.0
    """
    last, inputs = _last_step(estimator, X)
    if coverage is None:
        coverage, bounds = last.coverage, last.predict_interval(inputs)
    else:
        bounds = last.predict_interval(inputs, coverage=coverage)
    lower, upper = np.asarray(bounds).T
    return -interval_score(y, lower, upper, coverage=coverage, sample_weight=sample_weight)


def neg_crps(
    estimator: object, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Negative CRPS of an estimator's predictive distributions, in the target's unit.

    Parameters
    ----------
    estimator : estimator with ``predict_dist(X)``
        A fitted estimator, or a pipeline that ends with one.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Inputs and targets.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.
    """
    last, inputs = _last_step(estimator, X)
    return -crps(y, last.predict_dist(inputs), sample_weight=sample_weight)


def _last_step(estimator: object, X: ArrayLike) -> tuple[Any, Any]:
    """Last step of a pipeline and its inputs, since a pipeline does not expose our methods."""
    if isinstance(estimator, Pipeline):
        return estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X
    return estimator, X
