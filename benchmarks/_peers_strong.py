"""The strongest peers on the package index: tree diffusion, networks for tables, AutoGluon.

Each function imports only what it needs and standardises the target by its training rows. Methods
whose name ends in ``_oof`` have their bounds conformalised by out-of-fold predictions of the same
method. Those ending in ``_cqr`` average the models of the folds and conformalise with the rows that
each of them held out. So no peer loses for lack of calibration.

The CRPS uses the uncorrected draws, since a correction of bounds says nothing about the rest of a
distribution.
"""

import os
import tempfile

import numpy as np
from _peers_forecast import (
    Forecast,
    conformal,
    of_quantiles,
    of_samples,
    quantile_bounds,
    sample_bounds as bounds_of,
    tails,
)

THREADS = 2
FOLDS = 5
DRAWS = 200
TRIALS = 25
SECONDS = 100
DEVICE = os.environ.get("PEERS_DEVICE", "cpu")  # of RealMLP and TabM; "cuda" for a GPU
# Dense and symmetric, the bounds of 50, 80, 90, 95 and 99% and the median among them.
LEVELS = np.round(np.r_[0.005, 0.025:0.9751:0.025, 0.995], 3)


def standardised(draw):
    """Give a function of rows and targets a target of mean 0 and variance 1."""

    def scaled(X, y, X_new, seed):
        mean, scale = y.mean(), y.std()
        return mean + scale * draw(X, (y - mean) / scale, X_new, seed)

    return scaled


def _folds(task):
    from sklearn.model_selection import KFold

    return KFold(FOLDS, shuffle=True, random_state=task.seed).split(task.X)


def plain(draw):
    """A method that draws, unchanged."""
    return lambda task, coverage: of_samples(draw(task.X, task.y, task.X_test, task.seed))


def out_of_fold(draw):
    """A method that draws, fitted on all rows and conformalised by its out-of-fold draws."""

    def forecast(task, coverage):
        held_draws = np.empty((len(task.y), DRAWS))
        for rest, held in _folds(task):
            held_draws[held] = draw(task.X[rest], task.y[rest], task.X[held], task.seed)
        correct = conformal(bounds_of(held_draws), task.y)
        return of_samples(draw(task.X, task.y, task.X_test, task.seed), correct)

    return forecast


@standardised
def treeffuser(X, y, X_new, seed):
    """Draws of Treeffuser with its defaults."""
    from treeffuser import Treeffuser

    model = Treeffuser(seed=seed, n_jobs=THREADS).fit(X, y)
    return np.reshape(model.sample(X_new, n_samples=DRAWS, seed=seed), (DRAWS, -1)).T


@standardised
def diffgbm(X, y, X_new, seed):
    """Draws of DiffGBM with its defaults."""
    from diffgbm import DiffGBM

    model = DiffGBM(seed=seed, n_jobs=THREADS)
    model.fit(X, y)
    return np.reshape(model.sample(X_new, n_samples=DRAWS, seed=seed), (DRAWS, -1)).T


@standardised
def hessboost(X, y, X_new, seed):
    """Draws of hessboost's diffusion with its defaults."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(THREADS))
    from hessboost.diffusion import DiffusionModel, DiffusionParams

    model = DiffusionModel.fit(DiffusionParams(seed=seed), X, y)
    return np.asarray(model.sample(X_new, DRAWS, seed=seed), float)[:, :, 0]


def pytabkit(name):
    """Networks of pytabkit, trained for the pinball loss of `LEVELS`, one per fold."""

    @standardised
    def quantiles(X, y, X_new, seed):
        import logging

        import pytabkit

        for noisy in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        metric = f"multi_pinball({','.join(map(str, LEVELS))})"
        model = getattr(pytabkit, name)(
            device=DEVICE,
            random_state=seed,
            n_threads=THREADS,
            n_cv=1,
            train_metric_name=metric,
            val_metric_name=metric,
        )
        model.fit(X.astype(np.float32), y)
        return np.sort(np.asarray(model.predict(X_new.astype(np.float32)), float), axis=1)

    return lambda task, coverage: _average_of_folds(quantiles, task, LEVELS)


def _average_of_folds(quantiles, task, levels):
    """Mean quantiles of the folds' models, conformalised by the rows that each held out."""
    mean = np.zeros((len(task.X_test), len(levels)))
    held_out = np.empty((len(task.y), len(levels)))
    for rest, held in _folds(task):
        rows = np.concatenate([task.X_test, task.X[held]])
        found = quantiles(task.X[rest], task.y[rest], rows, task.seed)
        mean += found[: len(mean)] / FOLDS
        held_out[held] = found[len(mean) :]
    return of_quantiles(levels, mean, conformal(quantile_bounds(levels, held_out), task.y))


