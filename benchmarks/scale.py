"""Cost and gain of a cluster on this machine, and an estimate for larger ones.

    python benchmarks/scale.py measure  [--out benchmarks/scale.json] [--rounds 3]
    python benchmarks/scale.py estimate [--constants benchmarks/scale.json]

``measure`` trains a bank of default networks and scores Parquet on threads and on Dask workers, one
thread each, in turns within one run. It keeps the least wall time, and the least CPU time, which
says more on a shared machine. ``estimate`` puts the measurements into formulas; bandwidths, which
cannot be measured on one machine, are arguments.
"""

import argparse
import contextlib
import json
import logging
import math
import os
import pickle
import tempfile
import time
from pathlib import Path

INPUTS = 13
ROWS, NETWORKS, EPOCHS = 2000, 40, 15
SCORED, FILES = 100_000, 8
LANES, FEW_ROWS, FEW_LANES = 5, 4096, 2  # networks per chunk on a CPU, and beyond FEW_ROWS rows


def main():
    """Run the requested command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    place = Path(__file__).with_suffix(".json")
    one = commands.add_parser("measure")
    one.add_argument("--out", type=Path, default=place)
    one.add_argument("--rounds", type=int, default=3)
    two = commands.add_parser("estimate")
    two.add_argument("--constants", type=Path, default=place)
    two.add_argument("--network", type=float, default=1e9, help="bytes per second of a link")
    two.add_argument("--storage", type=float, default=5e9, help="bytes per second of all files")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        constants = measure(arguments.rounds)
        arguments.out.write_text(json.dumps(constants, indent=2) + "\n")
    else:
        estimate(json.loads(arguments.constants.read_text()), arguments.network, arguments.storage)


# Measuring


def measure(rounds):
    """Measure, print the tables, and return the constants."""
    logging.disable(logging.CRITICAL)  # clusters come and go
    with tempfile.TemporaryDirectory() as folder:
        constants = measure_start(Path(folder), rounds)
        with Clusters() as clusters:
            constants |= measure_training(clusters, rounds)
            constants |= measure_bytes(clusters[2])
            constants |= measure_tasks(clusters[2])
            constants |= measure_scoring(clusters, Path(folder), rounds)
    print("\nConstants:\n")
    print_table(("constant", "value"), [(k, f"{v:.4g}") for k, v in constants.items()])
    return constants


class Clusters(dict):
    """Clusters of one and of two workers, with one thread each, by their number of workers."""

    def __enter__(self):
        """Start them."""
        self.update({count: start_cluster(count) for count in (1, 2)})
        return self

    def __exit__(self, *_):
        """Stop them."""
        for client in self.values():
            client.cluster.close()
            client.close()


def start_cluster(workers):
    """Client of a new cluster on this machine."""
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    return Client(LocalCluster(n_workers=workers, memory_limit=0, **options), set_as_default=False)


@contextlib.contextmanager
def on_cluster(client):
    """Let joblib use the cluster, as ``calipers.cluster.connect`` does."""
    import joblib

    from calipers.cluster._connect import _use_even_one_thread

    with joblib.parallel_config(backend="dask", client=client):
        _use_even_one_thread()
        yield


def timed(function):
    """Seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def processor_seconds():
    """Processor seconds used by this process and its workers."""
    import psutil

    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def best(configurations, rounds):
    """Least seconds, and least processor seconds, of each configuration, run in turns."""
    found = {name: [] for name in configurations}
    for _ in range(rounds):
        for name, function in configurations.items():
            before = processor_seconds()
            seconds = timed(function)
            found[name].append((seconds, processor_seconds() - before))
    return {name: tuple(map(min, zip(*pairs, strict=True))) for name, pairs in found.items()}


def bank(networks=NETWORKS, epochs=EPOCHS, rows=ROWS):
    """A program, a table and plans like those of the default estimator."""
    import numpy as np

    from calipers import IntervalRegressor
    from calipers.bank import Plan, Table
    from calipers.training import batch_size_of, make_program, make_settings

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, INPUTS))
    table = Table.from_arrays(X, X[:, 0] + rng.normal(0, 0.3, rows))
    model = IntervalRegressor()
    size = batch_size_of(model, ROWS)
    settings = make_settings(model, rows, size, stops=False)._replace(epochs=epochs)
    every = np.arange(rows)
    plans = [Plan(seed, every, settings=settings) for seed in range(networks)]
    return make_program(model, X, size), table, plans


def measure_start(folder, rounds):
    """Start-up of a worker before its first chunk, with an empty and with a warm cache."""
    found = {"import_s": [], "compile_s": [], "load_s": []}
    for number in range(rounds):
        os.environ["CALIPERS_CACHE"] = str(folder / f"cache-{number}")  # for workers from now on
        for name in ("compile_s", "load_s"):
            client = start_cluster(1)
            found["import_s"].append(timed(lambda client=client: client.run(import_all)))
            first, second = chunk_seconds(client)
            found[name].append(first - second)
            client.cluster.close()
            client.close()
    least = {name: max(0.0, min(seconds)) for name, seconds in found.items()}
    names = ("importing JAX and calipers", "compiling", "or loading what is compiled already")
    print("Before the first chunk of a worker:\n")
    rows = [(what, f"{least[key]:.1f}") for what, key in zip(names, least, strict=True)]
    print_table(("what", "seconds"), rows)
    return least


