"""A splitter in time order against shuffled folds: two years of Delhi's climate, then the next two.

    CALIPERS_DATA=... python benchmarks/time_order.py       # prints a table; a minute on two cores

The later rows are predicted and not learned from.
"""

import numpy as np
from _online_series import load
from sklearn.model_selection import TimeSeriesSplit

from calipers import IntervalRegressor, metrics

COVERAGE = 0.9
WINDOW = 200  # rows of the window whose lowest coverage is shown


def main():
    """Print a row for each way to split."""
    series = load("delhi_climate")
    train, test = slice(series.start), slice(series.start, None)
    y = series.y[test]
    print(f"{series.start} rows train, {len(y)} are predicted")
    print("| `cv` | coverage | worst 200 rows | interval score | RMSE |")
    print("|---|---:|---:|---:|---:|")
    for name, cv in (("`TimeSeriesSplit(5)`", TimeSeriesSplit(5)), ("5, shuffled folds", 5)):
        model = IntervalRegressor(coverage=COVERAGE, cv=cv, random_state=0, verbose=0)
        model.fit(series.X[train], series.y[train])
        lower, upper = model.predict_interval(series.X[test]).T
        inside = (lower <= y) & (y <= upper)
        worst = np.convolve(inside, np.full(WINDOW, 1 / WINDOW), mode="valid").min()
        score = metrics.interval_score(y, lower, upper, coverage=COVERAGE)
        error = np.sqrt(np.mean((model.predict(series.X[test]) - y) ** 2))
        cells = f"{inside.mean():.3f} | {worst:.3f} | {score:.2f} | {error:.3f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
