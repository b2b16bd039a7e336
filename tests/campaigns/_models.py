"""Small models with every part that a folder can have, fitted by the code of now."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

from calipers import IntervalRegressor, load
from calipers.calibration import WidthCalibration
from calipers.multitarget import MultiTargetRegressor
from calipers.networks import MLP
from calipers.objectives import Density
from calipers.optimizers import Adam

from ._tally import FOLDERS

OLD = ("default", "conformal", "paper", "sem", "upgraded", "table")
"""Folders of version 0.1."""


@dataclass(frozen=True)
class Example:
    """A model in a folder, rows that it takes, and how it is loaded."""

    folder: Path
    rows: Any
    load: Callable[..., Any] = load
    code: dict[str, Any] = field(default_factory=dict)


def old_models() -> dict[str, Example]:
    """Models of version 0.1."""
    table = pd.read_csv(FOLDERS / "rows.csv")
    numbers = table[["a", "b", "c"]].fillna(0.0).to_numpy()
    return {n: Example(FOLDERS / n, table if n == "table" else numbers) for n in OLD}


def settings(**more: Any) -> dict[str, Any]:
    """Parameters of a small model."""
    small = MLP(hidden_layers=(4,), frequencies=2, trees=0)
    common = {"n_networks": 4, "cv": 2, "epochs": 3, "random_state": 0, "verbose": 0}
    soon = {"patience": None, "optimizer": Adam(averaging=0.0)}  # compiled in half the time
    return {"network": small, **common, **soon, **more}


def fit_with_cache(cache: Path, out: Path) -> None:
    """Fit, which compiles programs or finds them in a folder, and write intervals of the model."""
    os.environ["CALIPERS_CACHE"] = str(cache)
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = IntervalRegressor(**settings(n_jobs=1)).fit(X, X[:, 0])
    out.write_bytes(model.predict_interval(X, coverage=0.5).tobytes())


def new_models(root: Path) -> dict[str, Example]:
    """Models of now, saved under a folder; each has parts that the others lack."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = X[:, 0] + rng.normal(0, 0.3, 120)
    frame = pd.DataFrame(X.copy(), columns=["a", "b", "c"])  # pandas before 3 would share X
    shop = rng.integers(0, 40, 120)
    frame["shop"] = np.char.add("shop ", shop.astype(str))
    frame["day"] = pd.date_range("2024-01-01", periods=120).astype(str)
    frame.loc[3, "a"] = np.nan
    store = rng.permutation(np.arange(240) % 20)
    stores = pd.DataFrame({"store": store, "size": rng.normal(size=240)})
    sold = rng.normal(size=20)[store] + rng.normal(0, 0.1, 240)

    def fit(target: Any, rows: Any = X, **more: Any) -> IntervalRegressor:
        return IntervalRegressor(**settings(**more)).fit(rows, target)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width = fit(y)
        factors = WidthCalibration(np.array([-1.0, 0.0]), np.array([0.9, 1.0, 1.2]), 120)
        calibrations = (factors, *width.ensemble_.calibrations)
        width.ensemble_ = replace(width.ensemble_, calibrations=calibrations)
        stream = fit(y)
        stream.update(X[:40], y[:40] + 2)
        asinh = fit(np.sinh(2 * y), loss=Density(scale="asinh"))
        asinh.update(X[:40], np.sinh(2 * y[:40]) + 2)
        points = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)  # of fixed bits
        both = MultiTargetRegressor(IntervalRegressor(**settings()))
        models = {
            "width": width,
            "counts": fit(rng.poisson(3.0, 120)),
            "censored": fit(np.clip(y, 0, 2), bounds=(0, None)),
            "components": fit(np.exp(y), loss=Density(components=3, scale="log")),
            "asinh": asinh,
            "encodings": fit(shop + y, frame),
            "names": fit(sold, stores),
            "pieces": fit(y, network=MLP(hidden_layers=(4,), frequencies=2, bins=3, trees=0)),
            "trees": fit(y, network=MLP(hidden_layers=(4,), frequencies=2, trees=3)),
            "stream": stream,
            "kinds": fit(y).conformalize(X, y, by=0),
            "shifted": fit(y).conformalize(X, y, shifted_to=X + 0.5),
            "wrapped": IntervalRegressor(**settings()).upgrade(points, X, y),
            "targets": both.fit(X, np.column_stack([y, X[:, 1]])),
        }
    tables, found = {"encodings": frame, "names": stores}, {}
    for name, model in models.items():
        model.save(root / name)
        found[name] = Example(root / name, tables.get(name, X))
    found["wrapped"] = replace(found["wrapped"], code={"points": points})
    found["targets"] = replace(found["targets"], load=MultiTargetRegressor.load)
    return found
