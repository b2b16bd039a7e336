import csv

import numpy as np
import pytest

from calipers_study.cells import Estimate, Results, TableCell, share_reproduced
from calipers_study.layout import LAYOUTS, markdown
from calipers_study.measures import combine, measure, measure_trial, members
from calipers_study.store import StoreEntry, StoreError
from calipers_study.tables import write_tables
from calipers_study.verdict import Published, published_cells

COLUMNS = "table,dataset,method,metric,mean,sem,published_mean,published_sem,verdict"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def trial(loss: str = "qd", method: str = "qd", **arrays: list[list[float]]) -> StoreEntry:
    record = {"method": method, "dataset": "yacht", "settings": {"coverage": 0.95, "loss": loss}}
    fields = {name: np.array(values, dtype=np.float32) for name, values in arrays.items()}
    count = len(next(iter(fields.values())))
    return StoreEntry(
        record,
        {
            "target": np.array([0.0, 1.0]),
            "members": np.arange(count),
            "retries": np.array([0, 3]),
            **fields,
        },
    )


BOUNDS = {
    "lower": [[-1.0, 0.0], [-3.0, 0.0]],
    "point": [[0.0, 0.5], [1.0, 0.5]],
    "upper": [[1.0, 2.0], [1.0, 2.0]],
}


def test_sem_by_hand():
    """Lower bounds -1 and -3: mean -2, standard deviation sqrt(2), standard error 1."""
    found = combine(trial(**BOUNDS), "sem")
    np.testing.assert_allclose(found.lower, [-2 - 1.959964, 0], rtol=1e-6)
    np.testing.assert_allclose(found.upper, [1, 2])
    # The middle of the interval, not the mean of the points.
    np.testing.assert_allclose(found.point, [(-2 - 1.959964 + 1) / 2, 1], rtol=1e-6)
    assert combine(trial("qd+", **BOUNDS), "sem").point.tolist() == [0.5, 0.5]


def test_measures_by_hand():
    one, two = members(trial(**BOUNDS))
    target = np.array([0.0, 1.0])
    assert measure(one, target, coverage=0.95) == {
        "MSE": 0.125, "PICP": 1.0, "MPIW": 2.0, "interval score": 2.0
    }  # fmt: skip
    assert measure(two, target, coverage=0.95)["MPIW"] == 3.0


def test_mixture_of_equal_normals_is_that_normal():
    both = {"mean": [[0.0, 0.0]] * 2, "scale": [[1.0, 2.0]] * 2}
    found = combine(trial("normal", "mve", **both), "normal")
    np.testing.assert_allclose(found.upper, [1.959964, 3.919928], rtol=1e-6)
    np.testing.assert_allclose(found.lower, -found.upper)


def test_snm_of_equal_members_is_their_interval():
    same = {name: [values[0]] * 2 for name, values in BOUNDS.items()}
    found = combine(trial("qd+", "qd+", **same), "snm")
    np.testing.assert_allclose(found.lower, same["lower"][0], atol=1e-12)
    np.testing.assert_allclose(found.upper, same["upper"][0], atol=1e-12)


def test_points_alone():
    found = measure_trial(trial("mse", "mse", point=[[0.0, 0.0], [2.0, 0.0]]))
    assert found == {"mean": [{"MSE": 1.0}]}


def test_estimates():
    made = trial(**BOUNDS)
    results = Results([made, made], [measure_trial(made)] * 2)
    # Widths of the members 2, 3, 2, 3: standard deviation 1 / sqrt(3), over 2.
    assert results.estimate("members", "MPIW") == pytest.approx((2.5, 3**-0.5 / 2))
    assert results.estimate("sem", "MPIW").sem == 0
    assert results.failures == (6.0, 6**0.5)
    assert results.networks == 4
    assert Results([made], [measure_trial(made)]).estimate("sem", "MPIW").sem is None
    assert Results([], []).estimate("sem", "MPIW") == (None, None)


