"""Peak memory of fit and of predict by rows, and how much of it is imports and compilers.

    python benchmarks/memory.py [--rows 1000 20000 100000]

Every line is a separate process, with 10 inputs and the default model for two epochs, since memory
does not depend on the number of epochs. The compiler's part is what a fit with an empty cache takes
beyond one that finds its programs on disk. The part of loading is how much the process grows while
XLA loads programs from disk.
"""

import argparse
import os
import subprocess
import sys
import tempfile

SCRIPT = """
import resource, sys
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
import numpy, scipy.stats, sklearn.base, sklearn.model_selection
print(peak())
import jax, equinox
jax.devices()
print(peak())
import numpy as np
from calipers import IntervalRegressor
from calipers.bank import _cache
print(peak())
loaded, load = [0.0], _cache._load
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
def watched(*given):
    before = resident()
    found = load(*given)
    loaded[0] += max(0.0, resident() - before)
    return found
_cache._load = watched
rows, new = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
X = rng.standard_normal((rows, 10))
y = X[:, 0] + rng.normal(0, 0.3, rows)
model = IntervalRegressor(epochs=2, random_state=0, verbose=0).fit(X, y)
print(peak())
before = peak()
bounds = model.predict_interval(rng.standard_normal((new, 10)))
print(max(0.0, peak() - before - (bounds.nbytes + 80 * new) / 2**20))
print(loaded[0])
"""


def measure(cache, rows, new):
    """Megabytes: other libraries, JAX, calipers, after the fit, of predictions, of loading."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(rows), str(new)],
        env=os.environ | {"CALIPERS_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(line) for line in done.stdout.split()]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 20_000, 100_000])
    parser.add_argument("--new", type=int, default=200_000, help="rows to predict")
    options = parser.parse_args()
    print(
        "| rows | NumPy to scikit-learn, MB | JAX, MB | calipers' imports, MB | compiler, MB "
        "| loading programs, MB | fit beyond these, MB | peak of fit, MB | warm cache, MB "
        "| predict, MB beyond rows and bounds |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as cache:
            empty = measure(cache, rows, options.new)
            others, jax, ours, fit, more, load = measure(cache, rows, options.new)
        parts = (others, jax - others, ours - jax, empty[3] - fit, load)
        parts += (fit - ours - load, empty[3], fit, more)
        print(f"| {rows:,} | " + " | ".join(f"{part:,.0f}" for part in parts) + " |", flush=True)


if __name__ == "__main__":
    main()