def autogluon(task, coverage):
    """AutoGluon's best quality with its own conformal correction, `SECONDS` for a fit."""
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    names = [f"x{i}" for i in range(task.X.shape[1])]
    table = pd.DataFrame(task.X, columns=names).assign(y=task.y)
    low, high = tails(coverage)
    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor(
            "y",
            problem_type="quantile",
            quantile_levels=[low, 0.5, high],
            path=f"{folder}/model",
            verbosity=0,
        )
        model.fit(
            table,
            time_limit=SECONDS,
            presets="best_quality",
            dynamic_stacking=False,
            calibrate=True,
            num_cpus=THREADS,
            num_gpus=0,
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},  # no Ray
        )
        found = model.predict(pd.DataFrame(task.X_test, columns=names)).to_numpy()
    lower, point, upper = found.T
    return Forecast(point, lambda coverage: (lower, upper))


def _catboost(setting, levels, X, y, X_stop, y_stop, seed):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={','.join(f'{level:.6g}' for level in levels)}",
        iterations=3000,
        thread_count=THREADS,
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
        **setting,
    )
    model.fit(X, y, eval_set=(X_stop, y_stop), early_stopping_rounds=50)
    return model.predict


def _catboost_setting(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
        "depth": trial.suggest_int("depth", 3, 8),
        "l2_leaf_reg": trial.suggest_float("l2_leaf_reg", 0.3, 30, log=True),
        "random_strength": trial.suggest_float("random_strength", 0.1, 10, log=True),
        "bagging_temperature": trial.suggest_float("bagging_temperature", 0, 2),
    }


def _lightgbm(setting, levels, X, y, X_stop, y_stop, seed):
    import lightgbm

    models = [
        lightgbm.train(
            {"objective": "quantile", "alpha": level, "verbose": -1, "num_threads": THREADS}
            | {"seed": seed, "bagging_freq": 1, **setting},
            lightgbm.Dataset(X, y),
            3000,
            valid_sets=[lightgbm.Dataset(X_stop, y_stop)],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )
        for level in levels
    ]
    return lambda X_new: np.column_stack([model.predict(X_new) for model in models])


def _lightgbm_setting(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 4, 255, log=True),
        "min_child_samples": trial.suggest_int("min_child_samples", 2, 100, log=True),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1),
        "bagging_fraction": trial.suggest_float("bagging_fraction", 0.4, 1),
        "lambda_l2": trial.suggest_float("lambda_l2", 1e-3, 30, log=True),
    }


def tuned(fit, propose):
    """Boosted quantiles at the best of `TRIALS` settings, averaged over folds, conformalised.

    Settings are compared by the pinball loss of both bounds and the median on a fifth of the
    training rows. The rows that a fold holds out stop its training early as well.
    """

    def forecast(task, coverage):
        import optuna
        from sklearn.model_selection import train_test_split

        low, high = tails(coverage)
        levels = np.array([low, 0.5, high])
        parts = train_test_split(task.X, task.y, test_size=0.2, random_state=task.seed)
        X, X_held, y, y_held = parts

        def loss(trial):
            predict = fit(propose(trial), levels, X, y, X_held, y_held, task.seed)
            error = y_held[:, None] - predict(X_held)
            return np.mean(np.maximum(levels * error, (levels - 1) * error))

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=task.seed))
        study.optimize(loss, TRIALS)
        found = np.zeros((len(task.X_test), 3))
        held_out = np.empty((len(task.y), 3))
        for rest, held in _folds(task):
            rows = task.X[rest], task.y[rest], task.X[held], task.y[held]
            predict = fit(study.best_params, levels, *rows, task.seed)
            found += np.sort(predict(task.X_test), axis=1) / FOLDS
            held_out[held] = np.sort(predict(task.X[held]), axis=1)
        correct = conformal(lambda coverage: (held_out[:, 0], held_out[:, 2]), task.y)
        return Forecast(found[:, 1], correct(lambda coverage: (found[:, 0], found[:, 2])))

    return forecast


catboost_tuned = tuned(_catboost, _catboost_setting)
lightgbm_tuned = tuned(_lightgbm, _lightgbm_setting)