def test_rebuilt_without_training(store, tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.bank.train", None)
    monkeypatch.setattr("calipers_study.attempts.train", None)
    line = write_tables(store, tmp_path)
    assert line.startswith("table1, table2: ")
    assert "88 without results" in line
    assert (tmp_path / "cells.csv").read_text().splitlines()[0] == COLUMNS
    cells = rows(tmp_path / "cells.csv")
    assert len(cells) == 230
    here = [c for c in cells if c["dataset"] in ("boston", "yacht")]
    assert all(c["mean"] for c in here)
    assert {c["verdict"] for c in cells if c["dataset"] == "year"} == {"missing"}
    assert {c["verdict"] for c in here} <= {"agrees", "better", "worse"}


def test_cells_follow_from_trials(store, tmp_path):
    write_tables(store, tmp_path)
    [cell] = [
        c
        for c in rows(tmp_path / "cells.csv")
        if (c["table"], c["dataset"], c["method"], c["metric"])
        == ("table1", "yacht", "SNM-QD+", "MPIW")
    ]
    trials = [
        r
        for r in rows(tmp_path / "trials.csv")
        if (r["method"], r["dataset"], r["aggregation"]) == ("qd+", "yacht", "snm")
    ]
    values = [float(r["MPIW"]) for r in trials]
    assert len(values) == 2
    assert float(cell["mean"]) == pytest.approx(np.mean(values))
    assert float(cell["sem"]) == pytest.approx(abs(values[0] - values[1]) / 2)
    for name in ("seed", "device", "finished", "seconds", "versions", "settings"):
        assert trials[0][name]


def test_layout_of_the_paper(store, tmp_path):
    write_tables(store, tmp_path)
    first = (tmp_path / "tables" / "table1.md").read_text().splitlines()
    header = [name.strip() for name in first[2].strip("|").split("|")]
    assert header[:3] == ["dataset", "PICP<br>SNM-QD+", "PICP<br>SEM-QD+"]
    assert header[5] == "MPIW<br>SNM-QD+"
    assert len(header) == 9
    assert first[4].startswith("| boston | ")
    assert "<br>0.95 ± 0.01 " in first[4]
    third = (tmp_path / "tables" / "tableC.md").read_text()
    assert "| naval | 11934 | 16 | missing<br>0.012 ± 0.001 |" in third
    fourth = (tmp_path / "tables" / "tableD.md").read_text()
    assert "| kin8nm | missing<br>0 | missing<br>2 | missing<br>100 |" in fourth
    for layout in LAYOUTS:
        assert len(rows(tmp_path / "tables" / f"{layout.name}.csv")) == 10
    scores = rows(tmp_path / "tables" / "interval_score.csv")
    assert float(scores[0]["SNM-QD+ mean"]) > 0
    assert scores[-1]["MVE mean"] == ""
    summary = (tmp_path / "tables" / "summary.md").read_text()
    assert "- year: its 23 cells have no results" in summary
    assert "`calipers study run --dataset year`" in summary
    assert "| MPIW |" in summary.partition("## All cells at once")[2]
    assert "- QD+ on yacht: 2 of 20 trials" in summary


def test_cell_says_how_many_networks_it_rests_on():
    made = trial("qd", "qd-1-layer", **{name: values[:1] for name, values in BOUNDS.items()})
    results = Results([made], [measure_trial(made)])
    assert results.note == "1 of 2 networks"
    paper = Published("tableB", "protein", "QD 1-layer", "PICP", "0.94", 0.0)
    cells = [
        TableCell(
            Published(c.table, c.dataset, c.method, c.metric, c.printed, c.sem),
            Estimate(None, None),
            "missing",
        )
        for c in published_cells()
        if c.table == "tableB"
        and (c.dataset, c.method, c.metric) != ("protein", "QD 1-layer", "PICP")
    ]
    [layout] = [one for one in LAYOUTS if one.name == "tableB"]
    text = markdown(layout, [*cells, TableCell(paper, Estimate(0.94, 0.0), "agrees", results.note)])
    assert "0.94 ± 0.00<br>0.94 ± 0.00 =<br>(1 of 2 networks)" in text


def test_summary_line():
    paper = Published("table1", "boston", "MVE", "PICP", "0.88", 0.01)
    said = ["agrees", "agrees", "better", "worse", "missing"]
    cells = [TableCell(paper, Estimate(0.9, 0.0), word) for word in said]
    assert share_reproduced(cells) == (
        "table1, table2: of 4 cells 2 agree (50.0%), 1 are better, 1 worse; 1 without results"
    )


def test_empty_store(tmp_path):
    with pytest.raises(StoreError, match="holds no trials"):
        write_tables(tmp_path / "nowhere", tmp_path)
