"""Measures and comparisons of ``benchmarks/peers.py``: small numbers worked out by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

pd = pytest.importorskip("pandas")
import peers  # noqa: E402
from _peers_data import sample_crps  # noqa: E402
from _peers_forecast import (  # noqa: E402
    Forecast,
    conformal,
    of_quantiles,
    of_samples,
    quantile_bounds,
)
from _peers_methods import Method  # noqa: E402
from _peers_pages import PAGES, ROOT, Comparison, updated  # noqa: E402
from _peers_published import fold_task  # noqa: E402
from _peers_table import paired, ranks, strongest  # noqa: E402


def test_crps_of_draws_is_the_double_sum():
    rng = np.random.default_rng(0)
    draws, target = rng.normal(size=(4, 7)), rng.normal(size=4)
    between = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    expected = np.abs(draws - target[:, None]).mean(axis=1) - between / 2
    np.testing.assert_allclose(sample_crps(draws, target), expected, rtol=1e-12)


def test_bounds_between_quantiles_are_interpolated():
    levels = np.array([0.1, 0.5, 0.9])
    lower, upper = quantile_bounds(levels, np.array([[0.0, 4.0, 8.0]]))(0.4)
    np.testing.assert_allclose([lower[0], upper[0]], [2.0, 6.0])


def test_conformal_correction_moves_bounds_by_the_held_out_rank():
    y = np.arange(1.0, 20.0)
    held = np.zeros((len(y), 2))
    correct = conformal(lambda coverage: held.T, y)
    lower, upper = correct(lambda coverage: (np.zeros(1), np.zeros(1)))(0.9)
    assert (lower[0], upper[0]) == (-18.0, 18.0)  # rank ceil(20 * 0.9) of 1, ..., 19


def test_forecasts_of_draws_and_of_their_quantiles_agree():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(5, 20_000))
    levels = np.linspace(0.005, 0.995, 199)
    quantiles = np.quantile(draws, levels, axis=1).T
    one, other = of_samples(draws), of_quantiles(levels, quantiles)
    target = rng.normal(size=5)
    np.testing.assert_allclose(one.interval(0.8), other.interval(0.8), atol=0.01)
    np.testing.assert_allclose(one.crps(target), other.crps(target), atol=0.01)


def rows_of(scores):
    """Rows of one dataset from ``{method: {split: score}}``."""
    return pd.DataFrame(
        [
            {"dataset": "yacht", "method": method, "split": split, "interval_score": score}
            for method, found in scores.items()
            for split, score in found.items()
        ]
    )


def test_methods_are_compared_on_the_splits_of_both():
    rows = rows_of({"a": {0: 1.0, 1: 9.0}, "b": {0: 2.0}, "c": {0: 3.0, 1: 3.0}})
    assert paired(rows, "yacht", "a", "b", "interval_score")[0] == 0.5
    assert ranks(rows, "interval_score")["yacht"].to_dict() == {"a": 2, "b": 2, "c": 2}
    other, values = strongest(rows, "yacht", "a", "interval_score")
    assert (other, values[3]) == ("c", 2)


def test_published_folds_are_disjoint_and_hold_every_row():
    X, y = np.zeros((20, 1)), np.arange(20.0)
    tasks = [fold_task(X, y, fold) for fold in range(6)]
    tested = np.concatenate([task.mean + task.unit * task.y_test for task in tasks])
    np.testing.assert_allclose(np.sort(tested), y)
    assert all(not set(task.y) & set(task.y_test) for task in tasks)
    assert sorted(np.concatenate([task.y_unit for task in tasks])) == sorted([*y] * 5)


def test_ties_that_are_shared_out_have_a_file_of_their_own(tmp_path, monkeypatch):
    def forecast(task, coverage):
        ends = np.zeros(2), np.ones(2)
        return Forecast(ends[0], lambda c: ends, shared=lambda target, c: c + 0.25)

    monkeypatch.setitem(peers.METHODS, "calipers", Method(forecast, ("numpy",), any_coverage=True))
    task = fold_task(np.zeros((12, 1)), np.arange(12.0), 0)
    plain = {"dataset": "wine", "method": "calipers", "split": 3, "grouped": 0, "train_rows": ""}
    for identity in (plain, {**plain, "grouped": 1}):
        assert not peers.run_split("calipers", task, identity, [0.95], set(), tmp_path / "rows.csv")
    rows, ties = (pd.read_csv(tmp_path / name) for name in ("rows.csv", "ties.csv"))
    assert tuple(rows.columns) == peers.FIELDS
    assert len(rows) == 10
    assert len(ties) == 5  # of the plain split alone
    np.testing.assert_allclose(ties["shared"], ties["coverage"] + 0.25)


@pytest.mark.long
def test_pages_say_what_stored_rows_say():
    comparison = Comparison(ROOT / "results" / "peers")
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert updated(text, comparison) == text, f"python benchmarks/peers.py table for {page}"
    stale = "<!-- small_fits -->1 s<!-- /small_fits --> <!-- sizes -->2 MB<!-- /sizes -->"
    found = updated(stale, comparison)
    assert f"-->{comparison.small_fits}<!--" in found
    assert found.endswith("<!-- sizes -->2 MB<!-- /sizes -->")
