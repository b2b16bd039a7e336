from collections import Counter

import pytest

from calipers.datasets import CATALOGUE
from calipers_study.verdict import Published, published_cells, verdict


def cell(metric: str, printed: str, sem: float | None = None) -> Published:
    return Published("table1", "boston", "SNM-QD+", metric, printed, sem)


# Tolerances by hand: 2 sqrt(sem^2 + published_sem^2) + half a unit of the last printed digit.
CASES = [
    # 2 * sqrt(0.003^2 + 0.004^2) + 0.005 = 0.015
    ("PICP", "0.95", 0.004, 0.965, 0.003, "agrees", "agrees"),
    ("PICP", "0.95", 0.004, 0.9651, 0.003, "agrees", "worse"),
    ("PICP", "0.88", 0.0, 0.884, None, "agrees", "agrees"),
    ("PICP", "0.88", 0.0, 0.886, None, "agrees", "better"),
    ("PICP", "0.88", 0.0, 0.874, None, "agrees", "worse"),
    ("PICP", "0.97", 0.0, 0.95, 0.0, "agrees", "better"),
    # As far from 0.95 as the published one, on the other side, is not closer.
    ("PICP", "1.00", 0.0, 0.90, 0.0, "agrees", "worse"),
    # 2 * 0.05 + 0.005 = 0.105
    ("MPIW", "1.58", 0.03, 1.475, 0.04, "agrees", "agrees"),
    ("MPIW", "1.58", 0.03, 1.474, 0.04, "agrees", "better"),
    ("MPIW", "1.58", 0.03, 1.474, 0.04, "better", "better"),
    ("MPIW", "1.58", 0.03, 1.474, 0.04, "worse", "worse"),
    ("MPIW", "1.58", 0.03, 1.475, 0.04, "worse", "agrees"),
    ("MPIW", "1.58", 0.03, 1.686, 0.04, "agrees", "worse"),
    # A missing standard error counts as zero.
    ("MPIW", "2.34", None, 2.345, None, "agrees", "agrees"),
    ("MPIW", "2.34", None, 2.346, None, "agrees", "worse"),
    # 0 + 0.0005
    ("MSE", "0.001", 0.0, 0.0015, 0.0, "agrees", "agrees"),
    ("MSE", "0.001", 0.0, 0.0016, 0.0, "agrees", "worse"),
    ("MSE", "0.112", 0.0, 0.111, 0.0, "agrees", "better"),
    # Two digits of 4.8e-5: half a unit is 5e-7.
    ("MSE", "4.8e-5", 0.0, 4.85e-5, 0.0, "agrees", "agrees"),
    ("MSE", "4.8e-5", 0.0, 4.86e-5, 0.0, "agrees", "worse"),
    ("MSE", "4.8e-5", 0.0, 4.7e-5, 0.0, "agrees", "better"),
    # Counts: 2 sqrt(25 + 33) + 0.5 = 15.7
    ("failures", "33", None, 25.0, 5.0, "agrees", "agrees"),
    ("failures", "0", None, 0.0, 0.0, "agrees", "agrees"),
    # 2 sqrt(7) + 0.5 = 5.8, 2 sqrt(4) + 0.5 = 4.5
    ("failures", "0", None, 7.0, 7**0.5, "agrees", "worse"),
    ("failures", "0", None, 4.0, 2.0, "agrees", "agrees"),
    # 2 sqrt(33 + 5) + 0.5 = 12.8
    ("failures", "33", None, 5.0, 5**0.5, "agrees", "better"),
    ("target_models", "100", None, 100.0, None, "agrees", "agrees"),
    ("target_models", "100", None, 95.0, None, "agrees", "worse"),
    ("MSE", "0.112", 0.0, None, None, "agrees", "missing"),
]


@pytest.mark.parametrize(
    ("metric", "printed", "published_sem", "mean", "sem", "coverage", "expected"), CASES
)
def test_rule(metric, printed, published_sem, mean, sem, coverage, expected):
    said = verdict(cell(metric, printed, published_sem), mean, sem, coverage_verdict=coverage)
    assert said == expected


@pytest.mark.parametrize(
    ("printed", "half"), [("0.95", 0.005), ("0.060", 0.0005), ("4.8e-5", 5e-7), ("33", 0.5)]
)
def test_half_unit(printed, half):
    assert cell("MSE", printed).half_unit == pytest.approx(half, rel=1e-12)


def test_published_cells_are_complete():
    cells = published_cells()
    counts = Counter(c.table for c in cells)
    assert counts == {
        "table1": 80, "table2": 30, "tableA": 40, "tableB": 40, "tableC": 10, "tableD": 30
    }  # fmt: skip
    assert len({(c.table, c.dataset, c.method, c.metric) for c in cells}) == 230
    assert {c.dataset for c in cells} == set(CATALOGUE)
    found = {(c.table, c.dataset, c.method, c.metric): (c.printed, c.sem) for c in cells}
    assert found["table1", "boston", "SNM-QD+", "MPIW"] == ("1.58", 0.06)
    assert found["table1", "power", "SNM-QD+", "MPIW"] == ("0.80", 0.0)
    assert found["table1", "year", "MVE", "PICP"] == ("0.96", None)
    assert found["table2", "naval", "MVE", "MSE"] == ("1.2e-4", 0.0)
    assert found["tableC", "boston", "SEM-QD*", "MSE"] == ("0.209", 0.03)
    assert found["tableD", "yacht", "QD", "failures"] == ("33", None)


def test_coverage_stands_before_width():
    """The verdict on MPIW needs the one on the same method's PICP."""
    seen = set()
    for c in published_cells():
        if c.metric == "PICP":
            seen.add((c.table, c.dataset, c.method))
        if c.metric == "MPIW":
            assert (c.table, c.dataset, c.method) in seen
