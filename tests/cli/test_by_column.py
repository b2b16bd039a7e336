"""Coverage in groups of rows: what ``evaluate --by`` prints is what a report draws."""

import numpy as np
import pandas as pd
import pytest

from calipers._evaluation import LabelledPrediction
from calipers.cli._by_column import measure_groups, print_groups
from calipers.preprocessing import Column
from calipers.report._groups import breakdowns
from calipers.report._misses import Input

ROWS = 400


@pytest.fixture
def tied():
    """Counts with intervals from 0 to 2, at whose ends targets have mass."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 4, ROWS).astype(float)
    below = np.array([0.0, 0.3, 0.8, 0.97])[target.astype(int)]
    at = np.array([0.3, 0.8, 0.97, 1.0])[target.astype(int)]
    return LabelledPrediction(
        coverage=0.9,
        levels=np.array([0.9]),
        target=target,
        point=np.ones(ROWS),
        bounds=np.tile(np.array([[0.0], [2.0]]), (ROWS, 1, 1)),
        outside=np.zeros((ROWS, 1), bool),
        pit=rng.uniform(below, at),
        aleatoric=None,
        epistemic=None,
        ties=np.stack([below, at]),
    )


def columns():
    rng = np.random.default_rng(1)
    size = np.where(rng.random(ROWS) < 0.1, np.nan, rng.lognormal(size=ROWS))
    kind = rng.choice(["flat", "house", "loft"], ROWS).astype(object)
    days = np.arange(ROWS) * 86_400.0
    return {
        "number": (size, pd.Series(size)),
        "category": (kind, pd.Series(kind)),
        "date": (days, pd.Series(days.astype("datetime64[s]"))),
    }


@pytest.mark.parametrize("kind", ["number", "category", "date"])
def test_groups_are_those_of_the_report(tied, kind):
    cells, column = columns()[kind]
    drawn = breakdowns(tied, [Input(Column("x", kind), cells, np.zeros(ROWS, bool))])[-1].groups
    found = measure_groups(tied, column)
    assert len(found) > 2
    expected = {(group.rows, group.rate, group.width) for group in drawn}
    assert {(each["rows"], each["shared_rate"], each["mean_width"]) for each in found} == expected
    assert all(each["coverage_rate"] > each["shared_rate"] for each in found)


def test_ties_have_a_column_of_their_own(tied, capsys):
    column = pd.Series(np.repeat(["a", "b"], ROWS // 2))
    print_groups("kind", measure_groups(tied, column))
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["kind", "rows", "observed", "corrected", "mean", "width"]
    assert [row.split()[:2] for row in rows] == [["a", "200"], ["b", "200"]]


def test_groups_are_named_as_they_were(tied):
    column = pd.Series(np.tile([1.0, 2.0, np.nan, 2.5], ROWS // 4))
    groups = measure_groups(tied, column)
    assert [group["group"] for group in groups] == ["(missing)", "1", "2", "2.5"]
