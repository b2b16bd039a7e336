import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import calipers.cli
from calipers_study.cli import app
from calipers_study.comparison import Comparison
from calipers_study.methods import METHODS
from calipers_study.store import StoreError
from calipers_study.training import RunReport

ROOT = Path(__file__).parents[1]

runner = CliRunner()


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The entry point of this distribution, as if it were installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "calipers_study-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n"
        f"Summary: {project['description']}\n"
    )
    [(group, points)] = project["entry-points"].items()
    text = "".join(f"{name} = {value}\n" for name, value in points.items())
    (folder / "entry_points.txt").write_text(f"[{group}]\n{text}")
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("installed")
def test_calipers_finds_the_command(tmp_path):
    shown = runner.invoke(calipers.cli.app, ["--help"])
    assert re.search(r"study +The paper's experiments", shown.stdout)
    result = runner.invoke(calipers.cli.app, ["study", "tables", "--store", str(tmp_path)])
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert line.startswith("error: ")
    assert "holds no trials" in line
    usage = runner.invoke(calipers.cli.app, ["study", "run", "--help"]).stdout
    assert "calipers study run" in usage or "study run [OPTIONS]" in usage
    debug = ["--debug", "study", "tables", "--store", str(tmp_path)]
    assert isinstance(runner.invoke(calipers.cli.app, debug).exception, StoreError)


@pytest.mark.parametrize(
    "command", ["all", "run", "tables", "figures", "extras", "pack", "unpack", "search", "status"]
)
def test_help(command):
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_heavy_libraries_wait_until_they_are_needed():
    code = "import sys, calipers_study.cli; print([n for n in ('jax', 'numpy', 'matplotlib') "
    code += "if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_options_reach_the_runner(monkeypatch, tmp_path):
    seen = {}

    def run(methods, datasets, **options):
        seen.update(options, methods=methods, datasets=datasets)
        options["notify"]("QD+ on boston: done")
        return RunReport(trained=3, kept=1, retries=2, seconds=1.5)

    monkeypatch.setattr("calipers_study.run.run", run)
    command = ["run", "--method", "qd+", "mse", "--dataset", "boston,wine", "yacht"]
    result = runner.invoke(app, [*command, "--trials", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert seen["methods"] == ["qd+", "mse"]
    assert seen["datasets"] == ["boston", "wine", "yacht"]
    assert (seen["trials"], seen["store"], seen["seed"]) == (3, tmp_path, 0)
    assert lines(result.stdout) == [
        "QD+ on boston: done",
        "3 trials trained in 1.5 s, 1 were in the store, 2 retries",
    ]


def test_everything_by_default(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "calipers_study.run.run", lambda *names, **_: seen.update(names=names) or RunReport()
    )
    assert runner.invoke(app, ["run"]).exit_code == 0
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
    result = runner.invoke(app, ["run", *command])
    assert result.exit_code == 2
    assert message in " ".join(re.sub("[│╭╮╰╯─]", "", result.stderr).split())


def test_status_of_an_empty_store(tmp_path):
    result = runner.invoke(app, ["status", "--store", str(tmp_path)])
    assert result.exit_code == 0
    shown = lines(result.stdout)
    assert shown[0].split() == ["dataset", *METHODS]
    assert shown[1].split() == ["boston", *["0/20"] * 5]
    assert shown[-2] == "0 of 830 trials are done, in 0 s of training"
    assert shown[-1].startswith("missing: qd+ on boston, ")


def test_search(monkeypatch, tmp_path):
    seen = {}

    def search_settings(datasets, protocol, **options):
        seen.update(options, datasets=datasets, protocol=protocol)
        return [Comparison("yacht", "searched", "trial 0", {"PICP": 0.95}, {})]

    monkeypatch.setattr("calipers_study.search.search_settings", search_settings)
    command = ["search", "--dataset", "yacht", "wine", "--candidates", "30"]
    result = runner.invoke(app, [*command, "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert seen["datasets"] == ["yacht", "wine"]
    assert seen["protocol"].candidates == 30
    assert seen["out"] == tmp_path
    assert lines(result.stdout) == ["yacht, searched settings, trial 0: PICP 0.95"]
