"""``calipers watch``: blocks, continuing after a kill, a file that grows."""

import json

import numpy as np
import pandas as pd
import pytest

import calipers


@pytest.fixture
def stream(here, flats, saved):
    """A copy of a model folder, and a stream of targets 500 above those of training."""
    calipers.load(saved).save(here / "model")
    rows = pd.concat([flats] * 3, ignore_index=True)
    rows["price"] += 500.0
    rows.to_csv(here / "stream.csv", index=False)
    return rows


def test_watch_predicts_learns_and_saves(stream, run, here):
    result = run("watch", "model", "stream.csv", "--block", "60", "--out", "p.csv", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["rows"] == 180
    assert found["alarm"]
    assert found["observed"] > 0.8
    predictions = pd.read_csv(here / "p.csv")
    assert len(predictions) == 180
    assert list(predictions) == ["quantile_0.5", "lower_0.95", "upper_0.95", "target"]
    assert abs((predictions["quantile_0.5"] - predictions["target"]).tail(60).mean()) < 60
    model = calipers.load(here / "model")
    assert model.about_["watched"]["rows"] == 180
    assert model.ensemble_.calibrations[-1].kind == "adaptive"


@pytest.mark.parametrize("killed_at", [2, 3])
def test_watch_continues_after_a_kill_with_the_same_results(
    stream, run, here, saved, monkeypatch, killed_at
):
    calipers.load(saved).save(here / "other")
    whole = run("watch", "other", "stream.csv", "--block", "60", "--out", "whole.csv")
    assert whole.exit_code == 0, whole.output
    save, saves = calipers.IntervalRegressor.save, []

    def killed(self, folder):
        saves.append(folder)
        if len(saves) == killed_at:  # the first save names the file; then rows come before saves
            raise KeyboardInterrupt
        save(self, folder)

    monkeypatch.setattr(calipers.IntervalRegressor, "save", killed)
    command = ("watch", "model", "stream.csv", "--block", "60", "--out", "p.csv")
    assert run(*command).exit_code != 0
    assert len(pd.read_csv(here / "p.csv")) == 60 * (killed_at - 1)
    monkeypatch.setattr(calipers.IntervalRegressor, "save", save)
    assert run(*command).exit_code == 0
    assert (here / "p.csv").read_bytes() == (here / "whole.csv").read_bytes()


def test_watch_takes_only_what_is_new(stream, run, here):
    assert run("watch", "model", "stream.csv").exit_code == 0
    again = run("watch", "model", "stream.csv")
    assert "no new rows: the model has learned from all 180" in again.output
    pd.concat([stream, stream.head(10)]).to_csv(here / "stream.csv", index=False)
    (here / "notes.csv").write_text("mine")
    refused = run("watch", "model", "stream.csv", "--out", "notes.csv")
    assert refused.exit_code == 2
    assert (here / "notes.csv").read_text() == "mine"
    more = run("watch", "model", "stream.csv", "--out", "p.csv")
    assert len(pd.read_csv(here / "p.csv")) == 10
    assert "190 rows" in more.output
    assert "ALARM" in more.output


def test_watch_of_a_model_without_names(run, here):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    settings = {"n_networks": 2, "cv": 2, "epochs": 2, "verbose": 0, "random_state": 0}
    calipers.IntervalRegressor(**settings).fit(X, X[:, 0]).save(here / "unnamed")
    table = pd.DataFrame(X, columns=["x0", "x1"]).assign(y=X[:, 0])
    table.to_csv(here / "numbers.csv", index=False)
    found = run("watch", "unnamed", "numbers.csv", "--block", "25", "--out", "p.csv")
    assert found.exit_code == 0, found.output
    assert len(pd.read_csv(here / "p.csv")) == 60
    (here / "p.csv").unlink()
    lost = run("watch", "unnamed", "numbers.csv", "--out", "p.csv")
    assert lost.exit_code == 2
    assert "restore it" in lost.output.replace("\n", " ")


def test_watch_names_the_row_of_the_file(stream, run, here):
    broken = stream.astype(object)
    broken.loc[70, "size"] = "what"
    broken.to_csv(here / "stream.csv", index=False)
    found = run("watch", "model", "stream.csv", "--block", "60")
    assert found.exit_code == 3
    assert "row 71" in found.output


def words(result):
    """What was printed, without the frame of errors."""
    return " ".join(result.output.replace("│", " ").split())


def test_watch_of_another_coverage_needs_another_file(stream, run, here):
    assert run("watch", "model", "stream.csv", "--out", "p.csv").exit_code == 0
    before = (here / "p.csv").read_bytes()
    pd.concat([stream, stream.head(10)]).to_csv(here / "stream.csv", index=False)
    refused = run("watch", "model", "stream.csv", "--out", "p.csv", "--coverage", "0.5")
    assert refused.exit_code == 2
    assert "--coverage 0.95" in words(refused)
    assert "--coverage 0.5" in words(refused)
    assert (here / "p.csv").read_bytes() == before
    other = run("watch", "model", "stream.csv", "--out", "q.csv", "--coverage", "0.5")
    assert other.exit_code == 0, other.output
    assert list(pd.read_csv(here / "q.csv"))[1] == "lower_0.5"


def test_watch_recognises_a_file_by_any_name(stream, run, here):
    assert run("watch", "model", "stream.csv").exit_code == 0
    for name in ("./stream.csv", str(here / "stream.csv"), "s*.csv"):
        result = run("watch", "model", name)
        assert "no new rows: the model has learned from all 180" in result.output


def test_watch_continues_with_later_files(stream, run, here):
    for name, rows in (("b", 60), ("c", 40), ("a", 20)):
        stream.head(rows).to_csv(here / f"log-{name}.csv", index=False)
    assert run("watch", "model", "log-b.csv").exit_code == 0
    found = json.loads(run("watch", "model", "log-[bc].csv", "--json").output)
    assert found["rows"] == 100
    for files in (["log-a.csv", "log-b.csv", "log-c.csv"], ["log-c.csv"], ["log-b.csv"]):
        refused = run("watch", "model", *files)
        assert refused.exit_code == 2
        assert "have been learned" in words(refused)
    assert json.loads(run("watch", "model", "log-a.csv", "--json").output)["rows"] == 20


def test_watch_keeps_its_place_by_the_row_of_the_file(stream, run, here):
    lacking = stream.copy()
    lacking.loc[[5, 178, 179], "price"] = np.nan
    lacking.to_csv(here / "stream.csv", index=False)
    assert json.loads(run("watch", "model", "stream.csv", "--json").output)["rows"] == 177
    stream.to_csv(here / "stream.csv", index=False)  # one target comes too late, two in time
    assert run("watch", "model", "stream.csv", "--out", "p.csv").exit_code == 0
    found = pd.read_csv(here / "p.csv")["target"]
    np.testing.assert_allclose(found, stream["price"].tail(2))


def test_watch_predicts_from_labels_known_at_the_time(stream, run, here, saved):
    calipers.load(saved).save(here / "other")
    command = ("stream.csv", "--block", "60")
    assert run("watch", "model", *command, "--out", "p.csv").exit_code == 0
    late = run("watch", "other", *command, "--out", "q.csv", "--delay", "20")
    assert late.exit_code == 0, late.output
    at_once, late = (pd.read_csv(here / name)["quantile_0.5"] for name in ("p.csv", "q.csv"))
    rows = stream.head(60)
    found = calipers.load(saved).update(rows.drop(columns="price"), rows["price"], delay=20)
    np.testing.assert_allclose(late[:60], found.quantiles(0.5)[:, 0], rtol=1e-6)
    assert np.abs(at_once[1:20] - late[1:20]).min() > 0
    refused = run("watch", "other", *command, "--delay", "61")
    assert refused.exit_code == 2
    assert "--block 60" in words(refused)


@pytest.mark.filterwarnings("always:the target was assumed to be")
def test_watch_predicts_counts_before_one_is_negative(run, here):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.uniform(-2, 2, 212)})
    rows["sold"] = rng.poisson(1.0, 212).astype(float)
    model = calipers.IntervalRegressor(n_networks=2, cv=2, epochs=10, random_state=0, verbose=0)
    model.fit(rows[["x"]][:200], rows["sold"][:200])
    rows.loc[211, "sold"] = -2.0
    rows[200:].to_csv(here / "stream.csv", index=False)
    for block in ("1", "500"):
        model.save(here / block)
        command = ("watch", block, "stream.csv", "--block", block, "--out", f"{block}.csv")
        found = run(*command)
        assert found.exit_code == 0
        assert "note: the target was assumed to be non-negative integers" in words(found)
    assert pd.read_csv(here / "500.csv")["lower_0.95"].min() == 0
    assert (here / "1.csv").read_bytes() == (here / "500.csv").read_bytes()
    assert str(calipers.load(here / "500").support_) == "integers"


