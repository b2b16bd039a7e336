"""The whole study in one call, and where its time went."""

import csv
import json

import numpy as np
import pytest

from calipers_study import full_study
from calipers_study.cells import Results, collect
from calipers_study.experiment_tables import experiments_markdown, leans_markdown
from calipers_study.store import ResultStore, StoreEntry
from calipers_study.times import time_markdown


def test_stages_follow_each_other_and_are_timed(tmp_path, monkeypatch):
    done = []
    for name in ("run", "run_extras", "search_settings", "write_tables", "write_figures"):
        monkeypatch.setattr(full_study, name, lambda *_, name=name, **own: done.append((name, own)))
    lines = []
    seconds = full_study.run_all(
        store="s", out=tmp_path, max_steps=7, processes=3, notify=lines.append
    )
    assert [name for name, _ in done] == [
        "run", "run_extras", "search_settings", "write_tables", "write_figures"
    ]  # fmt: skip
    assert done[0][1]["processes"] == done[2][1]["processes"] == 3
    assert done[2][1]["protocol"].max_steps == 7
    assert done[2][1]["published"] == done[1][1]["store"] == "s"
    with (tmp_path / "stages.csv").open(newline="") as file:
        assert {row["stage"]: float(row["seconds"]) for row in csv.DictReader(file)} == seconds
    assert len(lines) == len(seconds) == 5


def test_a_sitting_that_is_stopped_leaves_its_time(tmp_path, monkeypatch):
    def stopped(**_):
        raise KeyboardInterrupt

    for name in ("run", "search_settings", "write_tables", "write_figures"):
        monkeypatch.setattr(full_study, name, lambda *_, **own: None)
    monkeypatch.setattr(full_study, "run_extras", stopped)
    with pytest.raises(KeyboardInterrupt):
        full_study.run_all(out=tmp_path)
    monkeypatch.setattr(full_study, "run_extras", lambda **_: None)
    full_study.run_all(out=tmp_path)
    with (tmp_path / "stages.csv").open(newline="") as file:
        found = [(row["stage"], row["finished"]) for row in csv.DictReader(file)]
    assert found[:3] == [
        ("five trainings", "yes"), ("beside the paper", "no"), ("five trainings", "yes")
    ]  # fmt: skip
    assert len(found) == 7


def test_time_is_that_of_the_records(store, tmp_path):
    record = {"seconds": 2.0, "device": "chip"}
    arrays = {"members": np.arange(1), "retries": np.zeros(1)}
    found = {key: Results([], []) for key in collect(ResultStore(store))}
    for key, ends in {("qd+", "yacht"): (10, 12), ("mse", "yacht"): (15, 25)}.items():
        trials = [
            StoreEntry({**record, "finished": f"2026-01-01T00:00:{end}+00:00"}, arrays)
            for end in ends
        ]
        found[key] = Results(trials, [])
    place = tmp_path / "extras" / "shift" / "a" / "wine.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"name": "mve", "seconds": 9.5, "device": "chip", "rows": []}))
    text = time_markdown(ResultStore(tmp_path), found)
    assert "| QD+ | 4 | 4 |" in text
    assert "one chip: 17 s from" in text  # from 8, four seconds before 12, to 25
    assert "| shift | chip | mve on wine, 10 s | 1 | 10 |" in text


def second(trial, mse, **more):
    place = {"variant": "other shuffles and seeds", "method": "mse", "dataset": "yacht"}
    return {**place, "trial": trial, "aggregation": "mean", "retries": 0, "MSE": mse, **more}


def test_a_second_draw_is_compared_with_the_paper_and_with_the_first(store, tmp_path):
    place = tmp_path / "extras" / "experiments" / "a" / "yacht.json"
    place.parent.mkdir(parents=True)
    rows = [second(i, 10.0 + i, **{"late MSE": [1.0, 4.0, 10.0]}) for i in (0, 1)]
    place.write_text(json.dumps({"name": "mse: other shuffles and seeds", "rows": rows}))
    results = collect(ResultStore(store))
    text = leans_markdown(ResultStore(tmp_path), results)
    assert text.count("| MSE | 1 | 1 | 1 | 1 |") >= 2  # second draw above both
    assert leans_markdown(ResultStore(store), results) is None
    shown = experiments_markdown(ResultStore(tmp_path), results)
    line = "| yacht | other shuffles and seeds | 2 | 1.0e+00 | 4.0e+00 | 1.0e+01 | 10.0 |"
    assert f"{line} 1.0e+00 to 1.0e+01 | 0 |" in shown
