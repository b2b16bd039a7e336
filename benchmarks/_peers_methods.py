"""The compared methods, one small function each, importing only the library it needs.

A method takes a :class:`_peers_data.Task` and a coverage and returns a
:class:`_peers_forecast.Forecast` for the test rows. It must not look at the test targets.
"""

from collections.abc import Callable
from dataclasses import dataclass

import _peers_strong as strong
import numpy as np
from _peers_data import DENSE_LEVELS, Task, quantile_crps
from _peers_forecast import Forecast, conformal_quantile, fixed, normal, symmetric, tails

THREADS = 2
FOLDS = 5
NETWORKS = 5
PATIENCE = 50


@dataclass(frozen=True)
class Method:
    """A way to get intervals.

    Attributes
    ----------
    forecast : callable
        From a task and a coverage to a :class:`Forecast`.
    packages : tuple of str
        Distributions whose versions matter to the result.
    any_coverage : bool
        Whether one fit gives intervals of every coverage.
    """

    forecast: Callable[[Task, float], Forecast]
    packages: tuple[str, ...]
    any_coverage: bool = False


def _folds(task):
    from sklearn.model_selection import KFold

    return KFold(FOLDS, shuffle=True, random_state=task.seed).split(task.X)


def _out_of_fold(predict, task):
    """Predictions for every training row by a model of the other folds.

    `predict` maps (X, y, X_new, seed) to an array with one row per row of X_new.
    """
    parts = [
        (held, predict(task.X[rest], task.y[rest], task.X[held], task.seed))
        for rest, held in _folds(task)
    ]
    order = np.concatenate([held for held, _ in parts])
    return np.concatenate([values for _, values in parts])[np.argsort(order)]


def _holdout(X, y, *, share, seed):
    from sklearn.model_selection import train_test_split

    return train_test_split(X, y, test_size=share, random_state=seed)


def mapie_cqr_lgbm(task, coverage):
    """Conformalised quantile regression over LightGBM."""
    from lightgbm import LGBMRegressor
    from mapie.regression import ConformalizedQuantileRegressor

    X, X_held, y, y_held = _holdout(task.X, task.y, share=0.2, seed=task.seed)
    base = LGBMRegressor(
        objective="quantile", alpha=0.5, random_state=task.seed, n_jobs=THREADS, verbose=-1
    )
    model = ConformalizedQuantileRegressor(base, confidence_level=coverage)
    model.fit(X, y).conformalize(X_held, y_held)
    point, bounds = model.predict_interval(task.X_test, allow_infinite_bounds=True)
    return fixed(point, bounds[:, 0, 0], bounds[:, 1, 0])


def mapie_cvplus_hgb(task, coverage):
    """CV+ over scikit-learn's histogram gradient boosting."""
    from mapie.regression import CrossConformalRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor

    base = HistGradientBoostingRegressor(random_state=task.seed)
    model = CrossConformalRegressor(
        base, confidence_level=coverage, method="plus", cv=FOLDS, random_state=task.seed
    )
    model.fit_conformalize(task.X, task.y)
    point, bounds = model.predict_interval(task.X_test, allow_infinite_bounds=True)
    return fixed(point, bounds[:, 0, 0], bounds[:, 1, 0])


def _catboost(loss, X, y, seed):
    from catboost import CatBoostRegressor

    X, X_held, y, y_held = _holdout(X, y, share=0.1, seed=seed)
    model = CatBoostRegressor(
        loss_function=loss,
        random_seed=seed,
        thread_count=THREADS,
        verbose=False,
        allow_writing_files=False,
    )
    return model.fit(X, y, eval_set=(X_held, y_held), early_stopping_rounds=PATIENCE)


def _catboost_quantiles(coverage):
    low, high = tails(coverage)
    loss = f"MultiQuantile:alpha={low:.6g},0.5,{high:.6g}"
    return lambda X, y, X_new, seed: _catboost(loss, X, y, seed).predict(X_new)


