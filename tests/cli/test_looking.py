"""The commands report, inspect, datasets, demo and tune."""

import json
import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor
from calipers.cli import app
from calipers.cli._columns import print_columns
from calipers.cli._holdout import describe_copies
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder
from calipers.search import Candidate, Outcome, SearchResult

runner = CliRunner()
TINY = {
    "n_networks": 2, "cv": 2, "epochs": 20, "n_jobs": 1,
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "random_state": 0, "verbose": 0,
}  # fmt: skip


def run(*command, code=0):
    result = runner.invoke(app, [str(part) for part in command])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and the tables it was fitted on and is to be evaluated on."""
    place = tmp_path_factory.mktemp("looking")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=300), "kind": rng.choice(["a", "b"], 300)})
    frame["y"] = frame["x"] + rng.normal(0, 0.3, 300)
    frame[:200].to_csv(place / "train.csv", index=False)
    frame[200:].to_csv(place / "test.csv", index=False)
    model = IntervalRegressor(preprocessor=TableEncoder(), **TINY)
    model.fit(frame[["x", "kind"]][:200], frame["y"][:200])
    model.about_["source"] = {"files": [str(place / "train.csv")]}
    model.save(place / "model")
    return place


COMMANDS = [command.name for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_types_of_python(command):
    text = run(command, "--help").stdout.replace("<drop|refuse>", "")
    assert "<" not in text.replace("<=", "")


def test_help_of_fit():
    text = " ".join(run("fit", "--help").stdout.split())
    for words in (
        "{DATA}...",
        "DATA Tables: CSV, TSV, Parquet, Feather (Arrow), Arrow stream, Excel, optionally",
        "--target TEXT Column to predict",
        "--coverage FLOAT Nominal coverage",
        "--time-budget FLOAT Seconds that training may take; shared between the evaluation fit",
        "--groups TEXT Column of groups: their rows stay on one side of every split",
    ):
        assert words in text


def test_report(folder, tmp_path):
    out = tmp_path / "page.html"
    result = run("report", folder / "model", folder / "test.csv", "--out", out)
    assert result.stdout == f"100 rows evaluated, written to {out}\n"
    text = out.read_text("utf-8")
    assert "Prediction intervals for y" in text
    assert "flatters" not in text
    assert '"names":["' in text
    assert '"0"' not in text.split('"names":[')[1].split("]")[0]  # rows count from 1


@pytest.mark.parametrize("command", ["report", "predict", "evaluate"])
def test_no_threads_are_refused(folder, command):
    result = run(command, folder / "model", folder / "test.csv", "--n-jobs", "0", code=2)
    assert "must not be 0: give the number of threads" in result.output


def test_report_needs_a_table(folder, tmp_path):
    result = run("report", folder / "model", "--out", tmp_path / "page.html", code=2)
    assert "calipers report model new.csv" in " ".join(result.stderr.split())


def test_report_on_the_rows_of_training_warns(folder, tmp_path):
    out = tmp_path / "page.html"
    command = ["report", folder / "model", "--data", folder / "train.csv", "--out", out, "--json"]
    assert json.loads(run(*command).stdout)["rows"] == 200
    assert "on which it is evaluated here" in out.read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"--data": "none.csv"}, 3, "none.csv: there is no such file"),
        ({"--target": "yy"}, 3, "there is no column 'yy' (did you mean 'y'?)"),
        ({"--out": "."}, 2, "is a folder"),
        ({"--out": "no/page.html"}, 2, "there is no folder"),
        ({"model": "."}, 4, "is not a calipers model: it has no model.json"),
    ],
)
def test_report_says_what_is_wrong(folder, tmp_path, monkeypatch, changes, code, message):
    monkeypatch.chdir(tmp_path)
    given = {"model": str(folder / "model"), "--data": str(folder / "test.csv")} | changes
    words = ["report", given.pop("model"), *(word for pair in given.items() for word in pair)]
    result = run(*words, code=code)
    assert message in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_inspect(folder):
    text = run("inspect", folder / "model").stdout
    assert text.startswith(f"{folder / 'model'}: predicts y from 2 of 2 inputs\n")
    assert "kind    category  a, b" in text or "kind    category  b, a" in text
    assert "2 networks with" in text
    assert "Calibrated out of fold on 200 rows" in text
    assert "network__hidden_layers=(8,)" in text
    assert re.search(r"\nsize: \d+\.\d\d MB\n$", text)


@pytest.mark.parametrize("way", ["--in-memory", "--in-blocks"])
def test_inspect_says_how_columns_were_written_as_fit_did(tmp_path, monkeypatch, way):
    """The refit reads columns that have their own types already."""
    monkeypatch.chdir(tmp_path)
    rows = range(600)
    columns = {
        "size": [f"{i * 7 % 90 + 1_000:,}.5" for i in rows],
        "sold": [f"{i % 28 + 1:02}.01.2024" for i in rows],
        "opens": [f"{i % 24}:30" for i in rows],
        "price": [f"${i + 1_000:,}.5" for i in rows],
    }
    pd.DataFrame(columns).to_csv("data.csv", index=False)
    (tmp_path / "tiny.toml").write_text(
        "n_networks = 2\ncv = 2\nepochs = 2\nnetwork__hidden_layers = [8]\n"
        "network__frequencies = 0\n"
    )
    fit = ["fit", "data.csv", "--target", "price", "--out", "model", "--config", "tiny.toml"]
    run(*fit, way)
    text = run("inspect", "model").stdout
    for note in (
        r"price +target .* numbers written like \$1,234\.5",
        r"size +number .* numbers written like 1,234\.5",
        r"sold +date .* dates written as %d\.%m\.%Y",
        r"opens +number .* clock times as hours: 10:30 is 10\.5",
    ):
        assert re.search(note, text), text


def test_inspect_of_a_wide_table_is_as_short_as_what_fit_prints(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 400))).rename(columns="reading {}".format)
    tiny = IntervalRegressor(**TINY | {"epochs": 1})
    tiny.fit(X, rng.normal(size=60)).save(tmp_path / "model")
    text = run("inspect", tmp_path / "model").stdout
    assert len(text.splitlines()) < 80
    assert "and 340 more columns; in total 400 number" in text


def test_inspect_for_machines(folder):
    found = json.loads(run("inspect", folder / "model", "--json").stdout)
    assert [column["name"] for column in found["inputs"]] == ["x", "kind"]
    assert found["networks"]["count"] == 2
    assert found["calibrations"] == [{"kind": "map", "rows": 200, "strict": False}]
    assert found["about"]["rows"] == 200
    assert found["bytes"] > 1000


def test_inspect_shows_conformal_calibration(folder, tmp_path):
    test = pd.read_csv(folder / "test.csv")
    model = IntervalRegressor.load(folder / "model")
    model.conformalize(test[["x", "kind"]], test["y"], keep=True).save(tmp_path / "model")
    text = run("inspect", tmp_path / "model").stdout
    assert "Calibrated out of fold on 200 rows and conformalized on 100 rows" in text


def test_datasets_are_listed():
    lines = run("datasets").stdout.splitlines()
    assert lines[0].split() == ["name", "rows", "inputs", "target", "licence", "available"]
    assert [line.split()[0] for line in lines[1:3]] == ["diabetes", "boston"]
    listed = json.loads(run("datasets", "--json").stdout)
    assert {entry["name"]: entry["rows"] for entry in listed}["yacht"] == 308


def test_dataset_is_described():
    text = run("datasets", "yacht").stdout
    assert text.startswith("Yacht hydrodynamics: 308 rows, 6 inputs\n")
    assert "licence: CC BY 4.0" in text


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz"])
def test_dataset_is_written(ending, tmp_path):
    out = tmp_path / f"d.{ending}"
    result = run("datasets", "diabetes", "--out", out)
    assert result.stdout == f"442 rows written to {out}; the target is 'progression'\n"
    frame = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)
    assert frame.shape == (442, 11)
    assert frame.columns[-1] == "progression"


def test_datasets_say_what_is_wrong(tmp_path):
    assert "did you mean 'yacht'" in run("datasets", "yatch", code=1).stderr
    assert "needs the name" in run("datasets", "--out", "a.csv", code=2).stderr
    missing = run("datasets", "year", "--no-download", "--out", tmp_path / "y.csv", code=1)
    assert "is not available" in missing.stderr
    assert list(tmp_path.iterdir()) == []


def test_demo(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "calipers.IntervalRegressor", lambda **given: IntervalRegressor(**(TINY | given))
    )
    text = run("demo", "--out", tmp_path / "demo").stdout
    assert text.startswith("diabetes: 331 training rows, 111 test rows\n")
    names = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert names == ["intervals.png", "model", "report.html"]
    assert IntervalRegressor.load(tmp_path / "demo" / "model").target_.name == "progression"


def found(score, params, finalist=True, epochs=70.0):
    outcome = Outcome(0.95, 2.0, score, 0.1, epochs, 100, 0, 60)
    return Candidate(0, params, finalist, outcome, 100)


@pytest.fixture
def searched(monkeypatch):
    """Stands in for the search, and records its arguments."""
    calls = []

    def search(model, X, y, space, **options):
        calls.append({"model": model, "X": X, "space": space, **options})
        usual = options["n_candidates"] == 1
        params = {"batch_size": None} if usual else {"epochs": 10, "network__frequencies": 0}
        several = () if usual else (found(9.0, {"epochs": 20, "network__frequencies": 0}),)
        best = found(4.0 if usual else calls[0].get("best", 3.0), params)
        return SearchResult(model, (best, *several), "interval score")

    monkeypatch.setattr("calipers.search.search", search)
    return calls


def test_tune(folder, searched, tmp_path):
    out = tmp_path / "settings.toml"
    text = run("tune", folder / "train.csv", "--target", "y", "--out", out).stdout
    assert "25.0% better than the defaults" in text
    assert tomllib.loads(out.read_text()) == {
        "coverage": 0.95, "epochs": 10, "network__frequencies": 0
    }  # fmt: skip
    first, second = searched
    assert first["X"].shape == (200, 3)  # one number, two kinds
    assert first["store"] == tmp_path / "settings.search.jsonl"
    assert (first["n_candidates"], first["finalists"], second["finalists"]) == (30, 3, 1)


def test_tune_keeps_groups_together_and_to_its_time(folder, searched, tmp_path):
    frame = pd.read_csv(folder / "train.csv").assign(house=np.repeat(np.arange(20), 10))
    frame.to_csv(tmp_path / "houses.csv", index=False)
    out = tmp_path / "settings.toml"
    words = ["--target", "y", "--out", out, "--groups", "house", "--time-budget", 60]
    run("tune", tmp_path / "houses.csv", *words)
    first, second = searched
    assert first["X"].shape == (200, 3)  # the group is not an input
    assert (first["time_budget"], second.get("time_budget")) == (60, None)
    assert len(first["splits"]) == len(first["final_splits"]) == 3
    for train, valid in first["splits"] + first["final_splits"]:
        assert not set(frame["house"][train]) & set(frame["house"][valid])
    assert not np.array_equal(first["splits"][0][1], first["final_splits"][0][1])


def test_tune_for_the_paper_fixes_the_epochs(folder, searched, tmp_path):
    out = tmp_path / "settings.toml"
    run("tune", folder / "train.csv", "--target", "y", "--out", out, "--paper")
    assert tomllib.loads(out.read_text())["method"] == "paper"
    assert tomllib.loads(out.read_text())["epochs"] == 70
    assert searched[0]["model"].loss == "qd+"


def test_tune_keeps_the_defaults_if_nothing_is_better(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "calipers.search.search",
        lambda model, *_, **__: SearchResult(
            model, (found(4.0, {"epochs": 10}),), "interval score"
        ),
    )
    out = tmp_path / "settings.toml"
    result = run("tune", folder / "train.csv", "--target", "y", "--out", out, "--json")
    assert json.loads(result.stdout)["gain"] == 0
    assert tomllib.loads(out.read_text()) == {"coverage": 0.95}


def test_tuned_settings_are_what_fit_takes(folder, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text(
        'method = "paper"\nepochs = 30\nn_networks = 2\nnetwork__hidden_layers = [8]\n'
    )
    model = tmp_path / "model"
    fit = ["fit", folder / "train.csv", "--target", "y", "--config", config, "--out", model]
    run(*fit, "--test-fraction", "0")
    settings = json.loads(run("inspect", model, "--json").stdout)["settings"]
    assert (settings["loss"], settings["cv"], settings["patience"]) == ("qd+", None, None)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--coverage", "1.5"], 2, "--coverage must be between 0 and 1, such as 0.95; got 1.5"),
        (["--ignore", "zz"], 3, "there is no column 'zz'"),
        (["--groups", "zz"], 3, "there is no column 'zz'"),
        (["--out", "no/s.toml"], 2, "there is no folder"),
    ],
)
def test_tune_says_what_is_wrong(folder, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    result = run("tune", folder / "train.csv", "--target", "y", *words, code=code)
    assert message in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_tune_for_real_continues_after_a_stop(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "calipers.search.DEFAULT_SPACE",
        {"network__hidden_layers": [(8,)], "optimizer__learning_rate": [0.001, 0.01]},
    )
    out = tmp_path / "settings.toml"
    command = ["tune", folder / "train.csv", "--target", "y", "--out", out, "--splits", "1"]
    run(*command, "--finalists", "1")
    first = out.read_text()
    kept = (tmp_path / "settings.search.jsonl").read_text()
    run(*command, "--finalists", "1")
    assert (out.read_text(), (tmp_path / "settings.search.jsonl").read_text()) == (first, kept)


def test_years_have_no_separators_and_other_numbers_have(capsys):
    shared = {"kind": "number", "categories": [], "used": True, "missing": False, "note": ""}
    year = shared | {"name": "year", "low": 1896.0, "high": 2012.0}
    area = shared | {"name": "area", "low": 1896.0, "high": 20120.0}
    print_columns([], [year, area])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  year    number  1896 to 2012",
        "  area    number  1,896 to 20,120",
    ]


def test_an_evaluation_on_the_rows_of_training_says_so(folder):
    assert (
        "fitted on rows of train.csv"
        in run("evaluate", folder / "model", folder / "train.csv").stderr
    )
    assert run("evaluate", folder / "model", folder / "test.csv").stderr == ""


def test_two_equal_rows_of_a_small_table_are_no_alarm():
    assert describe_copies({"copies": 2, "rows": 49}) == ""
    assert "3 of them" in describe_copies({"copies": 3, "rows": 49})