def import_all():
    """Import what a chunk needs."""
    import calipers.regressor  # noqa: F401


def chunk_seconds(client):
    """Seconds for a first chunk, and for a second."""
    from calipers.bank import train

    program, table, plans = bank(LANES, 1)
    with on_cluster(client):
        found = [timed(lambda: train(program, table, plans)) for _ in range(3)]
    return found[0], min(found[1:])


def measure_training(clusters, rounds):
    """A bank on threads and on workers."""
    from calipers.bank import train

    program, table, plans = bank()

    def there(workers):
        with on_cluster(clusters[workers]):
            train(program, table, plans)

    ways = {
        "1 thread": lambda: train(program, table, plans, n_jobs=1),
        "1 worker": lambda: there(1),
        "2 threads": lambda: train(program, table, plans, n_jobs=2),
        "2 workers": lambda: there(2),
    }
    best(ways, 1)  # compiles, and sends the table
    seconds = best(ways, rounds)
    steps = NETWORKS * EPOCHS * math.ceil(ROWS / program.batch_size)
    print(f"\n{NETWORKS} default networks, {ROWS:,} rows, {steps:,} network-steps:\n")
    show_ways(seconds)
    return {"step_s": seconds["1 worker"][1] / steps, "batch_size": program.batch_size}


def show_ways(found):
    """Print seconds, their ratio to threads, and the speed-up by the second worker."""
    rows = []
    for name, (seconds, busy) in found.items():
        threads = found[f"{name[0]} thread{'s' if name[0] == '2' else ''}"]
        one = found[f"1 {name[2:].rstrip('s')}"]
        rows.append(
            (
                name,
                f"{seconds:.2f}",
                f"{seconds / threads[0]:.2f}",
                f"{one[0] / seconds:.2f}",
                f"{busy:.2f}",
                f"{busy / threads[1]:.2f}",
            )
        )
    header = ("seconds", "times threads", "speed-up over one", "CPU seconds", "times threads")
    print_table(("on", *header), rows)


def measure_bytes(client):
    """Bytes through the loopback of this machine while banks train on a large table."""
    from calipers.bank import train

    program, table, plans = bank(NETWORKS, 1, 50_000)
    size = len(pickle.dumps((table, plans[0].rows)))
    chunks = NETWORKS // FEW_LANES
    with on_cluster(client):
        before = moved()
        train(program, table, plans)
        first = moved() - before
        train(program, table, plans)
        second = moved() - before - first
    share = second / NETWORKS
    print(f"\nTable and rows of {size / 1e6:.1f} MB, {chunks} chunks of a bank on 2 workers:\n")
    print_table(
        ("moved", "MB", "times table"),
        [
            ("by a first bank", f"{first / 1e6:.1f}", f"{first / size:.1f}"),
            ("by a second of the same table", f"{second / 1e6:.1f}", f"{second / size:.1f}"),
            ("so for the table", f"{(first - second) / 1e6:.1f}", f"{(first - second) / size:.1f}"),
            ("for the results of a network", f"{share / 1e6:.2f}", f"{share / size:.2f}"),
        ],
    )
    return {
        "table_bytes_per_row": size / 50_000,
        "result_bytes_per_network": share,
        "validation_s": validation_seconds(program, table, plans[:LANES]),
    }


def validation_seconds(program, table, plans):
    """Seconds that a worker needs to evaluate one network on one row."""
    import numpy as np

    from calipers.bank import train

    trained = train(program, table, plans, n_jobs=1)
    X = np.random.default_rng(1).normal(size=(20_000, INPUTS))
    trained.predict(X)
    return timed(lambda: trained.predict(X)) / len(X) / len(plans)


def moved():
    """Bytes sent through the loopback so far."""
    import psutil

    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def measure_tasks(client):
    """Seconds of the scheduler for a task that does nothing."""
    count = 2000
    client.gather(client.map(nothing, range(100), pure=False))
    seconds = timed(lambda: client.gather(client.map(nothing, range(count), pure=False)))
    print(f"\n{count:,} empty tasks: {seconds:.2f} s, {count / seconds:,.0f} tasks per second")
    return {"task_s": seconds / count}


def nothing(_):
    """Do nothing."""


