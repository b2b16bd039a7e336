"""Rows in blocks: every source gives the same rows, and a fit to them is one to all of them."""

import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import TimeSeriesSplit
from sklearn.utils import check_random_state

import calipers.bank._shards as shards
import calipers.bank._train as training
import calipers.rowblocks as rowblocks
from calipers import IntervalRegressor, RowBlocks
from calipers._estimator import large
from calipers._estimator.training_rows import TrainingRows
from calipers.bank import Scaling
from calipers.networks import MLP
from calipers.optimizers import Adam

ROWS = 3000
TINY = {
    "loss": "normal",
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "optimizer": Adam(averaging=0.0),
    "n_networks": 5,
    "epochs": 3,
    "random_state": 0,
}


def tiny(**parameters):
    return IntervalRegressor(**(TINY | parameters))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    return X, X[:, 0] + rng.normal(0, 0.3, ROWS)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data[0], columns=list("abc")).assign(y=data[1])


def pieces(frame, size):
    return [frame.iloc[i : i + size] for i in range(0, len(frame), size)]


def of_memory_map(data, frame, folder):
    np.save(folder / "X.npy", data[0])
    np.save(folder / "y.npy", data[1])
    return RowBlocks(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy"))


def of_files(data, frame, folder):
    for i, part in enumerate(pieces(frame, 1300)):
        pq.write_table(pa.Table.from_pandas(part), folder / f"{i}.parquet", row_group_size=400)
    return RowBlocks(str(folder / "*.parquet"), "y")


def of_folder(data, frame, folder):
    of_files(data, frame, folder)
    return RowBlocks(folder, "y")


def of_dataset(data, frame, folder):
    of_files(data, frame, folder)
    return RowBlocks(pyarrow.dataset.dataset(folder), "y")


def of_dask(data, frame, folder):
    dask = pytest.importorskip("dask.dataframe")
    return RowBlocks(dask.from_pandas(frame, npartitions=4), "y")


def of_dask_arrays(data, frame, folder):
    dask = pytest.importorskip("dask.array")
    X, y = data
    return RowBlocks(dask.from_array(X, chunks=(700, 2)), dask.from_array(y, chunks=700))


SOURCES = {
    "memory map": of_memory_map,
    "files": of_files,
    "folder": of_folder,
    "dataset of Arrow": of_dataset,
    "frame of Dask": of_dask,
    "arrays of Dask": of_dask_arrays,
    "frame": lambda data, frame, folder: RowBlocks(frame, "y"),
    "list of frames": lambda data, frame, folder: RowBlocks(pieces(frame, 900), "y"),
    "iterator of frames": lambda data, frame, folder: RowBlocks(iter(pieces(frame, 900)), "y"),
    "function": lambda data, frame, folder: RowBlocks(lambda: iter([data])),
    "pairs": lambda data, frame, folder: RowBlocks([(data[0][:9], data[1][:9]), data][1:]),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_all_rows_each_time(source, data, frame, tmp_path):
    rows = SOURCES[source](data, frame, tmp_path)
    for _ in range(2):
        X, y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        np.testing.assert_array_equal(X, data[0])
        np.testing.assert_array_equal(y, data[1])


def test_targets_may_be_true_and_false():
    rows = RowBlocks(pieces(pd.DataFrame({"a": range(4), "y": ["true", "False"] * 2}), 2), "y")
    assert [y.tolist() for _, y in rows] == [[1, 0]] * 2


def test_hidden_folders_are_not_read(tmp_path):
    for name in ("", ".ipynb_checkpoints", "_delta_log", "2024/01"):
        (tmp_path / name).mkdir(exist_ok=True, parents=True)
        pd.DataFrame({"a": [1.0], "y": [2.0]}).to_csv(tmp_path / name / "a.csv", index=False)
    assert [y.tolist() for _, y in RowBlocks(tmp_path, "y")] == [[2.0], [2.0]]


def test_blocks_of_wide_arrays_have_fewer_rows(data, monkeypatch):
    monkeypatch.setattr("calipers._row_sources._VALUES", 3000)
    assert [len(y) for _, y in RowBlocks(*data)] == [1000] * 3


class TestShards:
    @pytest.fixture
    def scratch(self, monkeypatch):
        monkeypatch.setattr(shards, "_SHARD", (4, 4))
        numbers = np.arange(12, dtype=np.float32)
        with shards.ShardWriter(1, 12, seed=0) as scratch:
            scratch.write(numbers[:, None], numbers)
            yield scratch

    def test_no_shard_is_read_twice_while_it_is_held(self, scratch, monkeypatch):
        none = np.zeros(0, np.float32)
        table = scratch.finish(none[:, None], none, Scaling(0, 1, 0, 1), None)
        read, reads = scratch.read, []
        monkeypatch.setattr(scratch, "read", lambda i: reads.append(i) or read(i))
        place = table.feed()
        first = [np.sort(place(epoch)[1][:4]).tolist() for epoch in (0, 0, 1)]
        scratch.pool.shutdown()
        assert sorted(reads) == [0, 1, 2]
        assert first == [sorted(read(i)[:, 1].tolist()) for i in (0, 0, 1)]

    def test_no_more_rows_than_there_is_room_for(self, scratch):
        more = np.zeros(3, np.float32)
        with pytest.raises(ValueError, match="more than the 12 rows announced"):
            scratch.write(more[:, None], more)


class TestHoldOut:
    def test_parts_are_disjoint_and_all(self, data):
        rest, X, y = RowBlocks(*data).hold_out(500, seed=3)
        assert X.shape == (500, 3)
        both = np.concatenate([y, *(own for _, own in rest)])
        np.testing.assert_array_equal(np.sort(both), np.sort(data[1]))

    def test_blocks_do_not_decide(self, data, frame):
        _, X, y = RowBlocks(*data).hold_out(500, seed=3)
        _, other, same = RowBlocks(pieces(frame, 77), "y").hold_out(500, seed=3)
        np.testing.assert_array_equal(y, same)
        np.testing.assert_array_equal(X, other)

    def test_again_from_the_rest(self, data):
        rest, _, first = RowBlocks(*data).hold_out(500, seed=3)
        rest, _, second = rest.hold_out(500, seed=4)
        kept = np.concatenate([y for _, y in rest])
        assert len(kept) == ROWS - 1000
        assert not set(first) & set(second)
        assert not set(first) & set(kept)

    def test_wide_tables_hold_out_what_fits_into_memory(self, data, monkeypatch):
        monkeypatch.setattr(rowblocks, "_CELLS", 600)
        rest, X, y = RowBlocks(*data).hold_out(500)
        assert X.shape == (200, 3)
        assert len(y) + sum(len(own) for _, own in rest) == ROWS

    def test_it_is_a_random_sample(self):
        numbers = np.arange(100_000.0)
        _, _, y = RowBlocks(numbers[:, None], numbers).hold_out(10_000, seed=1)
        found = np.histogram(y, bins=20, range=(0, 100_000))[0]
        assert abs(found - 500).max() < 5 * np.sqrt(500)  # fails once in a hundred thousand seeds


@pytest.fixture
def small(monkeypatch):
    """Samples and shards that are small against the rows."""
    monkeypatch.setattr(large, "_SAMPLE", 1000)
    monkeypatch.setattr(shards, "_SHARD", (2**8, 2**9))
    monkeypatch.setattr(shards, "_CELLS", 2**9)


@pytest.fixture
def roles(data, small):
    """A row of each role in a fit of the seed of ``tiny``."""
    seed = int(check_random_state(0).randint(2**31))
    sample = RowBlocks(*data).sample(large._SAMPLE, seed)
    parts = dict(zip(("calibrate", "validate", "learn"), large._roles(tiny(), sample), strict=True))
    rows = {role: int(sample.numbers[part.start + 3]) for role, part in parts.items()}
    return rows | {"train": int(np.setdiff1d(np.arange(ROWS), sample.numbers)[3])}


class TestFit:
    def test_it_learns_and_covers(self, data, small):
        X, y = data
        rest, X_test, y_test = RowBlocks(X, y).hold_out(1000, seed=9)
        model = tiny(epochs=60).fit(rest)
        lower, upper = model.predict_interval(X_test, coverage=0.8).T
        assert 0.74 < np.mean((lower <= y_test) & (y_test <= upper)) < 0.86
        assert np.mean((model.predict(X_test) - X_test[:, 0]) ** 2) < 0.02
        assert model.about_["rows"] == 2000
        assert model.about_["held_out"] == {"calibration": 200, "validation": 120}
        assert model.target_.low == min(y.min() for _, y in rest)

    def test_bits_depend_on_neither_jobs_nor_blocks(self, data, frame, small):
        X = data[0][:50]
        want = tiny(n_jobs=1).fit(RowBlocks(*data)).predict(X)
        np.testing.assert_array_equal(tiny(n_jobs=3).fit(RowBlocks(*data)).predict(X), want)
        pairs = [(part[list("abc")].to_numpy(), part["y"]) for part in pieces(frame, 110)]
        np.testing.assert_array_equal(tiny().fit(RowBlocks(iter(pairs))).predict(X), want)

    def test_a_frame_of_dask_is_read_in_blocks(self, frame, small):
        dask = pytest.importorskip("dask.dataframe")
        rows = dask.from_pandas(frame, npartitions=3)
        model = tiny().fit(rows[list("abc")], rows["y"])
        assert model.about_["held_out"]["calibration"] == 300
        assert list(model.feature_names_in_) == list("abc")

    def test_text_dates_and_many_categories(self, frame, small):
        rng = np.random.default_rng(1)
        towns = rng.integers(200, size=ROWS)
        table = frame.assign(
            kind=np.where(frame["a"] > 0, "flat", None),
            day=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(ROWS), unit="h"),
            town=[f"town {i}" for i in towns],
            y=frame["y"] + towns / 20,
        )
        model = tiny(epochs=40).fit(RowBlocks(pieces(table, 500), "y"))
        assert model.target_.name == "y"
        assert model.preprocessor_.knows_targets
        error = model.predict(table) - table["y"]
        assert np.sqrt(np.mean(error**2)) < 1.5 < table["y"].std()

    def test_few_rows_with_many_categories_leave_some_to_train_on(self, monkeypatch):
        monkeypatch.delattr(TrainingRows, "encoded_by_fold")  # no choice of shapes, no folds
        rng = np.random.default_rng(2)
        towns = np.arange(1000) % 100
        table = pd.DataFrame({"a": rng.normal(size=1000), "town": [f"town {i}" for i in towns]})
        table["y"] = rng.normal(0, 3, 100)[towns] + rng.normal(0, 0.1, 1000)
        model = tiny().fit(RowBlocks(table, "y"))
        assert model.preprocessor_.knows_targets
        assert model.about_["encoding_learnt_from"] == 400

    def test_save_and_load(self, data, small, tmp_path):
        model = tiny().fit(RowBlocks(*data))
        model.save(tmp_path / "model")
        loaded = IntervalRegressor.load(tmp_path / "model")
        np.testing.assert_array_equal(
            loaded.predict_interval(data[0][:9]), model.predict_interval(data[0][:9])
        )

    def test_a_budget_ends_it(self, data, small, tmp_path):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model = tiny(epochs=2000, patience=None, time_budget=0.2).fit(RowBlocks(*data))
        assert 0 < model.about_["time_budget"]["epochs"] < 2000
        assert any("time_budget=0.2" in str(one.message) for one in found)
        model.save(tmp_path / "model")
        loaded = IntervalRegressor.load(tmp_path / "model")
        assert loaded.about_["time_budget"] == model.about_["time_budget"]

    def test_gross_errors_are_not_learned_from(self, data, small):
        X, y = data[0], data[1].copy()
        y[[5, 1700]] = 1e12, -1e12
        with pytest.warns(UserWarning, match="far from all other targets"):
            model = tiny(epochs=30).fit(RowBlocks(X, y))
        assert np.mean((model.predict(X) - X[:, 0]) ** 2) < 0.05
        assert set(model.about_["far_targets"]["rows"]) <= {5, 1700}

    def test_the_first_of_many_gross_errors_are_named(self, data, small):
        y = data[1].copy()
        y[100:120] = 1e12
        with pytest.warns(UserWarning, match="far from all other targets"):
            model = tiny().fit(RowBlocks(data[0], y))
        found = model.about_["far_targets"]
        assert 10 < found["count"] <= 20
        assert len(found["rows"]) == 10
        assert found["rows"] == sorted(found["rows"])

    def test_no_more_chunks_than_jobs_hold_shards(self, data, small, monkeypatch):
        parallel, calls = training.joblib.Parallel, []
        monkeypatch.setattr(training, "lane_count", lambda *_: 1)
        monkeypatch.setattr(
            training.joblib, "Parallel", lambda **k: calls.append(k["n_jobs"]) or parallel(**k)
        )
        tiny(n_jobs=2).fit(RowBlocks(*data))
        assert calls == [2]

    def test_what_few_rows_show_of_the_target_is_not_believed_against_others(self, data, small):
        y = np.exp(data[1])
        y[::97] *= -1  # a sample may miss them, all rows do not
        assert tiny().fit(RowBlocks(data[0], y)).support_.low is None

    @pytest.mark.parametrize("contrary", [-0.5, 0.5], ids=["below 0", "off the lattice"])
    def test_no_row_is_left_out_of_what_is_assumed(self, contrary, data, small, roles):
        counts = np.minimum(np.round(np.exp(data[1])), 9.0)
        for row in roles.values():
            y = counts.copy()
            y[row] = contrary
            found = tiny(epochs=1).fit(RowBlocks(data[0], y))
            assert found.support_.holds(y).all()
            assert found.target_.low == min(contrary, 0)

    def test_bounds_given_hold_for_all_rows(self, data, small, roles):
        for row in roles.values():
            y = np.exp(data[1])
            y[row] = -0.5
            problem = (
                rf"^bounds=\(0, None\): y must not be below 0, got -0.5 in row {row} \(from 0\)$"
            )
            with pytest.raises(ValueError, match=problem):
                tiny(bounds=(0, None)).fit(RowBlocks(data[0], y))

    def test_points_alone(self, data, small):
        model = tiny(loss="mse", epochs=30).fit(RowBlocks(*data))
        assert np.mean((model.predict(data[0]) - data[0][:, 0]) ** 2) < 0.05


@pytest.mark.long
def test_memory_is_flat_in_the_rows(small, monkeypatch):
    monkeypatch.setattr(rowblocks, "_CELLS", 2**15)
    monkeypatch.setattr(shards, "_SHARD", (2**11, 2**11))

    def peak(rows):
        def blocks():
            for start in range(0, rows, 2000):
                X = np.random.default_rng(start).normal(size=(2000, 40))
                yield X, X[:, 0]

        tracemalloc.start()
        try:
            tiny(epochs=1, n_networks=1, cv=None, batch_size=512).fit(RowBlocks(blocks))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(20_000)  # compiles
    few, many = peak(20_000), peak(100_000)
    assert many < few + 0.1 * 80_000 * 41 * 8  # a tenth of what the rows themselves would take


# Forks before JAX has computed anything, since a process of its own would take seconds to import.
KILLED = """
import os, signal, numpy as np
from calipers import IntervalRegressor, RowBlocks
from calipers.networks import MLP

readings = 0

def blocks():
    global readings
    readings += 1
    for start in range(3):
        X = np.random.default_rng(start).normal(size=(2000, 2))
        yield X, X[:, 0]
        if readings == last and start == 1:  # rows are in the scratch file
            os.kill(os.getpid(), signal.SIGKILL)

network = MLP(hidden_layers=(4,), frequencies=0)
model = IntervalRegressor(loss="normal", network=network, n_networks=5)
for last in (1, 2):  # an iterator is read once, into a file of its own
    if not (child := os.fork()):
        model.fit(RowBlocks(blocks() if last == 1 else blocks))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_killed_process_leaves_no_scratch_file(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * 2
    assert not list(tmp_path.iterdir())


class TestErrors:
    @pytest.mark.parametrize(
        ("source", "target", "problem"),
        [
            (5, None, "source must be names of files"),
            (lambda: iter([np.zeros((3, 2))]), None, r"a block must be a pair \(X, y\)"),
            (lambda: iter([np.zeros((3, 2))]), "y", "target='y' is a column name"),
            ([pd.DataFrame({"a": [1.0], "price": [2.0]})], "prise", "did you mean 'price'"),
            ([(np.zeros((3, 1)), [1, 2])], None, "3 rows of inputs and 2 targets"),
            ([(np.zeros((2, 1)), [1, "many"])], None, "got 'many' in row 1"),
            ([(np.zeros((2, 1)), [1, None])], None, "missing in row 1 .*drop_missing=True"),
            ([], "y", "no rows"),
            (pd.DataFrame({"y": [1.0, 2.0]}), "y", r"row 0 on has inputs of shape \(2, 0\)"),
            (np.zeros(3), np.zeros(3), r"row 0 on has inputs of shape \(3,\)"),
            (
                [(np.zeros((2, 2)), [1, 2]), (np.zeros((3, 4)), [1, 2, 3])],
                None,
                r"row 2 on has inputs of shape \(3, 4\) and other columns .* have 2 columns",
            ),
            (
                [pd.DataFrame({"a": [1.0], "y": 1.0}), pd.DataFrame({"b": [1.0], "y": 1.0})],
                "y",
                r"row 1 on has inputs of shape \(1, 1\) and other columns .* have a$",
            ),
        ],
    )
    def test_sources(self, source, target, problem):
        with pytest.raises((TypeError, ValueError), match=problem):
            tiny().fit(RowBlocks(source, target))

    def test_lengths(self):
        with pytest.raises(ValueError, match="source has 3 rows and target 2"):
            RowBlocks(np.zeros((3, 1)), np.zeros(2))

    def test_rows_without_a_target_can_be_left_out(self):
        frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": pd.array([1, None, 3], dtype="Int64")})
        assert [y.tolist() for _, y in RowBlocks(frame, "y", drop_missing=True)] == [[1.0, 3.0]]

    @pytest.mark.parametrize(
        ("parameters", "problem"),
        [
            ({"cv": TimeSeriesSplit(5)}, "rows held out at random"),
            ({"warm_start": True}, "warm_start"),
        ],
    )
    def test_parameters(self, parameters, problem, data):
        with pytest.raises(ValueError, match=problem):
            tiny(**parameters).fit(RowBlocks(*data))

    def test_arguments_of_fit(self, data):
        rows = RowBlocks(*data)
        with pytest.raises(ValueError, match="RowBlocks contain the targets"):
            tiny().fit(rows, data[1])
        with pytest.raises(ValueError, match="neither sample_weight nor groups"):
            tiny().fit(rows, groups=data[1])

    def test_a_bad_row_is_placed(self, data, small):
        X = data[0].copy()
        X[1234, 1] = np.nan
        parts = [(X[i : i + 500], data[1][i : i + 500]) for i in range(0, ROWS, 500)]
        with pytest.raises(ValueError, match=r"in the block of \d+ rows from 1,0\d\d on.*NaN"):
            tiny().fit(RowBlocks(parts))

    def test_a_bad_value_in_the_sample_is_placed_among_all_rows(self, frame):
        odd = frame.astype(object)
        odd.loc[::40, "a"] = "what"
        problem = r"^column 'a', row (\d+) \(from 0\): 'what' is not one of the numbers"
        with pytest.raises(ValueError, match=problem) as caught:
            tiny().fit(RowBlocks([odd], "y"))
        assert caught.value.row % 40 == 0

    @pytest.mark.parametrize("later", [0, 2])
    def test_a_source_that_gives_other_rows_when_read_again(self, later, data, small):
        readings = iter([1, later])
        with pytest.raises(ValueError, match=r"when first read and .* the same rows each time"):
            tiny().fit(RowBlocks(lambda: iter([data] * next(readings))))

    def test_a_source_that_shuffles_its_rows_would_train_on_rows_held_out(self, data):
        random = np.random.default_rng(0)

        def shuffled():
            order = random.permutation(ROWS)
            yield data[0][order], data[1][order]

        rest, _, _ = RowBlocks(shuffled).hold_out(100)
        with pytest.raises(ValueError, match="the same rows each time"):
            list(rest)

    def test_a_block_that_another_process_reads_again(self, data):
        X, y = data
        reader = RowBlocks([data]).reader()
        first = rowblocks.chosen_rows(reader(data, 10), 0, 2**64 - 1)[-1]
        assert sum(len(target) for _, target in reader(data, 10, first)) == len(y)
        with pytest.raises(ValueError, match="in another order: it must give the same rows"):
            list(reader((X[::-1], y[::-1]), 10, first))

    @pytest.mark.parametrize("target", [1j * np.arange(5.0), np.array(["a"] * 5)])
    def test_targets_that_are_no_real_numbers(self, target):
        with pytest.raises(ValueError, match=r"must hold numbers, got .* in row 0 .*: convert"):
            RowBlocks(np.zeros((5, 2)), target).sample(2, 0)

    def test_a_number_is_no_source(self):
        with pytest.raises(TypeError, match="names of files"):
            RowBlocks(np.float64(3), "y")

    @pytest.mark.parametrize("rows", [0, -1])
    def test_rows_to_hold_out(self, rows, data):
        with pytest.raises(ValueError, match=f"at least 1, got {rows}"):
            RowBlocks(*data).hold_out(rows)

    def test_an_iterator_that_fails_is_not_taken_for_its_first_blocks(self, data):
        def blocks():
            yield data
            raise OSError("the disk is gone")

        rows = RowBlocks(blocks())
        with pytest.raises(OSError, match="gone"):
            tiny().fit(rows)
        with pytest.raises(ValueError, match="make a new one"):
            tiny().fit(rows)

    def test_a_full_disk(self, data, monkeypatch):
        usage = type("Usage", (), {"free": 10})
        monkeypatch.setattr(shards.shutil, "disk_usage", lambda _: usage)
        with pytest.raises(OSError, match="set TMPDIR to a larger disk"):
            tiny().fit(RowBlocks(*data))


def test_a_model_of_blocks_is_pickled(data, small):
    model = tiny().fit(RowBlocks(*data))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(data[0][:9]), model.predict(data[0][:9]))
