"""Speed-up by cores: seconds for an epoch of the ten default networks.

    python benchmarks/cores.py 1 2 4 8 [--lanes 5]

Every number of cores is measured in a separate process that is pinned to that many cores, with as
many jobs. Printed are the seconds for an epoch, and the fraction of the ideal speed-up over the
first number (0.7 from 2 to 8 cores means 2.8 times as fast); bits must be the same throughout.
``--whole`` times whole fits of few epochs instead, including what is not training; ``--lanes`` sets
the number of networks per chunk.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np

INPUTS = 10
EPOCHS = {10_000: 16, 100_000: 3}


def data(rows):
    """Rows to train on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, INPUTS))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + rng.normal(0, 0.3, rows)


def epoch(rows, jobs):
    """Seconds for an epoch, and a digest of the weights."""
    from calipers import IntervalRegressor
    from calipers.bank import Table, train
    from calipers.crossfit import make_folds
    from calipers.training import make_plans, make_program

    X, y = data(rows)
    model = IntervalRegressor(patience=None)
    folds = make_folds(5, np.arange(rows), X, y, None, 10, 0)
    program, table = make_program(model, X, rows), Table.from_arrays(X, y)

    def run(epochs):
        model.epochs = epochs
        given = [folds[i % 5] for i in range(10)]
        plans = make_plans(model, given, None, None, 0, batch_size=program.batch_size)
        began = time.perf_counter()
        bank = train(program, table, plans, n_jobs=jobs)
        return (time.perf_counter() - began) / epochs, bank

    run(1)
    seconds, bank = run(EPOCHS[rows])
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in bank.weights))
    return {"seconds": seconds, "bits": digest.hexdigest()[:8]}


def whole(rows, jobs):
    """Seconds for a fit of few epochs."""
    from calipers import IntervalRegressor

    model = IntervalRegressor(epochs=EPOCHS[rows], n_jobs=jobs, random_state=0)
    model.fit(*data(rows))  # compiles
    began = time.perf_counter()
    model.fit(*data(rows))
    digest = hashlib.sha256(model.predict(data(100)[0]).tobytes())
    return {"seconds": time.perf_counter() - began, "bits": digest.hexdigest()[:8]}


def main():
    """Measure in separate processes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cores", type=int, nargs="+")
    parser.add_argument("--first", type=int, default=0, help="number of the first core to use")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--lanes", type=int, default=0, help="networks per chunk")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)  # in a separate process
    chosen = parser.parse_args()
    if chosen.rows:
        if chosen.lanes:
            from calipers.bank import _train

            _train.lane_count = lambda *_: chosen.lanes
        work = whole if chosen.whole else epoch
        print(json.dumps(work(chosen.rows, chosen.cores[0])))
        return
    print("| rows | cores | seconds | fraction of ideal | bits |\n|---:|---:|---:|---:|---|")
    for rows in EPOCHS:
        base = None
        for cores in chosen.cores:
            command = [sys.executable, __file__, str(cores), "--rows", str(rows)]
            command += ["--lanes", str(chosen.lanes)]
            used = set(range(chosen.first, chosen.first + cores))
            done = subprocess.run(
                command + ["--whole"] * chosen.whole,
                preexec_fn=lambda used=used: os.sched_setaffinity(0, used),
                env=os.environ | {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"},
                capture_output=True,
                check=True,
            )
            found = json.loads(done.stdout)
            base = base or (cores, found["seconds"])
            share = base[1] * base[0] / (found["seconds"] * cores)
            print(
                f"| {rows:,} | {cores} | {found['seconds']:.3f} | {share:.2f} | {found['bits']} |"
            )


if __name__ == "__main__":
    main()
