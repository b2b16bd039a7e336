"""Seconds for a fit of the default with compiled programs available, to compare revisions.

    PYTHONPATH=src python benchmarks/fit_time.py boston concrete kin8nm

Times the second fit in one process, on the training rows of the first split, in wall clock and
processor time. To measure another revision, put its ``src`` into ``PYTHONPATH``.
"""

import argparse
import time
import warnings

from _tables import MAX_ROWS, UCI, read

from calipers import IntervalRegressor


def main():
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", choices=UCI)
    parser.add_argument("--rows", type=int, default=MAX_ROWS, help="maximum number of rows")
    parser.add_argument("--first", action="store_true", help="time the first fit, with compilation")
    options = parser.parse_args()
    for name in options.tables:
        X, y = read(name, options.rows)
        for shown in [True] if options.first else [False, True]:
            wall, cpu = time.perf_counter(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                IntervalRegressor(random_state=0).fit(X, y)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if shown:
                print(f"{name}: {len(y)} rows, {wall:.1f} s, processor {cpu:.1f} s", flush=True)


if __name__ == "__main__":
    main()