def _catboost_moments(X, y, X_new, seed):
    model = _catboost("RMSEWithUncertainty", X, y, seed)
    mean, variance = model.predict(X_new, prediction_type="RMSEWithUncertainty").T
    return np.column_stack([mean, np.sqrt(variance)])


def catboost_mq(task, coverage):
    """CatBoost, both bounds and the median from one model."""
    lower, point, upper = _catboost_quantiles(coverage)(task.X, task.y, task.X_test, task.seed).T
    return fixed(point, lower, upper)


def catboost_mq_cqr(task, coverage):
    """The same, both bounds moved by the conformal quantile of out-of-fold errors."""
    predict = _catboost_quantiles(coverage)
    low, _, high = _out_of_fold(predict, task).T
    shift = conformal_quantile(np.maximum(low - task.y, task.y - high), coverage)
    lower, point, upper = predict(task.X, task.y, task.X_test, task.seed).T
    return fixed(point, lower - shift, upper + shift)


def catboost_unc(task, coverage):
    """CatBoost, mean and variance of a normal."""
    return normal(*_catboost_moments(task.X, task.y, task.X_test, task.seed).T)


def catboost_unc_cal(task, coverage):
    """The same, widths from the conformal quantile of out-of-fold errors in standard deviations."""
    mean, scale = _out_of_fold(_catboost_moments, task).T
    scores = np.abs(task.y - mean) / scale
    return symmetric(*_catboost_moments(task.X, task.y, task.X_test, task.seed).T, scores)


def ngboost_normal(task, coverage):
    """NGBoost with a normal distribution, at its best number of trees on held-out rows."""
    from ngboost import NGBRegressor
    from ngboost.learners import default_tree_learner
    from sklearn.base import clone

    X, X_held, y, y_held = _holdout(task.X, task.y, share=0.1, seed=task.seed)
    # NGBoost does not hand its random state to its trees, which break ties at random.
    tree = clone(default_tree_learner).set_params(random_state=task.seed)
    model = NGBRegressor(Base=tree, random_state=task.seed, verbose=False)
    model.fit(X, y, X_val=X_held, Y_val=y_held, early_stopping_rounds=PATIENCE)
    params = model.pred_dist(task.X_test, max_iter=model.best_val_loss_itr).params
    return normal(params["loc"], params["scale"])


def quantile_forest(task, coverage):
    """Quantile regression forest; the point is the forest's mean."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(random_state=task.seed, n_jobs=THREADS)
    model.fit(task.X, task.y)

    def interval(coverage):
        return model.predict(task.X_test, quantiles=list(tails(coverage))).T

    def crps(target):
        return quantile_crps(model.predict(task.X_test, quantiles=list(DENSE_LEVELS)), target)

    return Forecast(model.predict(task.X_test, quantiles="mean"), interval, crps)


def lgbm_quantile(task, coverage):
    """LightGBM, one model per bound and one for the median."""
    from lightgbm import LGBMRegressor

    low, high = tails(coverage)
    lower, point, upper = (
        LGBMRegressor(
            objective="quantile", alpha=level, random_state=task.seed, n_jobs=THREADS, verbose=-1
        )
        .fit(task.X, task.y)
        .predict(task.X_test)
        for level in (low, 0.5, high)
    )
    return fixed(point, lower, upper)


def _mlp(job):
    """Train one network and predict; a separate function so that another process can run it."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    X, y, X_new, seed = job
    model = make_pipeline(StandardScaler(), MLPRegressor(max_iter=1000, random_state=seed))
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y).predict(X_new)