def measure_scoring(clusters, folder, rounds):
    """Parquet in, Parquet out, on threads and on workers."""
    import numpy as np
    import pandas as pd

    from calipers import IntervalRegressor

    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(INPUTS)]
    X = pd.DataFrame(rng.normal(size=(SCORED, INPUTS)), columns=names)
    model = IntervalRegressor(epochs=2, random_state=0).fit(X[:500], X["x0"][:500])
    model.save(folder / "model")
    (folder / "rows").mkdir()
    for number, part in enumerate(np.array_split(np.arange(SCORED), FILES)):
        X.iloc[part].to_parquet(folder / "rows" / f"{number}.parquet", index=False)
    ways = {
        "1 thread": lambda: score(folder, ["--n-jobs", "1"]),
        "1 worker": lambda: score(folder, ["--cluster", clusters[1].scheduler.address]),
        "2 threads": lambda: score(folder, ["--n-jobs", "2"]),
        "2 workers": lambda: score(folder, ["--cluster", clusters[2].scheduler.address]),
    }
    best(ways, 1)
    before = moved()
    ways["2 workers"]()
    model_bytes = moved() - before
    seconds = best(ways, rounds)
    written = score(folder, ["--n-jobs", "2"])
    print(f"\n{SCORED:,} rows in {FILES} files, 95% intervals of the default model:\n")
    show_ways(seconds)
    size = sum(path.stat().st_size for path in (folder / "model").iterdir())
    print(
        f"\n{model_bytes / 1e6:.1f} MB moved between processes for a model of {size / 1e6:.1f} MB "
        f"on 2 workers, {model_bytes / SCORED:.0f} bytes per row"
    )
    read = sum(path.stat().st_size for path in (folder / "rows").iterdir())
    return {
        "row_s": seconds["1 worker"][1] / SCORED,
        "row_bytes_read": read / SCORED,
        "row_bytes_written": written / SCORED,
    }


def score(folder, options):
    """Score the files by the command line and return the bytes written."""
    from typer.testing import CliRunner

    from calipers.cli import app

    out = Path(tempfile.mkdtemp(dir=folder))
    data = [str(folder / "rows" / "*.parquet")]
    target = out / ("scored" if "--cluster" in options else "scored.parquet")
    command = ["predict", str(folder / "model"), *data, "--out", str(target), *options]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    files = target.glob("*.parquet") if target.is_dir() else [target]
    return sum(path.stat().st_size for path in files)


# Estimating

WORKERS = (10, 100, 1000)


def estimate(c, network, storage):
    """Print the times of large workloads, from constants and bandwidths."""
    print(f"A link carries {network / 1e9:g} GB/s, all files together {storage / 1e9:g} GB/s.")
    for title, work in (
        ("A billion rows scored", lambda w: scoring_terms(c, w, storage)),
        ("A thousand candidates on 100,000 rows", lambda w: search_terms(c, w, network, 100_000)),
        ("A thousand candidates on 5,000,000 rows", lambda w: search_terms(c, w, network, 5e6)),
    ):
        print(f"\n{title}, seconds:\n")
        terms = {w: work(w) for w in WORKERS}
        rows = [(name, *(show(terms[w][name]) for w in WORKERS)) for name in terms[WORKERS[0]]]
        rows.append(("**all**", *(f"**{show(total(terms[w]))}**" for w in WORKERS)))
        rows.append(("longest", *(longest(terms[w]) for w in WORKERS)))
        rows.append(("busy", *(f"{busy(terms[w]):.0%}" for w in WORKERS)))
        print_table(("term", *(f"{w:,} workers" for w in WORKERS)), rows)


COMPUTING = "computing"


def scoring_terms(c, workers, storage, rows=1e9, part=100_000):
    """Seconds of each term of scoring; the last three run in parallel."""
    parts = rows / part
    return {
        "starting and compiling": c["import_s"] + c["compile_s"],
        COMPUTING: math.ceil(parts / workers) * part * c["row_s"],
        "scheduler": parts * c["task_s"],
        "storage": rows * (c["row_bytes_read"] + c["row_bytes_written"]) / storage,
    }


def search_terms(c, workers, network, rows, candidates=1000, splits=5, steps=20_000):
    """Seconds of each term of a search."""
    networks, lanes = candidates * splits, LANES if rows <= FEW_ROWS else FEW_LANES
    chunks = math.ceil(networks / lanes)
    hops = 2 + math.log2(workers)  # to the scheduler, to a worker, then from worker to worker
    return {
        "starting and compiling": c["import_s"] + c["compile_s"],
        "sending the rows": hops * rows * c["table_bytes_per_row"] / network,
        COMPUTING: math.ceil(chunks / workers) * lanes * steps * c["step_s"],
        "scheduler": chunks * c["task_s"],
        "results to the client": networks * c["result_bytes_per_network"] / network,
        "validation": math.ceil(chunks / workers) * lanes * rows / 10 * c["validation_s"],
    }


SIDE_BY_SIDE = (COMPUTING, "scheduler", "storage", "results to the client")


def total(terms):
    """Total seconds: the longest of the parallel terms, and all others."""
    beside = [value for name, value in terms.items() if name in SIDE_BY_SIDE]
    return max(beside) + sum(v for name, v in terms.items() if name not in SIDE_BY_SIDE)


def longest(terms):
    """Name of the longest term."""
    return max(terms, key=terms.get)


def busy(terms):
    """Fraction of the time that workers compute."""
    return terms[COMPUTING] / total(terms)


def show(seconds):
    """Format seconds with two significant digits."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


def print_table(header, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|---|" + "---:|" * (len(header) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
