"""Predict intervals on a stream with the peers, one step ahead: MAPIE and online-conformal.

Both wrap one of two learners: scikit-learn's gradient boosting, or a linear model. The learners'
predictions for the stream are computed once and looked up by row number, so only the packages' own
work is repeated at each step.
"""

import warnings

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

BASES = {
    "boosting": HistGradientBoostingRegressor(random_state=0),
    "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 2, 13))),
}
CALIBRATION = 0.2  # fraction of the training rows, the last, whose residuals start online-conformal


class LookedUp(RegressorMixin, BaseEstimator):
    """A regressor of row numbers, which predicts all rows once."""

    def __init__(self, estimator=None, X=None):
        self.estimator = estimator
        self.X = X

    def fit(self, rows, y):
        """Fit the regressor on some rows, and predict all."""
        own = clone(self.estimator).fit(self.X[rows[:, 0].astype(int)], y)
        self.table_ = own.predict(self.X)
        return self

    def predict(self, rows):
        """Look up what was predicted."""
        return self.table_[rows[:, 0].astype(int)]


def mapie(series, first, base, method, coverage):
    """Bounds by ``TimeSeriesRegressor``, its scores updated at every step."""
    from mapie.regression import TimeSeriesRegressor
    from mapie.subsample import BlockBootstrap

    warnings.simplefilter("ignore")
    X, y, start = series.X[first:], series.y[first:], series.start - first
    rows = np.arange(len(y), dtype=float)[:, None]
    cv = BlockBootstrap(n_resamplings=10, length=48, overlapping=True, random_state=0)
    lookup = LookedUp(BASES[base], X)
    model = TimeSeriesRegressor(lookup, method=method, cv=cv, agg_function="mean", n_jobs=1)
    model.fit(rows[:start], y[:start])
    bounds = np.empty((len(y) - start, 2))
    for t in range(start, len(y)):
        if t > start:
            model.update(rows[t - 1 : t], y[t - 1 : t], ensemble=True)
            if method == "aci":
                model.adapt_conformal_inference(
                    rows[t - 1 : t], y[t - 1 : t], ensemble=True, gamma=0.05
                )
        _, found = model.predict(
            rows[t : t + 1],
            ensemble=True,
            confidence_level=coverage,
            allow_infinite_bounds=method == "aci",
        )
        bounds[t - start] = found[0, :, 0]
    return np.clip(bounds, *_plausible(y[:start]))


def _plausible(y):
    """Values beyond which no bound goes, as infinite ones would: three times the range of `y`."""
    reach = y.max() - y.min()
    return y.min() - reach, y.max() + reach


def online_conformal(series, first, base, method, coverage):
    """Bounds by a predictor of online-conformal, around points of a learner fitted once."""
    from online_conformal.faci import FACI
    from online_conformal.nex_conformal import NExConformal
    from online_conformal.ogd import ScaleFreeOGD
    from online_conformal.saocp import SAOCP
    from online_conformal.utils import Residuals

    kinds = {"saocp": SAOCP, "faci": FACI, "nex": NExConformal, "sf-ogd": ScaleFreeOGD}
    X, y, start = series.X[first:], series.y[first:], series.start - first
    split = int((1 - CALIBRATION) * start)
    calibration = y[split:start] - clone(BASES[base]).fit(X[:split], y[:split]).predict(
        X[split:start]
    )
    point = clone(BASES[base]).fit(X[:start], y[:start]).predict(X[start:])
    residuals = Residuals(1)
    residuals.extend(1, calibration.tolist())
    model = kinds[method](None, None, coverage=coverage, horizon=1, calib_residuals=residuals)
    bounds = np.empty((len(point), 2))
    for t, (truth, centre) in enumerate(zip(y[start:], point, strict=True)):
        bounds[t] = centre + np.asarray(model.predict(1))
        model.update(pd.Series([truth]), pd.Series([centre]), horizon=1)
    return bounds


METHODS = {
    f"{package.__name__} {method} {base}": (package, base, method)
    for package, methods in (
        (mapie, ("enbpi", "aci")),
        (online_conformal, ("saocp", "faci", "nex", "sf-ogd")),
    )
    for method in methods
    for base in BASES
}