def mlp_conformal(task, coverage):
    """Mean of five scikit-learn networks, widths from out-of-fold residuals of such ensembles."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    folds = list(_folds(task))
    parts = [(task.X[rest], task.y[rest], task.X[held]) for rest, held in folds]
    parts.append((task.X, task.y, task.X_test))
    jobs = [(*part, NETWORKS * task.seed + k) for part in parts for k in range(NETWORKS)]
    # A fresh interpreter, because forking a process that has used OpenMP can hang.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(THREADS, mp_context=spawn) as pool:
        members = list(pool.map(_mlp, jobs))
    means = [np.mean(members[i : i + NETWORKS], axis=0) for i in range(0, len(members), NETWORKS)]
    scores = [
        np.abs(task.y[held] - mean) for (_, held), mean in zip(folds, means[:-1], strict=True)
    ]
    return symmetric(means[-1], np.ones(len(task.X_test)), np.concatenate(scores))


def calipers(task, coverage):
    """``IntervalRegressor`` with its defaults, on the target in its unit."""
    from calipers import IntervalRegressor
    from calipers.metrics import shared_coverage

    model = IntervalRegressor(random_state=task.seed).fit(task.X, task.y_unit)

    def interval(coverage):
        bounds = np.asarray(model.predict_interval(task.X_test, coverage=coverage))
        return (bounds.T - task.mean) / task.unit

    def crps(target):
        values = model.predict_dist(task.X_test).crps(task.mean + task.unit * target)
        return np.asarray(values) / task.unit

    def shared(target, coverage):
        dist, own = model.predict_dist(task.X_test), task.mean + task.unit * target
        return shared_coverage(dist.cdf_below(own), dist.cdf(own), coverage).mean()

    point = (np.asarray(model.predict(task.X_test)) - task.mean) / task.unit
    atoms = hasattr(model.predict_dist(task.X_test[:1]), "cdf_below")
    return Forecast(point, interval, crps, shared if atoms else None)


METHODS = {
    "mapie_cqr_lgbm": Method(mapie_cqr_lgbm, ("mapie", "lightgbm", "scikit-learn")),
    "mapie_cvplus_hgb": Method(mapie_cvplus_hgb, ("mapie", "scikit-learn")),
    "catboost_mq": Method(catboost_mq, ("catboost",)),
    "catboost_mq_cqr": Method(catboost_mq_cqr, ("catboost",)),
    "catboost_unc": Method(catboost_unc, ("catboost",), any_coverage=True),
    "catboost_unc_cal": Method(catboost_unc_cal, ("catboost",), any_coverage=True),
    "ngboost_normal": Method(ngboost_normal, ("ngboost", "scikit-learn"), any_coverage=True),
    "quantile_forest": Method(
        quantile_forest, ("quantile-forest", "scikit-learn"), any_coverage=True
    ),
    "lgbm_quantile": Method(lgbm_quantile, ("lightgbm",)),
    "mlp_conformal": Method(mlp_conformal, ("scikit-learn",), any_coverage=True),
    "treeffuser": Method(
        strong.plain(strong.treeffuser), ("treeffuser", "lightgbm"), any_coverage=True
    ),
    "diffgbm_oof": Method(
        strong.out_of_fold(strong.diffgbm), ("diffgbm", "lightgbm"), any_coverage=True
    ),
    "hessboost_oof": Method(
        strong.out_of_fold(strong.hessboost), ("hessboost",), any_coverage=True
    ),
    "realmlp_cqr": Method(
        strong.pytabkit("RealMLP_TD_Regressor"), ("pytabkit", "torch"), any_coverage=True
    ),
    "tabm_cqr": Method(
        strong.pytabkit("TabM_D_Regressor"), ("pytabkit", "torch"), any_coverage=True
    ),
    "autogluon_best": Method(strong.autogluon, ("autogluon.tabular",)),
    "catboost_tuned_cqr": Method(strong.catboost_tuned, ("catboost", "optuna")),
    "lgbm_tuned_cqr": Method(strong.lightgbm_tuned, ("lightgbm", "optuna")),
    "calipers": Method(calipers, ("calipers", "jax"), any_coverage=True),
}
PEERS = tuple(name for name in METHODS if name != "calipers")
