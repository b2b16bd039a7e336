"""Work on a cluster of two processes: the same bits, and data that moves once."""

import json
import pickle
from contextlib import ExitStack

import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import psutil
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor, cluster
from calipers.bank import Plan, Program, Settings, Table, train
from calipers.cli import app
from calipers.cluster import ClusterError, _connect
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES
from calipers.tables import TableError

from .conftest import TINY, Machines


def same_bits(one, other):
    pairs = zip(one.weights, other.weights, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def moved():
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def calipers(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """Five files in two folders, one of them without rows."""
    folder = tmp_path_factory.mktemp("rows")
    frame = pd.DataFrame(np.random.default_rng(2).normal(size=(100, 2)), columns=list("ab"))
    frame["id"] = np.arange(100)
    for number, rows in enumerate((frame[:30], frame[30:60], frame[60:90], frame[90:], frame[:0])):
        place = folder / f"c={number % 2}"
        place.mkdir(exist_ok=True)
        rows.to_parquet(place / f"{number}.parquet", index=False)
    return folder


@pytest.mark.long
def test_a_fit_gives_the_same_bits_as_on_one_machine(client, rows):
    settings = {"n_networks": 12, **TINY}
    expected = IntervalRegressor(**settings).fit(*rows)
    with joblib.parallel_config(backend="dask"):
        found = IntervalRegressor(**settings).fit(*rows)
    assert same_bits(found.ensemble_.bank, expected.ensemble_.bank)
    np.testing.assert_array_equal(
        found.predict_interval(rows[0]), expected.predict_interval(rows[0])
    )


@pytest.mark.slow
@pytest.mark.parametrize("connected", [False, True])
def test_one_worker_of_one_thread_does(rows, tmp_path, connected):
    """Joblib would rather work here than on one thread: only ``connect`` talks it out of that."""
    settings = {"n_networks": 12, **TINY}
    expected = IntervalRegressor(**settings).fit(*rows)
    machines = Machines(tmp_path, workers=1)
    try:
        with cluster.connect(machines.address) as found, ExitStack() as stack:
            if not connected:
                stack.enter_context(joblib.parallel_config("dask", client=found.client))
            fitted = IntervalRegressor(**settings).fit(*rows)
            done = found.client.run_on_scheduler(
                lambda dask_scheduler: [str(name) for name in dask_scheduler.task_prefixes]
            )
    finally:
        machines.stop()
    assert same_bits(fitted.ensemble_.bank, expected.ensemble_.bank)
    assert any("batch_of" in name for name in done) == connected


@pytest.mark.slow
def test_workers_find_out_which_networks_have_failed(client, rows):
    program = Program(DenseFactory((4,)), LOSSES["qd+"], 3)
    plans = [Plan(seed, np.arange(300), settings=Settings(epochs=20)) for seed in range(8)]
    arguments = program, Table.from_arrays(*rows), plans
    losses = [history["loss"][-1] for history in train(*arguments, retries=0, needed=0).histories]
    limits = {"retries": 1, "needed": 0, "largest_loss": float(np.median(losses))}
    expected = train(*arguments, **limits)
    assert expected.failures.sum() > 0
    with joblib.parallel_config(backend="dask"):
        found = train(*arguments, **limits)
    assert found.seeds.tolist() == expected.seeds.tolist()
    assert same_bits(found, expected)


@pytest.mark.slow
def test_rows_move_once_and_not_with_every_chunk(client):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(100_000, 25))
    table = Table.from_arrays(inputs, inputs[:, 0])
    part = np.arange(100_000)[::-1].copy()
    program = Program(DenseFactory((4,)), LOSSES["mse"], 25, batch_size=20_000)
    plans = [Plan(seed, part, settings=Settings(epochs=1)) for seed in range(60)]
    size = len(pickle.dumps((table, part)))
    before = moved()
    with joblib.parallel_config(backend="dask"):
        for _ in range(3):  # as the batches of a search
            train(program, table, plans)
    # From here to the scheduler, on to a worker, and from that to the other, not with 36 chunks;
    # what other processes say to each other is counted too.
    assert size < moved() - before < 7 * size


@pytest.mark.slow
def test_lazy_prediction_has_the_model_once_on_each_worker(client, model):
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(80, 3)), columns=list("abc"))
    lazy = model.predict_interval(dd.from_pandas(frame, npartitions=8), as_frame=True)
    pd.testing.assert_frame_equal(lazy.compute(), model.predict_interval(frame, as_frame=True))


