import dataclasses
import json
import signal
from pathlib import Path

import numpy as np
import pytest

from calipers.datasets import CATALOGUE, DatasetUnavailableError
from calipers_study.methods import METHODS
from calipers_study.run import run
from calipers_study.splits import paper_splits
from calipers_study.status import status
from calipers_study.store import ResultStore, StoreError
from calipers_study.tables import write_tables

from .conftest import arrays_of, settings_text, write_settings


def products(out: Path) -> dict[str, bytes]:
    """Everything that tables write, but for what says when trials were made and how long."""
    timed = ("trials.csv", "time.md")
    paths = [p for p in out.rglob("*") if p.is_file() and p.name not in timed]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in paths}


def entries(store: Path) -> list[str]:
    return ResultStore(store).names()


def test_entry_holds_predictions_and_how_they_came_about(store):
    entry = ResultStore(store).read("qd-plus/yacht/trial-01")
    split = paper_splits("yacht", trials=2)[1]
    with np.load(store.parent / "data" / "yacht.npz") as data:
        y = data["y"]
    np.testing.assert_allclose(entry.arrays["target"], (y[split.test] - y.mean()) / y.std())
    assert entry.arrays["lower"].shape == (2, len(split.test))
    assert entry.arrays["lower"].dtype == np.float32
    assert entry.arrays["members"].tolist() == [0, 1]
    assert len(set(entry.arrays["seeds"].tolist())) == 2
    record = entry.record
    assert (record["method"], record["dataset"], record["trial"]) == ("qd+", "yacht", 1)
    assert record["settings"]["coverage_weight"] == 0.99
    assert record["seed"] == 0
    assert {"calipers", "jax", "numpy", "python"} <= set(record["versions"])
    assert record["device"]
    assert record["finished"].endswith("+00:00")
    assert record["seconds"] > 0


def test_finished_work_is_not_repeated(store, mini):
    before = {name: (store / f"{name}.safetensors").stat().st_mtime_ns for name in entries(store)}
    lines = []
    report = run(
        datasets=["yacht"], store=store, settings=mini / "settings", notify=lines.append, n_jobs=1
    )
    assert (report.trained, report.kept) == (0, 2 * len(METHODS))
    assert lines[0] == "QD+ on yacht: all 2 trials are in the store"
    after = {name: (store / f"{name}.safetensors").stat().st_mtime_ns for name in entries(store)}
    assert after == before


def test_bits_do_not_depend_on_what_else_is_trained(store, mini, tmp_path):
    options = {"store": tmp_path, "settings": mini / "settings", "n_jobs": 1}
    run(["qd"], ["yacht"], trials_per_bank=1, **options)
    for name in entries(tmp_path):
        mine = arrays_of(tmp_path / f"{name}.safetensors")
        theirs = arrays_of(store / f"{name}.safetensors")
        assert mine.keys() == theirs.keys()
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])


# Each entry syncs its file before it is moved into place, and its folder after; programs that are
# compiled and kept meanwhile do not count. What is killed is a fork, made before JAX has computed
# anything: a second process would take seconds to import.
KILL = """
import os, shutil, signal, types
from calipers_study import files
from calipers_study.run import run
calls = 0
def fsync(handle):
    global calls
    calls += 1
    if calls == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    os.fsync(handle)
files.os = types.SimpleNamespace(**vars(os) | dict(fsync=fsync))
options = dict(store={store!r}, settings={settings!r}, trials_per_bank=1, n_jobs=1)
for moment in (3, 4):  # before the second move, and after the second again
    if not (child := os.fork()):
        run(["qd+", "mse"], ["yacht"], **options)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    shutil.copytree({store!r}, {store!r} + f"-{{moment}}")
"""


@pytest.mark.long
def test_killed_run_is_resumed_to_the_same_bytes(mini, python, tmp_path):
    settings = write_settings(tmp_path / "settings", trials=4)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    result = python(KILL.format(store=str(killed), settings=str(settings)))
    assert result.stdout.split() == [str(-signal.SIGKILL)] * 2, result.stderr
    survivors: dict[str, bytes] = {}
    for moment, done in ((3, 1), (4, 3)):
        left = tmp_path / f"killed-{moment}"
        assert entries(left) == [f"qd-plus/yacht/trial-{i:02d}" for i in range(done)]
        now = {name: (left / f"{name}.safetensors").read_bytes() for name in entries(left)}
        assert survivors.items() <= now.items()
        survivors = now

    options = {"settings": settings, "n_jobs": 1}
    report = run(["qd+", "mse"], ["yacht"], store=killed, **options)
    assert (report.trained, report.kept) == (5, 3)
    assert not list(killed.rglob("*.part"))
    for name, content in survivors.items():
        assert (killed / f"{name}.safetensors").read_bytes() == content

    run(["qd+", "mse"], ["yacht"], store=whole, **options)
    assert entries(killed) == entries(whole)
    for name in entries(whole):
        mine = arrays_of(killed / f"{name}.safetensors")
        for key, values in arrays_of(whole / f"{name}.safetensors").items():
            assert values.tobytes() == mine[key].tobytes()
    for folder in (killed, whole):
        write_tables(folder, tmp_path / f"{folder.name}-out")
    assert products(tmp_path / "killed-out") == products(tmp_path / "whole-out")


