import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import calipers
from calipers import study
from calipers.cli import app
from calipers.study import RunReport, StoreError
from calipers.study.search import Reckoning

runner = CliRunner()


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def test_version():
    answer = runner.invoke(app, ["--version"])
    assert answer.exit_code == 0
    assert answer.stdout.strip() == f"calipers {calipers.__version__}"


@pytest.mark.parametrize("command", [[], ["study"], ["study", "run"], ["study", "figures"]])
def test_help(command):
    answer = runner.invoke(app, [*command, "--help"])
    assert answer.exit_code == 0
    assert "Usage" in answer.stdout


def test_heavy_libraries_wait_until_they_are_needed():
    code = "import sys, calipers.cli; print([n for n in ('calipers.study', 'matplotlib') "
    code += "if n in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_options_reach_the_runner(monkeypatch, tmp_path):
    seen = {}

    def run(methods, datasets, **options):
        seen.update(options, methods=methods, datasets=datasets)
        options["notify"]("QD+ on boston: done")
        return RunReport(trained=3, kept=1, retries=2, seconds=1.5)

    monkeypatch.setattr(study, "run", run)
    command = ["study", "run", "--method", "qd+", "mse", "--dataset", "boston,wine", "yacht"]
    answer = runner.invoke(app, [*command, "--trials", "3", "--out", str(tmp_path)])
    assert answer.exit_code == 0
    assert seen["methods"] == ["qd+", "mse"]
    assert seen["datasets"] == ["boston", "wine", "yacht"]
    assert (seen["trials"], seen["store"], seen["seed"]) == (3, tmp_path, 0)
    assert lines(answer.stdout) == [
        "QD+ on boston: done",
        "3 trials trained in 1.5 s, 1 were in the store, 2 retries",
    ]


def test_everything_by_default(monkeypatch):
    seen = {}
    monkeypatch.setattr(study, "run", lambda *names, **_: seen.update(names=names) or RunReport())
    assert runner.invoke(app, ["study", "run"]).exit_code == 0
    assert seen["names"] == (None, None)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["--dataset", "yatch"], "there is no dataset 'yatch'; did you mean 'yacht'?"),
        (["--method", "qd++"], "there is no method 'qd++'; did you mean 'qd+'?"),
        (["bostn"], "there is no method or dataset 'bostn'; did you mean 'boston'?"),
        (["--trials", "0"], "--trials"),
        (["--trails", "2"], "--trails"),
    ],
)
def test_wrong_usage(command, message):
    answer = runner.invoke(app, ["study", "run", *command])
    assert answer.exit_code == 2
    assert message in " ".join(re.sub("[│╭╮╰╯─]", "", answer.stderr).split())


def test_error_is_one_line(tmp_path):
    answer = runner.invoke(app, ["study", "tables", "--store", str(tmp_path / "none")])
    assert answer.exit_code == 1
    [line] = lines(answer.stderr)
    assert line.startswith("error: ")
    assert "holds no trials" in line


def test_debug_shows_the_error(tmp_path):
    answer = runner.invoke(app, ["--debug", "study", "tables", "--store", str(tmp_path)])
    assert isinstance(answer.exception, StoreError)


def test_interrupt(monkeypatch):
    def run(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "run", run)
    answer = runner.invoke(app, ["study", "run"])
    assert answer.exit_code == 130
    assert lines(answer.stderr) == ["interrupted"]


def test_exit_code_of_the_process(tmp_path):
    command = [sys.executable, "-m", "calipers.cli", "study", "tables", "--store", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert "Traceback" not in answer.stderr


def test_status_of_an_empty_store(tmp_path):
    answer = runner.invoke(app, ["study", "status", "--store", str(tmp_path)])
    assert answer.exit_code == 0
    shown = lines(answer.stdout)
    assert shown[0].split() == ["dataset", *study.METHODS]
    assert shown[1].split() == ["boston", *["0/20"] * 5]
    assert shown[-2] == "0 of 830 trials are done, in 0 s of training"
    assert shown[-1].startswith("missing: qd+ on boston, ")


def test_search(monkeypatch, tmp_path):
    seen = {}

    def search_settings(datasets, protocol, **options):
        seen.update(options, datasets=datasets, protocol=protocol)
        return [Reckoning("yacht", "searched", "trial 0", {"PICP": 0.95}, {})]

    monkeypatch.setattr("calipers.study.search.search_settings", search_settings)
    command = ["study", "search", "--dataset", "yacht", "wine", "--candidates", "30"]
    answer = runner.invoke(app, [*command, "--halving", "3", "--out", str(tmp_path)])
    assert answer.exit_code == 0
    assert seen["datasets"] == ["yacht", "wine"]
    assert (seen["protocol"].candidates, seen["protocol"].halving) == (30, 3)
    assert seen["out"] == tmp_path
    assert lines(answer.stdout) == ["yacht, searched settings, trial 0: PICP 0.95"]
