"""The search of the study, in miniature: made-up data, few candidates, two trials.

Under the name of kin8nm, whose published settings train for the fewest epochs.
"""

import csv
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from calipers.datasets import CATALOGUE
from calipers_study.search import Protocol, keep_settings, search_settings
from calipers_study.settings import load_settings
from calipers_study.translation import PARAMETERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (308, 6))
    y = X @ np.arange(6.0) + rng.normal(0, 0.5, 308)
    place = tmp_path_factory.mktemp("data")
    np.savez(place / "kin8nm.npz", X=X, y=y)
    return place


@pytest.mark.long
def test_end_to_end_and_again(folder, tmp_path, monkeypatch):
    few = dataclasses.replace(CATALOGUE["kin8nm"], rows=308, feature_names=tuple("abcdef"))
    monkeypatch.setitem(CATALOGUE, "kin8nm", few)
    lines = []

    def go(select):
        protocol = Protocol(candidates=4, select=select, finalists=1, max_epochs=60, patience=60)
        return search_settings(
            ["kin8nm"],
            protocol,
            trials=2,
            out=tmp_path / "search",
            published=tmp_path / "study",
            folder=folder,
            verify=False,
            visible=False,
            notify=lines.append,
        )

    found = go("covered")
    assert [(row.settings, row.trials) for row in found] == [
        ("published", "trial 0"),
        ("published", "mean of 2 trials"),
        ("searched", "trial 0"),
        ("searched", "mean of 2 trials"),
    ]
    for row in found:
        assert set(row.mean) == {"PICP", "MPIW", "interval score", "MSE"}
        assert 0 < row.mean["MPIW"] <= row.mean["interval score"]
    place = tmp_path / "search" / "covered"
    chosen = load_settings("qd+", "kin8nm", folder=place / "settings")
    assert chosen.hidden_layers == (50, 50)
    assert chosen.epochs <= 60
    with (place / "search.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[3]["interval score"]) == pytest.approx(
        found[3].mean["interval score"], rel=1e-5
    )
    candidates = (tmp_path / "search" / "candidates" / "kin8nm.jsonl").read_bytes()
    assert go("covered") == found
    assert sum("trials are in the store" in line for line in lines) == 2
    go("paper")
    assert (tmp_path / "search" / "candidates" / "kin8nm.jsonl").read_bytes() == candidates


def test_chosen_settings_of_all_datasets_are_in_one_file(tmp_path):
    for dataset, rate in (("wine", 0.5), ("boston", 0.25), ("wine", 0.125)):
        best = {PARAMETERS["learning_rate"]: rate, PARAMETERS["epochs"]: 7, "schedule": "constant"}
        keep_settings(SimpleNamespace(best_params=best, select="covered"), dataset, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["qd-plus.toml"]
    for dataset, rate in (("boston", 0.25), ("wine", 0.125)):
        found = load_settings("qd+", dataset, folder=tmp_path)
        published = load_settings("qd+", dataset)
        assert found == dataclasses.replace(published, learning_rate=rate, epochs=7)
    assert load_settings("qd+", "yacht", folder=tmp_path) == load_settings("qd+", "yacht")


def test_limits_of_large_datasets():
    assert Protocol().limits(277, 100) == (5000, 500)
    epochs, patience = Protocol(max_steps=37_100).limits(41_157, 100)
    assert (epochs, patience) == (100, 10)
    assert Protocol(max_steps=None).limits(41_157, 100) == (5000, 500)
