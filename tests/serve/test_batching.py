"""Requests are predicted together, each gets its own answer, and none is held back for others."""

import asyncio
import threading

import numpy as np
import pytest

from calipers.prediction import Query
from calipers.preprocessing import DataError
from calipers.serve import _batching
from calipers.serve._batching import Batcher
from calipers.serve._bodies import row_columns
from calipers.serve._served import Piece, _joined, load_models


class Worker:
    """Doubles each item, one batch at a time, while ``go`` is set."""

    def __init__(self):
        self.batches, self.go, self.busy = [], threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, pieces):
        self.busy.set()
        self.go.wait(5)
        self.batches.append(pieces)
        return [ValueError(p) if p == "bad" else p * 2 for p in pieces]


def run(main):
    return asyncio.run(asyncio.wait_for(main, 10))


def test_what_waits_goes_together():
    async def main():
        worker = Worker()
        batcher = Batcher(worker, max_rows=4)
        worker.go.clear()
        first = asyncio.create_task(batcher.submit("a"))
        await asyncio.to_thread(worker.busy.wait)
        rest = [asyncio.create_task(batcher.submit(name)) for name in ("b", "cc", "ddd", "e")]
        while len(batcher) < 4:  # until the test has taken too long
            await asyncio.sleep(0)
        worker.go.set()
        assert await asyncio.gather(first, *rest) == ["aa", "bb", "cccc", "dddddd", "ee"]
        assert worker.batches == [["a"], ["b", "cc"], ["ddd", "e"]]
        batcher.close()

    run(main())


def test_an_error_reaches_only_its_own_request():
    async def main():
        batcher = Batcher(Worker(), max_rows=10)
        results = await asyncio.gather(
            *(batcher.submit(name) for name in ("a", "bad", "c")), return_exceptions=True
        )
        assert [results[0], results[2]] == ["aa", "cc"]
        assert isinstance(results[1], ValueError)
        assert await batcher.submit("d") == "dd"
        batcher.close()

    run(main())


def test_a_request_that_times_out_is_left_out_of_its_batch():
    async def main():
        worker = Worker()
        batcher = Batcher(worker, max_rows=10)
        worker.go.clear()
        first = asyncio.create_task(batcher.submit("a"))
        await asyncio.to_thread(worker.busy.wait)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.submit("b"), 0.05)
        worker.go.set()
        assert await first == "aa"
        assert await batcher.submit("c") == "cc"
        assert worker.batches == [["a"], ["c"]]
        batcher.close()

    run(main())


def arrays(prediction):
    """Everything in a served prediction, as lists."""
    found = {
        **vars(prediction.prediction),
        "outside": prediction.outside,
        "bounds": prediction.bounds,
    }
    return {name: None if array is None else array.tolist() for name, array in found.items()}


def test_a_batch_of_different_questions(folder):
    served = load_models([folder / "homes"])["homes"]
    rows = [dict(served.example, size=float(size)) for size in (40, 80, 120, 160)]
    queries = [Query(), Query((0.5,)), Query(), Query((0.5,), (0.1, 0.9), members=True, density=5)]
    pieces = [
        Piece(row_columns([row], served), 1, query)
        for row, query in zip(rows, queries, strict=True)
    ]
    together = served.predict(pieces)
    for piece, prediction in zip(pieces, together, strict=True):
        [alone] = served.predict([piece])
        np.testing.assert_equal(arrays(prediction), arrays(alone))


def test_one_wrong_row_does_not_spoil_the_batch(folder):
    served = load_models([folder / "homes"])["homes"]
    good = Piece(row_columns([served.example], served), 1, Query())
    bad = Piece(row_columns([dict(served.example, size="huge")], served), 1, Query())
    first, wrong, last = served.predict([good, bad, good])
    assert first.prediction.point == last.prediction.point
    assert isinstance(wrong, DataError)
    assert (wrong.column, wrong.row) == ("size", 0)


def test_what_others_send_does_not_make_a_wrong_row_one_of_few(folder):
    served = load_models([folder / "homes"])["homes"]
    good = Piece(row_columns([served.example] * 30, served), 30, Query())
    bad = Piece(row_columns([dict(served.example, size="huge")], served), 1, Query())
    first, wrong = served.predict([good, bad])
    assert not first.outside.any()
    assert isinstance(wrong, DataError)


def test_what_others_send_does_not_change_a_value(folder):
    """Joined with floats, the long number would lose its last digit, and truth be 1."""
    served = load_models([folder / "homes"])["homes"]
    row = row_columns([served.example], served)
    kinds = [np.array([2**53 + 1]), np.array([1.5]), np.array([True])]
    pieces = [Piece(row | {"kind": kind}, 1, Query()) for kind in kinds]
    with pytest.raises(TypeError, match="'kind' is of several types"):
        _joined(pieces)
    for piece, prediction in zip(pieces, served.predict(pieces), strict=True):
        [alone] = served.predict([piece])
        np.testing.assert_equal(arrays(prediction), arrays(alone))


def test_a_few_rows_of_a_quick_model_need_no_other_thread(monkeypatch):
    now, where = [0.0], []
    monkeypatch.setattr(_batching.time, "perf_counter", lambda: now[0])

    def work(pieces):
        where.append(threading.current_thread() is threading.main_thread())
        now[0] += 1.0 if "slow" in pieces else 0.001
        return list(pieces)

    async def main():
        batcher = Batcher(work, max_rows=100)
        for piece in ("first", "a", "many" * 3, "b", "slow", "c", "d", "asks"):
            numbers = 1000 if piece == "asks" else 5
            assert await batcher.submit(piece, numbers) == piece
        batcher.close()

    run(main())
    # Not before it has been measured, not for many rows or numbers, and not after it was slow.
    assert where == [False, True, False, True, True, False, True, False]
