"""Two-step learning against learning points and intervals at once.

    .venv-torch/bin/python benchmarks/upgrade.py [--datasets concrete power] [--splits 3]

On each of the first Hernandez-Lobato splits, all from the same training rows:

- at once: ``IntervalRegressor`` with its defaults;
- points: the same for points only, ``loss="mse"``;
- points, kept and adapted: intervals added to it, with points unchanged or free to move by at most
  half a root mean squared error;
- networks: ten PyTorch networks, two per fold of a cross-validation, trained for squared error;
- networks, kept and adapted: the same upgraded, each row held out from the networks of its fold;
- one network: a PyTorch network, trained on three quarters of the rows;
- one network, kept and adapted: the same upgraded with the quarter that it has not seen.

The table has means over the splits, and ratios, with standard errors, to the given points and to
the interval score of learning at once. Stored splits are not run again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error

import calipers.torch
from calipers import IntervalRegressor, metrics
from calipers._files import replace_file
from calipers.datasets import load
from calipers_study.splits import hernandez_lobato_splits

COVERAGE = 0.95
FOLDS = 5
WAYS = {"kept": 0.0, "adapted": 0.5}


class Standardised(torch.nn.Module):
    """A network that scales its inputs and target itself."""

    def __init__(self, X, y, hidden=128):
        super().__init__()
        scales = (X.mean(0), X.std(0).clamp_min(1e-9), y.mean(), y.std())
        for name, value in zip(("x_mean", "x_std", "y_mean", "y_std"), scales, strict=True):
            self.register_buffer(name, value)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], hidden),
            torch.nn.SiLU(),
            torch.nn.Linear(hidden, hidden),
            torch.nn.SiLU(),
            torch.nn.Linear(hidden, 1),
        )

    def forward(self, x):
        """Points of shape (rows,)."""
        return self.layers((x - self.x_mean) / self.x_std)[:, 0] * self.y_std + self.y_mean


def torch_points(X, y, seed, steps):
    """A network as a PyTorch user would bring it: trained for squared error, stopped early."""
    torch.manual_seed(seed)
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    order = torch.randperm(len(y))
    aside, kept = order[: len(y) // 10], order[len(y) // 10 :]
    network = Standardised(X[kept], y[kept])
    optimizer = torch.optim.AdamW(network.parameters(), 0.003, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, weights = np.inf, None
    for step in range(1, steps + 1):
        batch = kept[torch.randint(len(kept), (64,))]
        loss = torch.mean(((network(X[batch]) - y[batch]) / network.y_std) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            with torch.no_grad():
                error = float(torch.mean((network(X[aside]) - y[aside]) ** 2))
            if error < best:
                best, weights = error, {k: v.clone() for k, v in network.state_dict().items()}
    network.load_state_dict(weights)
    return network


def points_of(networks, X):
    """Mean of the networks' points."""
    with torch.no_grad():
        rows = torch.tensor(X, dtype=torch.float32)
        return np.mean([network(rows).double().numpy() for network in networks], axis=0)


def measures(model, X, y):
    """Error, coverage, width and interval score on test rows."""
    lower, upper = model.predict_interval(X).T
    found = {
        "rmse": root_mean_squared_error(y, model.predict(X)),
        "coverage": metrics.coverage_rate(y, lower, upper),
        "width": metrics.mean_width(lower, upper),
        "score": metrics.interval_score(y, lower, upper, coverage=COVERAGE),
    }
    return {name: float(value) for name, value in found.items()}


def run(X, y, X_test, y_test, seed, steps):
    """Run every way of learning on one split."""
    common = {"coverage": COVERAGE, "random_state": seed, "verbose": 0}
    found = {}

    def timed(name, make, *arguments, **options):
        began = time.perf_counter()
        model = make(*arguments, **options)
        seconds = time.perf_counter() - began
        found[name] = measures(model, X_test, y_test) | {"seconds": seconds}

    def given(name, point):
        found[name] = {"rmse": root_mean_squared_error(y_test, point)}

    timed("at once", IntervalRegressor(**common).fit, X, y)
    points = IntervalRegressor(loss="mse", **common).fit(X, y)
    given("points", points.predict(X_test))
    for name, adapt in WAYS.items():
        timed(f"points, {name}", IntervalRegressor(**common).upgrade, points, X, y, adapt=adapt)

    rng = np.random.default_rng(seed)
    fold = rng.permutation(len(y)) % FOLDS
    pairs = [(i, fold != i % FOLDS) for i in range(2 * FOLDS)]
    networks = [torch_points(X[kept], y[kept], 100 * seed + i, steps) for i, kept in pairs]
    given("networks", points_of(networks, X_test))
    upgrade = calipers.torch.upgrade
    for name, adapt in WAYS.items():
        options = common | {"adapt": adapt, "held_out": fold}
        timed(f"networks, {name}", upgrade, networks, X, y, **options)

    fresh, known = np.split(rng.permutation(len(y)), [len(y) // 4])
    network = torch_points(X[known], y[known], seed, steps)
    given("one network", points_of([network], X_test))
    for name, adapt in WAYS.items():
        options = common | {"adapt": adapt, "fresh": True}
        timed(f"one network, {name}", upgrade, network, X[fresh], y[fresh], **options)
    return found


def table(rows):
    """Print the table of a dataset; ``rows`` holds the results of ``run``, one entry per split."""
    print("| model | RMSE | to given points | coverage | width | score | to at once | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")

    def mean(name, key):
        values = [row[name].get(key, np.nan) for row in rows]
        return np.mean(values)

    def ratio(name, other, key):
        values = np.array([row[name].get(key, np.nan) / row[other].get(key, 1.0) for row in rows])
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
        return f"{values.mean():.3f} +- {error:.3f}"

    for name in rows[0]:
        given = name.split(", ")[0]
        kept = ratio(name, given, "rmse") if given != name else ""
        if "score" not in rows[0][name]:
            print(f"| {name} | {mean(name, 'rmse'):.3f} | | | | | | |")
            continue
        against = ratio(name, "at once", "score")
        print(
            f"| {name} | {mean(name, 'rmse'):.3f} | {kept} | {mean(name, 'coverage'):.3f} "
            f"| {mean(name, 'width'):.2f} | {mean(name, 'score'):.2f} | {against} "
            f"| {mean(name, 'seconds'):.0f} |",
            flush=True,
        )


def main():
    """Print a table for each dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["concrete", "power"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000, help="of each PyTorch network")
    parser.add_argument("--results", type=Path, default=Path("results/upgrade.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # such small networks gain nothing from a second
    store = options.results
    done = json.loads(store.read_text()) if store.exists() else {}
    for name in options.datasets:
        data, found = load(name), []
        for number, split in enumerate(hernandez_lobato_splits(name)[: options.splits]):
            key = f"{name} {number} {options.steps}"
            if key not in done:
                parts = [(data.X[rows], data.y[rows]) for rows in (split.train, split.test)]
                done[key] = run(*parts[0], *parts[1], number, options.steps)
                store.parent.mkdir(parents=True, exist_ok=True)
                replace_file(store, json.dumps(done, indent=1).encode())
            found.append(done[key])
        print(f"\n{name}, {len(found)} splits\n")
        table(found)


if __name__ == "__main__":
    main()