def test_networks_that_fail_ten_times_are_recorded_and_the_run_continues(mini, tmp_path):
    settings = write_settings(tmp_path / "settings", trials=1, rate=1e30)
    lines = []
    report = run(
        ["qd"], ["yacht"], store=tmp_path / "s", settings=settings, notify=lines.append, n_jobs=1
    )
    assert (report.trained, report.retries, report.lost) == (1, 20, 2)
    assert "2 networks given up after 10 tries" in lines[0]
    entry = ResultStore(tmp_path / "s").read("qd/yacht/trial-00")
    assert entry.arrays["lower"].shape == (0, 6)
    assert entry.arrays["retries"].tolist() == [10, 10]
    write_tables(tmp_path / "s", tmp_path / "out")
    cells = (tmp_path / "out" / "cells.csv").read_text()
    assert "table1,yacht,SEM-QD,PICP,,,1.00,0.0,missing" in cells
    assert "tableD,yacht,QD,failures,20.0," in cells
    assert "2 networks given up" in (tmp_path / "out" / "tables" / "summary.md").read_text()


def test_store_of_other_settings_is_refused(store, mini, tmp_path):
    other = write_settings(tmp_path / "settings", rate=0.02)
    with pytest.raises(StoreError, match="other settings or another seed"):
        run(["mse"], ["yacht"], store=store, settings=other)
    with pytest.raises(StoreError, match="other settings or another seed"):
        run(["mse"], ["yacht"], store=store, settings=mini / "settings", seed=1)


def test_damaged_entry_is_trained_again(store, mini, tmp_path):
    options = {"store": tmp_path, "settings": mini / "settings", "n_jobs": 1}
    run(["mse"], ["yacht"], **options)
    path = tmp_path / "mse" / "yacht" / "trial-01.safetensors"
    whole = arrays_of(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StoreError, match="is damaged"):
        write_tables(tmp_path, tmp_path / "out")
    assert run(["mse"], ["yacht"], **options).trained == 1
    np.testing.assert_array_equal(arrays_of(path)["point"], whole["point"])


def test_datasets_that_cannot_be_had(mini, tmp_path, monkeypatch):
    monkeypatch.setenv("CALIPERS_MIRROR", "nowhere")  # no address, so not tried again
    lines = []
    options = {"store": tmp_path, "settings": mini / "settings", "n_jobs": 1}
    report = run(["mse"], trials=1, notify=lines.append, **options)
    assert report.trained == 2
    assert report.left_out["year"] == "its full file is not on this machine"
    assert "year is left out: its full file is not on this machine" in lines
    assert "naval" in report.left_out
    with pytest.raises(DatasetUnavailableError, match="naval"):
        run(["mse"], ["naval"], **options)


def test_status_counts_trials_and_time(store, mini, tmp_path):
    parts = {(p.method, p.dataset): p for p in status(store, settings=mini / "settings")}
    assert (parts["qd+", "yacht"].done, parts["qd+", "yacht"].wanted) == (2, 2)
    assert parts["qd+", "yacht"].seconds > 0
    assert (parts["qd+", "naval"].done, parts["qd+", "naval"].wanted) == (0, 20)
    assert all(p.done == 0 for p in status(tmp_path / "nowhere"))


def test_one_writer_at_a_time(tmp_path):
    first, second = ResultStore(tmp_path).writing(), ResultStore(tmp_path).writing()
    with first, pytest.raises(StoreError, match="another run"), second:
        pass
    with ResultStore(tmp_path).writing():
        assert (tmp_path / ".gitignore").read_text().endswith("*\n")


def test_record_is_plain_json(tmp_path):
    store = ResultStore(tmp_path)
    store.write("a/b", {"seed": 0, "text": "é"}, {"x": np.arange(3)})
    assert json.dumps(store.record("a/b"))
    assert store.record("a/c") is None
    with pytest.raises(StoreError, match="is not there"):
        store.read("a/c")


def test_year_fills_its_cells_once_its_file_is_there(tmp_path, monkeypatch):
    """A made-up file in the layout of year's source, first rows to train and the rest to test."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 90)).round(3)
    years = np.clip(1990 + 5 * X[:, 0], 1922, 2011).astype(int)
    rows = [",".join(map(str, [year, *row])) for year, row in zip(years, X, strict=True)]
    (tmp_path / "YearPredictionMSD.txt").write_text("\n".join(rows) + "\n")
    small = dataclasses.replace(CATALOGUE["year"], rows=80, train_rows=70)
    monkeypatch.setitem(CATALOGUE, "year", small)
    settings = tmp_path / "settings"
    settings.mkdir()
    text = settings_text("mse", trials=1).replace("yacht = {}", "year = {}")
    (settings / "mse.toml").write_text(text)
    report = run(
        ["mse"], ["year"], store=tmp_path / "store", settings=settings, folder=tmp_path,
        verify=False, visible=False,
    )  # fmt: skip
    assert (report.trained, report.left_out) == (1, {})
    write_tables(tmp_path / "store", tmp_path)
    table = (tmp_path / "tables" / "table2.md").read_text()
    [line] = [line for line in table.splitlines() if line.startswith("| year")]
    filled, *others = line.split(" | ")[1:]
    assert "missing" not in filled
    assert all("missing" in cell for cell in others)
    assert "- year: its" not in (tmp_path / "tables" / "summary.md").read_text()
