import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calipers.datasets import CATALOGUE, DatasetCorruptError, DatasetUnavailableError, load
from calipers_study.cells import collect, paper_cells
from calipers_study.run import run
from calipers_study.splits import hernandez_lobato_splits, paper_splits, shuffled_splits
from calipers_study.store import ResultStore

SHUFFLED = [name for name, entry in CATALOGUE.items() if entry.train_rows is None]

# Test rows in each published split, and number of splits.
PUBLISHED = {
    "boston": (51, 20),
    "concrete": (103, 20),
    "energy": (77, 20),
    "kin8nm": (819, 20),
    "naval": (1193, 20),
    "power": (957, 20),
    "protein": (4573, 5),
    "wine": (160, 20),
    "yacht": (31, 20),
}


def assert_every_row_once(split, n_rows):
    np.testing.assert_array_equal(np.sort(np.r_[split.train, split.test]), np.arange(n_rows))


@given(st.integers(6, 300), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_shuffled_splits_are_partitions(n_rows, trials, seed):
    splits = shuffled_splits(n_rows, trials=trials, random_state=seed)
    assert len(splits) == trials
    for split in splits:
        assert_every_row_once(split, n_rows)
        assert abs(split.train.size - 0.9 * n_rows) <= 0.5
        assert split.test.size >= 1


def test_half_a_row_goes_to_training():
    assert shuffled_splits(15, trials=1, random_state=0)[0].train.size == 14


def test_a_trial_depends_on_seed_and_number_alone():
    few = shuffled_splits(50, trials=2, random_state=0)
    many = shuffled_splits(50, trials=5, random_state=0)
    other = shuffled_splits(50, trials=2, random_state=1)
    for i in range(2):
        np.testing.assert_array_equal(few[i].train, many[i].train)
        assert (few[i].train != other[i].train).any()
    assert (few[0].train != few[1].train).any()


@pytest.mark.parametrize("bad", [{"n_rows": 5, "trials": 1}, {"n_rows": 9, "trials": 0}])
def test_limits_of_parameters(bad):
    with pytest.raises(ValueError, match="must be at least"):
        shuffled_splits(**bad, random_state=0)


@pytest.mark.parametrize("name", SHUFFLED)
def test_paper_splits(name):
    splits = paper_splits(name, random_state=3)
    test_rows, trials = PUBLISHED[name]
    assert [split.test.size for split in splits] == [test_rows] * trials
    assert_every_row_once(splits[-1], CATALOGUE[name].rows)
    assert len(paper_splits(name, trials=2)) == 2


@pytest.mark.parametrize("splits", [paper_splits, hernandez_lobato_splits])
def test_year_has_its_official_split(splits):
    [split] = splits("year")
    np.testing.assert_array_equal(split.train, np.arange(463_715))
    np.testing.assert_array_equal(split.test, np.arange(463_715, 463_715 + 51_630))


def test_year_has_no_more_than_one_split():
    with pytest.raises(ValueError, match="'year' is fixed"):
        paper_splits("year", trials=20)


@pytest.mark.parametrize("name", SHUFFLED)
def test_hernandez_lobato_splits(name):
    splits = hernandez_lobato_splits(name)
    test_rows, trials = PUBLISHED[name]
    assert [split.test.size for split in splits] == [test_rows] * trials
    for split in splits:
        assert_every_row_once(split, CATALOGUE[name].rows)
        assert (np.diff(split.train) > 0).all()


@pytest.mark.data
@pytest.mark.parametrize("name", SHUFFLED)
def test_rule_gives_the_published_splits(name, data_folder):
    assert (data_folder / "splits" / f"{name}.npz").is_file()
    published = hernandez_lobato_splits(name, folder=data_folder)
    drawn = hernandez_lobato_splits(name)
    assert len(published) == len(drawn)
    for one, other in zip(published, drawn, strict=True):
        np.testing.assert_array_equal(one.train, other.train)
        np.testing.assert_array_equal(one.test, other.test)


@pytest.fixture
def save_splits(tmp_path, monkeypatch):
    tiny = dataclasses.replace(CATALOGUE["yacht"], name="tiny", rows=30)
    monkeypatch.setitem(CATALOGUE, "tiny", tiny)

    def save(**arrays):
        (tmp_path / "splits").mkdir()
        np.savez(tmp_path / "splits" / "tiny.npz", **arrays)
        return tmp_path

    return save


def test_splits_in_a_folder_go_first(save_splits, monkeypatch):
    folder = save_splits(test_0=np.array([5, 2], dtype=np.int32), test_1=np.array([0]))
    monkeypatch.setenv("CALIPERS_DATA", str(folder))
    first, second = hernandez_lobato_splits("tiny")
    assert first.test.tolist() == [5, 2]
    assert second.train.tolist() == list(range(1, 30))


@pytest.mark.parametrize(
    "rows", [[1, 1], [-1, 2], [3, 30], [0.5], [[1], [2]], [], list(range(30)), ["a"]]
)
def test_splits_that_make_no_sense_are_refused(save_splits, rows):
    folder = save_splits(test_0=np.array(rows))
    with pytest.raises(DatasetCorruptError, match="test_0"):
        hernandez_lobato_splits("tiny", folder=folder)


def test_split_file_without_numbered_arrays_is_refused(save_splits):
    folder = save_splits(rows=np.array([1]))
    with pytest.raises(DatasetCorruptError, match="cannot be read as splits"):
        hernandez_lobato_splits("tiny", folder=folder)


def test_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(DatasetUnavailableError, match="is not a folder"):
        hernandez_lobato_splits("yacht", folder=tmp_path / "nowhere")


def test_unknown_dataset():
    with pytest.raises(ValueError, match="there is no dataset 'yatch'; did you mean 'yacht'"):
        paper_splits("yatch")


@pytest.mark.long
@pytest.mark.data
def test_year_is_read_in_order_cut_where_its_source_says_and_fills_its_cell(
    data_folder, tmp_path, monkeypatch
):
    """The sample that can be had, written in the layout of the source file."""
    with np.load(data_folder / "year_partial.npz") as arrays:
        X, y = arrays["X"], arrays["y"]
    lines = [f"{int(t)}," + ",".join(f"{v:.5f}" for v in row) for t, row in zip(y, X, strict=True)]
    text = ("\n".join(lines) + "\n").encode()
    (tmp_path / "YearPredictionMSD.txt").write_bytes(text)
    entry = CATALOGUE["year"]
    assert (entry.rows, entry.train_rows, entry.inputs) == (515_345, 463_715, 90)
    small = dataclasses.replace(
        entry, rows=7000, train_rows=6300, sha256=hashlib.sha256(text).hexdigest()
    )
    monkeypatch.setitem(CATALOGUE, "year", small)
    found = load("year", folder=tmp_path)
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, y)
    [split] = paper_splits("year")
    np.testing.assert_array_equal(split.train, np.arange(6300))
    np.testing.assert_array_equal(split.test, np.arange(6300, 7000))
    settings = 'loss = "mse"\nhidden_layers = [4]\nmembers = 2\ntrials = 1\nbatch_size = 1000\n'
    (tmp_path / "mse.toml").write_text(
        settings + "epochs = 4\nlearning_rate = 0.009\n[datasets]\nyear = {}\n"
    )
    run(["mse"], ["year"], store=tmp_path / "store", settings=tmp_path, folder=tmp_path)
    results = collect(ResultStore(tmp_path / "store"))
    [cell] = [
        c
        for c in paper_cells(results)
        if (c.published.dataset, c.published.method) == ("year", "MSE")
    ]
    assert 0.5 < cell.ours.mean < 2
    assert cell.ours.sem is None  # one trial, as in the paper
    assert cell.verdict != "missing"