@pytest.mark.parametrize("change", [lambda rows: rows.head(60), lambda rows: rows[::-1]])
def test_watch_refuses_a_file_that_was_cut_off_or_replaced(stream, run, here, change):
    assert run("watch", "model", "stream.csv").exit_code == 0
    before = {path.name: path.read_bytes() for path in (here / "model").iterdir()}
    change(stream).to_csv(here / "stream.csv", index=False)
    found = run("watch", "model", "stream.csv")
    assert found.exit_code == 2, found.output
    assert "row 180, the last one learned, has changed or is missing" in words(found)
    assert {path.name: path.read_bytes() for path in (here / "model").iterdir()} == before
    change(stream).to_csv(here / "next.csv", index=False)
    assert run("watch", "model", "next.csv").exit_code == 0


def test_watch_waits_for_the_end_of_a_line(stream, run, here):
    text = stream.to_csv(index=False)
    lines = text.splitlines(keepends=True)
    part = "".join(lines[:60]) + lines[60].rstrip()[:-1]  # the last digit is still to come
    (here / "stream.csv").write_text(part)
    found = run("watch", "model", "stream.csv", "--out", "p.csv")
    assert found.exit_code == 0, found.output
    assert "is skipped until it is complete" in words(found)
    assert len(pd.read_csv(here / "p.csv")) == 59
    (here / "stream.csv").write_text(text)
    assert run("watch", "model", "stream.csv", "--out", "p.csv").exit_code == 0
    np.testing.assert_allclose(pd.read_csv(here / "p.csv")["target"], stream["price"])


def test_watch_leaves_a_row_that_comes_while_it_reads(stream, run, here, monkeypatch):
    from calipers.cli import _labelled

    read = _labelled.read_table

    def growing(*given, **options):
        found = read(*given, **options)
        with (here / "stream.csv").open("a") as file:
            file.write("1")
        return found

    monkeypatch.setattr(_labelled, "read_table", growing)
    found = json.loads(run("watch", "model", "stream.csv", "--json").stdout)
    assert found["rows"] == 179


@pytest.mark.parametrize("coverage", ["0.9999999999", "1e-300", "nan", "1"])
def test_watch_refuses_a_coverage_that_cannot_be_saved(stream, run, coverage):
    found = run("watch", "model", "stream.csv", "--coverage", coverage)
    assert found.exit_code == 2
    assert "between 0 and 1" in words(found)
