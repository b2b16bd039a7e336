"""Does the epistemic variance detect rows unlike those of training? A test with clusters left out.

The rows of a dataset are divided into five clusters of their standardised inputs. In each trial,
one cluster is left out; nine tenths of the other rows are for training and one tenth for testing.
Every method then scores the test rows and as many rows of the cluster: the AUROC says whether the
score tells them apart, and the area under the risk-coverage curve whether it ranks errors.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import roc_auc_score

from calipers.bank import Plan, Table, spawn_seeds
from calipers.datasets import load
from calipers_study.attempts import train_networks
from calipers_study.baselines import BASELINES
from calipers_study.measures import mixture
from calipers_study.settings import load_settings, settings_record
from calipers_study.splits import Split
from calipers_study.store import StoreEntry
from calipers_study.training import trial_arrays
from calipers_study.translation import program_of, training_of

FloatArray = NDArray[np.float64]
Row = dict[str, Any]

_CLUSTERS = 5


def cluster_splits(X: FloatArray, *, seed: int = 0) -> list[Split]:
    """Trials that each leave a cluster out; the first half of ``test`` is like the training rows.

    A cluster of more than half of the rows is not left out.
    """
    spread = X.std(axis=0)
    scaled = (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    labels = KMeans(_CLUSTERS, n_init=4, random_state=seed).fit_predict(scaled)
    rng = np.random.default_rng(seed)
    splits = []
    for cluster in range(_CLUSTERS):
        inside = rng.permutation(np.flatnonzero(labels == cluster))
        rest = rng.permutation(np.flatnonzero(labels != cluster))
        size = min(len(rest) // 10, len(inside))
        if 2 * len(inside) > len(X) or size < 2:
            continue
        splits.append(Split(rest[len(rest) // 10 :], np.concatenate([rest[:size], inside[:size]])))
    return splits


def risk_area(score: FloatArray, error: FloatArray) -> float:
    """Area under the risk-coverage curve, relative to the mean error.

    Rows are accepted in the order of their scores; the risk is the mean error of accepted rows. A
    score without any information has the area 1.

    Examples
    --------
    >>> risk_area(np.array([1.0, 2.0]), np.array([0.0, 2.0]))
    0.5
    """
    ranked = error[np.argsort(score, kind="stable")]
    return float((np.cumsum(ranked) / np.arange(1, len(error) + 1)).mean() / error.mean())


def shift_rows(method: str, dataset: str, *, seed: int = 0) -> list[Row]:
    """Train a method without each cluster in turn, and measure its scores.

    Parameters
    ----------
    method : {"qd+", "mve", "mc-dropout", "certificates"}
        The method whose scores are measured.
    dataset : str
        Name of the dataset.
    seed : int
        Seed of clusters, splits and networks.
    """
    data = load(dataset)
    splits = cluster_splits(data.X, seed=seed)
    if method in ("qd+", "mve"):
        found = _ensembles(method, dataset, splits, seed)
    else:
        baseline, own = BASELINES[method]
        settings = load_settings(own, dataset)
        found = []
        for one in baseline(data.X, data.y, splits, settings, seed=seed):
            upper, lower = one.prediction.upper, one.prediction.lower
            assert upper is not None and lower is not None  # noqa: S101, PT018
            scores = {"epistemic": one.epistemic, "width": upper - lower}
            found.append((one.prediction.point, scores))
    rows = []
    for trial, (split, (point, scores)) in enumerate(zip(splits, found, strict=True)):
        error = ((point - data.y[split.test]) / data.y.std()) ** 2
        left_out = np.arange(len(error)) >= len(error) // 2
        for name, score in scores.items():
            rows.append({
                "method": method, "score": name, "dataset": dataset, "trial": trial,
                "AUROC": float(roc_auc_score(left_out, score)),
                "risk area": risk_area(score, error),
                "MSE like training": float(error[~left_out].mean()),
                "MSE left out": float(error[left_out].mean()),
            })  # fmt: skip
    return rows


def _ensembles(
    method: str, dataset: str, splits: list[Split], seed: int
) -> list[tuple[FloatArray, dict[str, FloatArray]]]:
    """Points, and as scores the variance of the members' means and that of their mixture."""
    data, settings = load(dataset), load_settings(method, dataset)
    table = Table.from_arrays(data.X, data.y)
    numbers = training_of(settings)
    seeds = spawn_seeds((seed, len(splits)), len(splits) * settings.members)
    plans = [
        Plan(seeds[trial * settings.members + member], split.train, settings=numbers)
        for trial, split in enumerate(splits)
        for member in range(settings.members)
    ]
    bank = train_networks(program_of(settings, data.X.shape[1]), table, plans, n_jobs=-1)
    found = []
    for trial, split in enumerate(splits):
        mine = bank[bank.numbers // settings.members == trial]
        arrays = trial_arrays(settings, mine, data, split)
        entry = StoreEntry({"settings": settings_record(settings)}, arrays)
        distribution = mixture(entry)
        name = "mean" if method == "mve" else "point"
        points = arrays[name].astype(np.float64).mean(axis=0) * data.y.std() + data.y.mean()
        scores = {"epistemic": distribution.epistemic_var, "total": distribution.var}
        found.append((points, scores))
    return found
