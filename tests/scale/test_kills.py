"""Workers and schedulers that are killed in the middle of the work."""

import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.cluster import ClusterError, connect
from calipers.search import search

from .conftest import TINY, kill, wait_until

pytestmark = pytest.mark.slow

SPACE = {"optimizer__learning_rate": list(np.geomspace(1e-4, 1e-2, 30))}


class Victim:
    """Kills a process once some work is done and more is under way."""

    def __init__(self, process, due):
        self.process, self.due = process, due
        self.thread = threading.Thread(target=self._wait)

    def _wait(self):
        wait_until(self.due)
        kill(self.process)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.thread.join()
        assert self.process.poll() is not None


def at_work(cluster, chunks=2):
    """Whether so many chunks are done and both workers have one."""

    def look(dask_scheduler):
        groups = dask_scheduler.task_prefixes
        found = [p for name, p in groups.items() if name.startswith("batch_of")]
        done = sum(
            prefix.state_counts["memory"] + prefix.state_counts["forgotten"] for prefix in found
        )
        busy = [len(worker.processing) for worker in dask_scheduler.workers.values()]
        return done >= chunks and len(busy) == 2 and min(busy) > 0

    return lambda: cluster.client.run_on_scheduler(look)


def test_what_was_sent_outlives_all_that_held_it(machines):
    with connect(machines.address) as cluster:
        future = cluster.send({"rows": [1, 2, 3]})
        assert future.result() == {"rows": [1, 2, 3]}
        for worker in machines.workers:
            kill(worker)
        machines.workers.append(machines.add_worker())
        assert cluster.client.submit(len, future).result(timeout=300) == 1


def test_a_fit_ends_to_the_same_bits_when_a_worker_is_killed(machines, rows):
    settings = {"n_networks": 80, **TINY, "epochs": 300}
    with connect(machines.address) as cluster:
        cluster.client.wait_for_workers(2, timeout=120)
        with Victim(machines.workers[0], at_work(cluster)):
            found = IntervalRegressor(**settings).fit(*rows)
    expected = IntervalRegressor(**settings).fit(*rows)
    pairs = zip(found.ensemble_.bank.weights, expected.ensemble_.bank.weights, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def small_search(rows, store):
    model = IntervalRegressor(n_networks=2, **TINY)
    options = {"splits": 5, "max_epochs": 200, "patience": 50, "random_state": 0}
    return search(model, *rows, SPACE, store=store, **options)


def test_a_search_ends_the_same_when_a_worker_is_killed(machines, rows, tmp_path):
    with connect(machines.address) as cluster:
        cluster.client.wait_for_workers(2, timeout=120)
        with Victim(machines.workers[0], at_work(cluster)):
            found = small_search(rows, tmp_path / "killed.jsonl")
    expected = small_search(rows, tmp_path / "whole.jsonl")
    assert found.candidates == expected.candidates
    assert len(found.candidates) == 30
    lines = (tmp_path / "killed.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted((tmp_path / "whole.jsonl").read_text().splitlines())


def test_a_search_continues_after_its_scheduler_was_killed(machines, rows, tmp_path):
    store = tmp_path / "killed.jsonl"

    def kept():
        return store.read_text().count("\n") if store.exists() else 0

    def until_it_is_lost():
        with connect(machines.address) as cluster:
            cluster.client.wait_for_workers(2, timeout=120)
            with Victim(machines.scheduler, lambda: kept() > 1):
                small_search(rows, store)

    with pytest.raises(ClusterError, match="was lost"):
        until_it_is_lost()
    before = store.read_bytes()
    assert 1 < kept() < 31
    machines.stop()
    machines.start()
    with connect(machines.address):
        found = small_search(rows, store)
    assert store.read_bytes().startswith(before)
    assert kept() == 31
    assert found.candidates == small_search(rows, None).candidates


@pytest.fixture
def scoring(saved, tmp_path):
    """Forty files, and the command that scores them."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rng = np.random.default_rng(3)
    for number in range(40):
        frame = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=list("abc"))
        frame["id"] = np.arange(20_000) + 20_000 * number
        frame.to_parquet(folder / f"{number:02d}.parquet", index=False, row_group_size=5000)
    return ["predict", saved, folder, "--keep", "id", "--out", tmp_path / "scored", "--cluster"]


def command(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "calipers.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_scores(out, folder, model):
    assert (out / "_SUCCESS").exists()
    assert len(list(out.iterdir())) == 42  # with the plan and the mark, and no leftovers
    found = pd.read_parquet(out)
    rows = pd.read_parquet(folder)
    assert found["id"].tolist() == rows["id"].tolist() == list(range(800_000))
    some = slice(None, None, 1000)
    inputs = rows[list("abc")][some]
    np.testing.assert_array_equal(found["prediction"][some], model.predict(inputs))
    np.testing.assert_array_equal(
        found[["lower_0.95", "upper_0.95"]][some], model.predict_interval(inputs)
    )


def some_parts(out, few=5):
    return lambda: len(list(out.glob("part-*.parquet"))) >= few


def test_scoring_ends_whole_when_a_worker_is_killed(machines, scoring, model, tmp_path):
    out = tmp_path / "scored"
    running = command(*scoring, machines.address)
    with Victim(machines.workers[0], some_parts(out)):
        output, errors = running.communicate(timeout=600)
    assert running.returncode == 0, output + errors
    check_scores(out, tmp_path / "rows", model)


@pytest.mark.parametrize("victim", ["scheduler", "client"])
def test_scoring_continues_after_an_interruption(machines, scoring, model, tmp_path, victim):
    out = tmp_path / "scored"
    running = command(*scoring, machines.address)
    process = machines.scheduler if victim == "scheduler" else running
    with Victim(process, some_parts(out)):
        _, errors = running.communicate(timeout=600)
    assert not (out / "_SUCCESS").exists()
    if victim == "scheduler":
        assert running.returncode == 1
        last = errors.strip().splitlines()[-1]
        assert last.startswith(f"error: the scheduler at {machines.address} was lost")
        machines.stop()
        machines.start()
    before = {p: p.stat().st_mtime_ns for p in out.glob("part-*.parquet")}
    assert 5 <= len(before) < 40
    assert sum(len(pd.read_parquet(path)) for path in before) == 20_000 * len(before)
    again = command(*scoring, machines.address)
    output, errors = again.communicate(timeout=600)
    assert again.returncode == 0, output + errors
    assert {p: p.stat().st_mtime_ns for p in before} == before
    check_scores(out, tmp_path / "rows", model)


def test_a_fit_that_lost_its_scheduler_leaves_nothing(machines, rows, tmp_path):
    X, y = rows
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    settings = "n_networks = 200\ncv = 2\nepochs = 300\nnetwork__hidden_layers = [8]\n"
    (tmp_path / "settings.toml").write_text(settings)
    fit = ["fit", tmp_path / "rows.csv", "--target", "y", "--config", tmp_path / "settings.toml"]
    running = command(*fit, "--out", tmp_path / "model", "--cluster", machines.address)
    with connect(machines.address) as watching:
        busy = at_work(watching, 1)
        wait_until(busy)
        kill(machines.scheduler)
        _, errors = running.communicate(timeout=600)
    assert running.returncode == 1
    assert errors.strip().splitlines()[-1].startswith("error: the scheduler")
    assert not (tmp_path / "model").exists()
