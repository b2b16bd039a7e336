import pytest

from calipers_study.bias import biases, standardised_difference
from calipers_study.cells import Estimate, TableCell
from calipers_study.verdict import Published


def made(dataset, method, ours, metric="MPIW", printed="1.00"):
    return TableCell(
        Published("table1", dataset, method, metric, printed, 0.04), Estimate(ours, 0.03), "agrees"
    )


def test_difference_by_hand():
    # sqrt(0.03^2 + 0.04^2 + 0.005^2 / 3) = 0.050083
    assert standardised_difference(made("boston", "MVE", 1.1)) == pytest.approx(
        0.1 / 0.050083, rel=1e-4
    )


def test_small_differences_to_one_side_are_seen():
    names = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine")
    cells = [made(name, "MVE", 1.02 + 0.001 * i) for i, name in enumerate(names)]
    [found] = biases(cells)
    assert (found.metric, found.cells, found.higher, found.groups) == ("MPIW", 8, 8, 8)
    assert found.sign_p == pytest.approx(2 / 2**8)
    assert found.t_p < 0.001
    assert found.relative == pytest.approx(0.0235)


def test_cells_of_the_same_networks_count_once():
    cells = [made("boston", method, 1.1) for method in ("SNM-QD+", "SEM-QD+", "QD+")]
    [found] = biases([*cells, made("wine", "QD+", 0.9)])
    assert (found.cells, found.groups, found.groups_higher) == (4, 2, 1)
    assert (found.datasets, found.datasets_higher, found.dataset_p) == (2, 1, 1.0)
    assert biases([made("boston", "MVE", 1.0, metric="failures")]) == []
