"""Fit on the diabetes data, print what the intervals are worth, draw them, keep the model.

python examples/demo.py --out demo
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from calipers import IntervalRegressor, metrics
from calipers.plots import COLORS, new_figure, style

COVERAGES = [0.5, 0.8, 0.9, 0.95]


def draw(path, lower, point, upper, target):
    """Test rows in the order of their prediction, each with its interval."""
    order = np.argsort(point)
    rank = np.arange(len(order))
    inside = ((lower <= target) & (target <= upper))[order]
    with style():
        figure = new_figure(3.2)
        axes = figure.subplots()
        axes.vlines(rank, lower[order], upper[order], color=COLORS["sky"], linewidth=2, alpha=0.6)
        axes.plot(rank, point[order], color=COLORS["blue"], label="point estimate")
        for mask, color, name in (
            (inside, COLORS["black"], "observed, inside"),
            (~inside, COLORS["orange"], "observed, outside"),
        ):
            axes.plot(rank[mask], target[order][mask], ".", color=color, label=name)
        axes.set_xlabel("test rows, by prediction")
        axes.set_ylabel("disease progression")
        axes.legend(loc="upper left")
        figure.savefig(path)


def main():
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"))
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)

    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    model = IntervalRegressor(coverage=0.95, random_state=0).fit(X_train, y_train)

    point = model.predict(X_test)
    bounds = model.predict_interval(X_test, coverage=COVERAGES)
    print(f"diabetes: {len(X_train)} rows to learn from, {len(X_test)} to test on\n")
    print("nominal coverage  observed  mean width  interval score")
    for i, coverage in enumerate(COVERAGES):
        lower, upper = bounds[:, 0, i], bounds[:, 1, i]
        observed = metrics.coverage_rate(lower, upper, y_test)
        width = metrics.mean_width(lower, upper)
        score = metrics.interval_score(lower, upper, y_test, coverage=coverage)
        print(f"{coverage:16.2f}  {observed:8.2f}  {width:10.1f}  {score:14.1f}")
    print(f"\nroot mean squared error {metrics.root_mean_squared_error(point, y_test):.1f}")

    figure = folder / "intervals.png"
    draw(figure, bounds[:, 0, -1], point, bounds[:, 1, -1], y_test.to_numpy())
    model.save(folder / "model")
    print(f"wrote {figure} and {folder / 'model'}")


if __name__ == "__main__":
    main()