def test_parts_are_scored_once_and_a_second_run_fills_the_gaps(client, saved, parquet, tmp_path):
    out, address = tmp_path / "scored", client.scheduler.address
    command = ("predict", saved, parquet, "--keep", "id,c", "--out", out, "--cluster", address)
    result = calipers(*command)
    assert result.exit_code == 0, result.output
    assert "100 rows predicted" in result.output
    names = sorted(path.name for path in out.iterdir())
    parts = [f"part-{i:06d}.parquet" for i in range(5) if i != 2]
    assert names == ["_SUCCESS", "_calipers.json", *parts]

    (out / "_SUCCESS").unlink()
    (out / parts[1]).unlink()
    (out / parts[2]).write_bytes(b"PAR1 damaged")
    before = (out / parts[0]).stat().st_mtime_ns
    again = calipers(*command, "--json")
    assert json.loads(again.output[again.output.index("{") :])["kept"] == 2
    assert (out / parts[0]).stat().st_mtime_ns == before

    found = pd.read_parquet(out).sort_values("id", ignore_index=True)
    whole = pd.concat(
        pd.read_parquet(path).assign(c=int(path.parent.name[2:]))
        for path in parquet.rglob("*.par*")
    ).sort_values("id", ignore_index=True)
    assert found["id"].tolist() == list(range(100))
    fitted = IntervalRegressor.load(saved)
    inputs = whole[list("abc")].astype(float)
    np.testing.assert_array_equal(found["prediction"], fitted.predict(inputs))
    np.testing.assert_array_equal(
        found[["lower_0.95", "upper_0.95"]], fitted.predict_interval(inputs)
    )


@pytest.mark.slow
def test_a_finished_folder_needs_no_cluster_and_another_run_is_refused(
    client, saved, parquet, tmp_path
):
    out, address = tmp_path / "scored", client.scheduler.address
    command = ("predict", saved, parquet, "--out", out, "--cluster")
    assert calipers(*command, address).exit_code == 0
    assert calipers(*command, "tcp://127.0.0.1:1").exit_code == 0
    other = calipers(*command, address, "--coverage", "0.5")
    assert other.exit_code == 2
    assert "differs in coverages" in " ".join(other.output.split())


@pytest.mark.slow
def test_an_error_on_a_worker_names_file_row_and_column(client, saved, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, None], "c": [0.0, 0.0]})
    frame.to_parquet(tmp_path / "rows.parquet")
    out, address = tmp_path / "scored", client.scheduler.address
    result = calipers(
        "predict", saved, tmp_path / "rows.parquet", "--out", out, "--cluster", address
    )
    assert result.exit_code == 3
    assert "rows.parquet, row 2, column 'b': the number is missing" in result.output
    assert not list(out.glob("*.parquet"))


@pytest.mark.slow
def test_a_fit_goes_to_the_cluster_from_the_command_line(client, rows, tmp_path):
    X, y = rows
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    settings = "n_networks = 2\ncv = 2\nepochs = 5\nnetwork__hidden_layers = [8]\n"
    (tmp_path / "settings.toml").write_text(settings)
    command = [
        "fit",
        tmp_path / "rows.csv",
        "--target",
        "y",
        "--config",
        tmp_path / "settings.toml",
    ]
    result = calipers(*command, "--out", tmp_path / "model", "--cluster", client.scheduler.address)
    assert result.exit_code == 0, result.output
    assert "2 workers with 2 threads" in result.output


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "http://127.0.0.1:1"])
def test_a_scheduler_that_does_not_answer_is_one_line(
    monkeypatch, address, saved, parquet, tmp_path
):
    monkeypatch.setattr(_connect, "_PATIENCE", 0.2)
    result = calipers("predict", saved, parquet, "--out", tmp_path / "scored", "--cluster", address)
    assert result.exit_code == 1
    assert result.output.startswith(f"error: no Dask scheduler answers at {address}")
    assert result.output.count("\n") == 1


def test_other_versions_are_refused():
    own = _connect._describe()
    _connect._compare("the worker w", own)
    with pytest.raises(ClusterError, match=r"the worker w has jax 0\.1, this machine"):
        _connect._compare("the worker w", own | {"jax": "0.1"})
    with pytest.raises(ClusterError, match=r"install calipers .* there .*No module"):
        _connect._compare("the worker w", ModuleNotFoundError("No module named 'calipers'"))


def test_threads_get_values_as_they_are():
    value = object()
    backend = joblib.parallel.get_active_backend(prefer="threads")[0]
    assert cluster.received(cluster.sender(backend, value)(value)) is value


def test_an_error_of_a_table_survives_the_way_home():
    error = TableError("is wrong", file="rows.csv", row=3, column="a")
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.row) == (str(error), 3)
