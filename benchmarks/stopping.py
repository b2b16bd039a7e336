"""The cost of a shorter patience: the rule of ``patience="auto"``, replayed.

    python benchmarks/stopping.py          # datasets by CALIPERS_DATA or downloaded

The default model is fitted with its longest patience, a fifth of all epochs. The validation losses
of its networks then show where the shorter patience would have stopped each of them, and whether it
would have kept the weights of the same epoch. If so, the model is the same to the last bit. Test
rows are not used.
"""

import argparse

import numpy as np
from sklearn.datasets import load_diabetes

from calipers import IntervalRegressor
from calipers.bank import Settings
from calipers.datasets import load
from calipers.training import batch_size_of, make_settings

DATASETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")


def tables(most):
    """Names, inputs and targets, with a maximum number of rows."""
    yield "diabetes", *load_diabetes(return_X_y=True)
    for name in DATASETS:
        data = load(name)
        keep = np.random.default_rng(0).permutation(len(data.y))[:most]
        yield name, data.X[keep], data.y[keep]
    rng = np.random.default_rng(1)
    for rows in (60, 200, 1000):
        X = rng.uniform(size=(rows, 10))
        y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
        yield f"friedman, {rows}", X, y + 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=rows)


def stop(losses, settings: Settings):
    """Epochs that the rule trains, and the epoch whose weights it keeps."""
    best, kept = np.inf, 0
    for epoch, loss in enumerate(losses, 1):
        if loss < best:
            best, kept = loss, epoch
        patience = min(settings.patience, max(settings.early_patience, kept))
        if epoch - kept >= patience:
            return epoch, kept
    return len(losses), kept


def main():
    """Print one line for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000, help="maximum number of rows of a table")
    most = parser.parse_args().rows
    print("| table | rows | epochs, waiting a fifth | epochs, auto | other weights kept |")
    print("|---|---:|---:|---:|---:|")
    for name, X, y in tables(most):
        model = IntervalRegressor(random_state=0)
        rows = int(len(y) * 0.8 * 0.9)  # of a network, as near as matters here
        settings = make_settings(model, rows, batch_size_of(model, len(y)), stops=True)
        model.set_params(patience=int(settings.patience)).fit(X, y)
        histories = model.ensemble_.bank.histories
        stops = [stop(history["valid_loss"], settings) for history in histories]
        kept = [int(np.nanargmin(history["valid_loss"])) + 1 for history in histories]
        other = sum(now != then for (_, now), then in zip(stops, kept, strict=True))
        print(
            f"| {name} | {len(y)} | {np.mean([len(h) for h in histories]):.0f} "
            f"| {np.mean([epochs for epochs, _ in stops]):.0f} | {other} of {len(kept)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
