"""Search for defaults that need no tuning, on training rows alone.

    python benchmarks/defaults.py CANDIDATE... [--datasets ...] [--splits 2] [--out rows.csv]

Every candidate is judged by cross-validation inside the training part of the first splits of each
dataset: networks are trained on four fifths of those rows, stopped early by a tenth of these, and
scored on the fifth that they did not see. Test rows are never read.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from calipers.bank import Plan, Program, Settings, Table, spawn_seeds, train
from calipers.datasets import hernandez_lobato_splits, load
from calipers.ensemble import Ensemble
from calipers.metrics import coverage_rate, interval_score
from calipers.networks import MLP, EmbeddedMLP
from calipers.objectives import LOSSES, LossSettings

DATASETS = ["yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein"]
BASE = {
    "network": EmbeddedMLP(),
    "loss": "interval score",
    "point_weight": 0.3,
    "rate": 0.003,
    "schedule": "cosine",
    "steps": 4000,
    "least_epochs": 20,
    "most_epochs": 400,
    "batch": 64,
    "weight_decay": 0.01,
    "clip": None,
    "robust": False,
    "averaging": 0.0,
}
MEASURES = ("raw_picp", "raw_score", "picp", "score", "mse", "crps")
CANDIDATES = {
    "prototype": {"network": MLP((50, 50)), "weight_decay": 0.0},
    "base": {},
    "nowaves": {"network": MLP((128, 128), "silu")},
    "narrow": {"network": EmbeddedMLP((64, 64))},
    "wide": {"network": EmbeddedMLP((256, 256))},
    "deep": {"network": EmbeddedMLP((128, 128, 128))},
    "relu": {"network": EmbeddedMLP(activation="relu")},
    "waves16": {"network": EmbeddedMLP(waves=16)},
    "spread.05": {"network": EmbeddedMLP(spread=0.05)},
    "spread.5": {"network": EmbeddedMLP(spread=0.5)},
    "crps": {"loss": "crps"},
    "splitnormal": {"loss": "split normal"},
    "normal": {"loss": "normal"},
    "point.1": {"point_weight": 0.1},
    "point.6": {"point_weight": 0.6},
    "rate.001": {"rate": 0.001},
    "rate.01": {"rate": 0.01},
    "wd0": {"weight_decay": 0.0},
    "wd.1": {"weight_decay": 0.1},
    "wd1": {"weight_decay": 1.0},
    "steps10k": {"steps": 10_000, "most_epochs": 1000},
    "batch32": {"batch": 32},
    "batch128": {"batch": 128},
    "batch256": {"batch": 256},
    "clip1": {"clip": 1.0},
    "robust": {"robust": True},
    "sn-ema": {"loss": "split normal", "averaging": 0.99},
    "sn-ema-wd": {"loss": "split normal", "averaging": 0.99, "weight_decay": 0.1},
    "sn-ema-long": {
        "loss": "split normal",
        "averaging": 0.995,
        "steps": 10_000,
        "most_epochs": 1000,
    },
    "sn-ema-r1": {"loss": "split normal", "averaging": 0.99, "rate": 0.001},
    "sn-ema-r10": {"loss": "split normal", "averaging": 0.99, "rate": 0.01},
    "de-ema": {"loss": "density", "averaging": 0.99, "point_weight": 0.5},
    "de-ema-p8": {"loss": "density", "averaging": 0.99, "point_weight": 0.8},
    "de-ema-wd": {"loss": "density", "averaging": 0.99, "point_weight": 0.5, "weight_decay": 0.1},
    "de-ema-r1": {"loss": "density", "averaging": 0.99, "point_weight": 0.5, "rate": 0.001},
    "de-ema-long": {
        "loss": "density",
        "averaging": 0.995,
        "point_weight": 0.5,
        "steps": 10_000,
        "most_epochs": 1000,
    },
    "is-ema": {"averaging": 0.99},
    "is-ema-wd": {"averaging": 0.99, "weight_decay": 0.1},
    "crps-ema": {"loss": "crps", "averaging": 0.99},
    "de-ema-s5": {
        "loss": "density",
        "averaging": 0.99,
        "point_weight": 0.5,
        "network": EmbeddedMLP(spread=0.5),
    },
    "de-ema-relu": {
        "loss": "density",
        "averaging": 0.99,
        "point_weight": 0.5,
        "network": EmbeddedMLP(spread=0.5, activation="relu"),
    },
    **{
        f"de-s{100 * spread:.0f}-p{100 * weight:.0f}": {
            "loss": "density",
            "averaging": 0.995,
            "point_weight": weight,
            "steps": 10_000,
            "most_epochs": 1000,
            "network": EmbeddedMLP(spread=spread),
        }
        for spread in (0.05, 0.2, 0.35, 0.5)
        for weight in (0.5, 0.65, 0.8)
    },
    "de-ema-b256": {"loss": "density", "averaging": 0.99, "point_weight": 0.5, "batch": 256},
    "de-ema-deep": {
        "loss": "density",
        "averaging": 0.99,
        "point_weight": 0.5,
        "network": EmbeddedMLP((128, 128, 128)),
    },
}


def plans_of(table, setting, train_parts, folds, per_fold):
    """Plans, and for each the rows that judge it, for all splits and folds at once."""
    plans, judged = [], []
    for number, rows in enumerate(train_parts):
        rng = np.random.default_rng(number)
        parts = np.array_split(rng.permutation(rows), folds)
        for fold, out in enumerate(parts):
            inside = np.concatenate([p for i, p in enumerate(parts) if i != fold])
            scaling = scaling_of(table, inside, setting["robust"])
            for seed in spawn_seeds((number, fold), per_fold):
                order = np.random.default_rng(seed).permutation(inside)
                stop = len(order) // 10
                batches = -(-(len(order) - stop) // setting["batch"])
                epochs = int(
                    np.clip(
                        setting["steps"] / batches, setting["least_epochs"], setting["most_epochs"]
                    )
                )
                settings = Settings(
                    learning_rate=setting["rate"],
                    weight_decay=setting["weight_decay"],
                    clip_norm=setting["clip"] or np.inf,
                    averaging=setting["averaging"],
                    epochs=epochs,
                    patience=epochs,
                    check_every=max(1, epochs // 100),
                    loss=LossSettings(point_weight=setting["point_weight"]),
                )
                plans.append(Plan(seed, order[stop:], None, order[:stop], None, settings, scaling))
                judged.append((number, fold, out))
    return plans, judged


def scaling_of(table, rows, robust):
    """Scaling by mean and deviation, or by median and quartiles."""
    scaling = table.scaling(rows)
    if robust:
        low, middle, high = np.percentile(table.inputs[rows], [25, 50, 75], axis=0)
        spread = (high - low) / 1.349
        scaling = scaling._replace(
            input_center=middle, input_scale=np.where(spread > 0, spread, scaling.input_scale)
        )
    return scaling


def program_of(setting, in_size):
    """The program that a candidate trains by."""
    return Program(
        setting["network"],
        LOSSES[setting["loss"]],
        in_size,
        setting["batch"],
        setting["schedule"],
        clipping=setting["clip"] is not None,
        averaging=setting["averaging"] > 0,
    )


def judge(names, dataset, splits, folds, per_fold):
    """Measures of several candidates of one program, on rows that the networks did not see."""
    data = load(dataset)
    table = Table.from_arrays(data.X, data.y)
    parts = [split.train for split in hernandez_lobato_splits(dataset)[:splits]]
    settings = [BASE | CANDIDATES[name] for name in names]
    made = [plans_of(table, setting, parts, folds, per_fold) for setting in settings]
    began = time.perf_counter()
    bank = train(
        program_of(settings[0], data.X.shape[1]),
        table,
        [plan for plans, _ in made for plan in plans],
        n_jobs=-1,
        retries=2,
        largest_loss=1e6,
    )
    seconds = time.perf_counter() - began
    size = len(made[0][0])
    for i, name in enumerate(names):
        part = bank[i * size : (i + 1) * size]
        measured = np.mean([measures(part, made[i][1], data, n) for n in range(splits)], axis=0)
        best = [h["epoch"][np.nanargmin(h["valid_loss"])] / len(h) for h in part.histories]
        yield {
            "candidate": name,
            "dataset": dataset,
            **dict(zip(MEASURES, measured.tolist(), strict=True)),
            "best_epoch": float(np.mean(best)),
            "epochs": len(part.histories[0]),
            "seconds": seconds / len(names),
        }


def measures(bank, judged, data, number):
    """MEASURES of one split; intervals are calibrated on the scores of the other folds."""
    answers = []
    for fold in range(1 + max(fold for _, fold, _ in judged)):
        mine = [i for i, (n, f, _) in enumerate(judged) if (n, f) == (number, fold)]
        out = judged[mine[0]][2]
        ensemble = Ensemble(bank[mine], 0.95, "snm")
        dist = ensemble.distribution(data.X[out])
        answers.append((dist, data.y[out], ensemble.point(data.X[out])))
    scores = [normal_scores(dist, y) for dist, y, _ in answers]
    unit = data.y.std()
    rows = []
    for fold, (dist, y, point) in enumerate(answers):
        others = np.sort(np.concatenate([s for f, s in enumerate(scores) if f != fold]))
        knots = np.arange(1, len(others) + 1) / (len(others) + 1)
        low, high = np.interp([0.025, 0.975], knots, others)
        fair = dist.ppf(ndtr(low)), dist.isf(ndtr(-high))
        raw = dist.interval(0.95)
        row = [f(*bounds, y) for bounds in (raw, fair) for f in (coverage_rate, interval_score)]
        error, crps = np.mean((point - y) ** 2), dist.crps(y).mean()
        rows.append([row[0], row[1] / unit, row[2], row[3] / unit, error / unit**2, crps / unit])
    return np.average(rows, axis=0, weights=[len(y) for _, y, _ in answers])


def normal_scores(dist, y):
    """Normal quantile of each row's place in its distribution."""
    below, above = (np.maximum(tail, 1e-300) for tail in (dist.cdf(y), dist.sf(y)))
    return np.where(below < 0.5, ndtri(below), -ndtri(above))


def main():
    """Judge the candidates and print a line for each dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("candidates", nargs="*", default=["base"])
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--per-fold", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    groups = {}
    for name in options.candidates:
        groups.setdefault(program_of(BASE | CANDIDATES[name], 1), []).append(name)
    for dataset in options.datasets:
        splits = 1 if dataset == "protein" else options.splits
        for names in groups.values():
            for row in judge(names, dataset, splits, options.folds, options.per_fold):
                line = (f"{v:.4g}" if isinstance(v, float) else f"{v!s:10}" for v in row.values())
                print(" ".join(line), flush=True)
                if options.out:
                    new = not options.out.exists()
                    with options.out.open("a", newline="") as file:
                        writer = csv.DictWriter(file, row)
                        if new:
                            writer.writeheader()
                        writer.writerow(row)


if __name__ == "__main__":
    main()
