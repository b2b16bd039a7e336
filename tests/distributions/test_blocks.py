"""Neither blocks nor threads show in a result, and memory stays with the blocks."""

import threading
import tracemalloc

import joblib
import numpy as np
import pytest

from calipers import _blocks
from calipers.calibration import Calibration
from calipers.distributions import SplitNormal, SplitNormalMixture, Support, on_target_scale

HEAVY = {
    "ppf": [[0.1], [0.9]],
    "isf": 0.3,
    "cdf": 0.5,
    "logpdf": 0.5,
    "crps": 0.2,
    "interval": 0.9,
    "hdi": 0.9,
    "hdr": 0.9,
}


def mixture(rows):
    rng = np.random.default_rng(3)
    loc = rng.normal(size=(3, rows))
    left, right = np.exp(0.3 * rng.normal(size=(2, 3, rows)))
    return SplitNormalMixture(SplitNormal(loc, left, right))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (5, 0, 2)])
@pytest.mark.parametrize("size", [1, 2, 6, 100])
def test_blocks_cover_every_element_once(shape, size):
    count = np.zeros(shape, dtype=int)
    for index in _blocks.blocks(shape, size):
        assert count[index].size <= size
        count[index] += 1
    assert np.all(count == 1)


@pytest.mark.parametrize("method", HEAVY)
def test_blocks_and_threads_change_nothing(method, monkeypatch):
    mix = mixture(300)
    whole = getattr(mix, method)(HEAVY[method])
    monkeypatch.setattr(_blocks, "BLOCK_SIZE", 200)
    np.testing.assert_array_equal(getattr(mix, method)(HEAVY[method]), whole)
    with joblib.parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(getattr(mix, method)(HEAVY[method]), whole)


@pytest.mark.parametrize("support", [None, Support(low=0.0, step=float(np.float32(0.1)))])
@pytest.mark.parametrize("method", ["crps", "mean", "var"])
def test_rows_are_the_same_in_any_batch(support, method):
    scores = np.random.default_rng(0).normal(0, 1.2, 300)
    dist = Calibration.from_scores(scores).calibrated(mixture(60), np.zeros((60, 0)))
    dist = on_target_scale(dist, None, support or Support())
    y = np.zeros(60) if support else np.linspace(-2, 2, 60)

    def values(rows):
        part = dist[rows]
        return part.crps(y[rows]) if method == "crps" else getattr(part, method)

    one_by_one = np.concatenate([values(slice(row, row + 1)) for row in range(60)])
    np.testing.assert_array_equal(one_by_one, values(slice(None)))


def test_modes_and_samples_in_blocks(monkeypatch):
    mix = mixture(300)
    modes, draws = mix.modes(), mix.sample(4, rng=np.random.default_rng(0))
    monkeypatch.setattr(_blocks, "BLOCK_SIZE", 200)
    with joblib.parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(mix.modes(), modes)
        np.testing.assert_array_equal(mix.sample(4, rng=np.random.default_rng(0)), draws)


@pytest.mark.parametrize(("backend", "threads"), [("threading", 2), ("loky", 1)])
def test_threads_are_those_of_joblib(backend, threads, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_SIZE", 2)
    together, seen = threading.Barrier(threads, timeout=30), set()  # a block on each of the threads

    def work(x):
        together.wait()
        seen.add(threading.get_ident())
        return x

    with joblib.parallel_config(backend, n_jobs=2):
        _blocks.blockwise(work, (np.zeros(4),))
    assert len(seen) == threads


def test_memory_is_that_of_the_result_and_a_few_blocks():
    mix = mixture(400_000)
    tracemalloc.start()
    try:
        bounds = mix.interval(0.95)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - sum(bound.nbytes for bound in bounds) < 16 * 2**20


def test_no_rows_give_empty_results():
    empty = mixture(0)
    assert empty.interval(0.9)[0].shape == empty.mean.shape == (0,)
    assert empty.modes().shape == empty.hdr(0.9)[0].shape == (0, 0)


def test_an_error_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_SIZE", 2)

    def fail(x):
        raise ZeroDivisionError

    with joblib.parallel_config("threading", n_jobs=2), pytest.raises(ZeroDivisionError):
        _blocks.blockwise(fail, (np.zeros(10),))
