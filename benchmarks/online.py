"""Coverage and interval score under drift, one step ahead: calipers, MAPIE, online-conformal.

    python benchmarks/online.py run --methods calipers      # with calipers, statsmodels, pmdarima
    python benchmarks/online.py run --methods mapie online_conformal
    python benchmarks/online.py table

The series are those of ``_online_series.py``. Every method trains on the same rows, the last 6,000
before the stream, and then predicts one step at a time and learns from the observed target. Nothing
was chosen on the streams of the table: constants of ``calipers.calibration`` were set on
``--part dev``, where the first quarter of each series is for training and the second is the stream.
With ``--part full`` calipers trains on all rows before the stream, with its defaults, and the
stream is not cut off. Results of every method are stored in ``results/online``, one file each.
"""

import argparse
import json
import time
from copy import copy
from functools import lru_cache
from pathlib import Path

import numpy as np
from _online_series import CHANGES, SPECS, load

FOLDER = Path(__file__).parents[1] / "results" / "online"
COVERAGE, WINDOW, MAX_ROWS = 0.9, 200, 6_000
SETTINGS = {"n_networks": 5, "epochs": 40}  # of the networks, so that two cores suffice
PARTS = {"test": (0.5, 1.0), "dev": (0.25, 0.5), "full": (0.5, 1.0, 10**9)}


def measures(y, bounds):
    """Coverage, the worst window and the mean score, and the effect of single-value intervals.

    ``one_value`` is the fraction of steps whose interval is a single value, which contains all of
    its mass whatever was requested. ``coverage_with_width`` is the coverage over the other steps,
    and ``least`` the coverage over all steps if it were exactly nominal over the others.
    """
    lower, upper = bounds.T
    hit, point = (lower <= y) & (y <= upper), lower == upper
    windows = np.convolve(hit, np.ones(WINDOW) / WINDOW, "valid")
    beyond = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    score = upper - lower + 2 / (1 - COVERAGE) * beyond
    return {
        "coverage": round(float(hit.mean()), 4),
        "coverage_with_width": round(float(hit[~point].mean()), 4),
        "one_value": round(float(point.mean()), 4),
        "least": round(float(np.where(point, hit, COVERAGE).mean()), 4),
        "worst_window": round(float(windows.min()), 4),
        "interval_score": float(f"{score.mean():.6g}"),
        "steps": len(y),
    }


@lru_cache(maxsize=1)
def fitted(name, part):
    """The model of a series; a change comes after its training rows."""
    from calipers import IntervalRegressor

    series = load(name, "none", *PARTS[part])
    rows = slice(0 if part == "full" else max(series.start - MAX_ROWS, 0), series.start)
    settings = {} if part == "full" else SETTINGS
    model = IntervalRegressor(coverage=COVERAGE, random_state=0, verbose=0, **settings)
    return model.fit(series.X[rows], series.y[rows])


def calipers(series, part):
    """Bounds of the model with ``update``, and of the same model frozen."""
    model = copy(fitted(series.name, part))
    X, y = series.X[series.start :], series.y[series.start :]
    frozen = model.predict_interval(X)
    return {"calipers": model.update(X, y).intervals(COVERAGE), "calipers frozen": frozen}


def run(names, changes, methods, part):
    """Run what is not stored yet."""
    for name in names:
        for change in changes:
            series = load(name, change, *PARTS[part])
            first = max(series.start - MAX_ROWS, 0)
            for method in methods:
                _run_one(series, first, change, method, part)


def _run_one(series, first, change, method, part):
    path = FOLDER / part / f"{series.name}.{change}.{method.replace(' ', '_')}.json"
    if path.exists():
        return
    began = time.perf_counter()
    if method == "calipers":
        found = calipers(series, part)
    else:
        from _online_peers import METHODS

        function, base, kind = METHODS[method]
        found = {method: function(series, first, base, kind, COVERAGE)}
    seconds = round(time.perf_counter() - began, 1)
    y = series.y[series.start :]
    results = {key: measures(y, bounds) | {"seconds": seconds} for key, bounds in found.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(series.name, change, results, flush=True)


def results_of(part):
    """All results as {(series, change): {method: measures}}."""
    found = {}
    for path in sorted((FOLDER / part).glob("*.json")):
        name, change, _ = path.name.split(".", 2)
        found.setdefault((name, change), {}).update(json.loads(path.read_text()))
    return found


def table(part, changes):
    """Print the comparison; for each package, its best method and learner by score."""
    print("| series | change | steps | frozen | calipers | MAPIE, best | online-conformal, best |")
    print("|---|---|---:|---|---|---|---|")
    for (name, change), by_method in results_of(part).items():
        if change not in changes:
            continue
        cells = [by_method.get("calipers frozen"), by_method.get("calipers")]
        for package in ("mapie", "online_conformal"):
            own = [(m["interval_score"], k) for k, m in by_method.items() if k.startswith(package)]
            cells.append(by_method[min(own)[1]] if own else None)
        steps = next(iter(by_method.values()))["steps"]
        row = [name, change, f"{steps:,}", *(_cell(cell) for cell in cells)]
        print("| " + " | ".join(row) + " |")


def _cell(cell):
    if cell is None:
        return "-"
    return f"{cell['coverage']:.3f} {cell['worst_window']:.3f} **{cell['interval_score']:.4g}**"


def main():
    """Read the arguments."""
    from _online_peers import METHODS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("--series", nargs="+", choices=SPECS, default=list(SPECS))
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--methods", nargs="+", default=["calipers"])
    parser.add_argument("--part", choices=PARTS, default="test")
    given = parser.parse_args()
    if given.action == "table":
        return table(given.part, given.changes)
    known = ["calipers", *METHODS]
    methods = [m for m in known if any(m.startswith(asked) for asked in given.methods)]
    return run(given.series, given.changes, methods, given.part)


if __name__ == "__main__":
    main()
