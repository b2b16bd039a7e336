"""The root command, and commands that other distributions add to it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import calipers
from calipers import cli
from calipers.cli import _plugins, app

runner = CliRunner()

MODULE = """
import typer
app = typer.Typer()

@app.command("one")
def one(times: int = 1):
    typer.echo("one " * times)

@app.command("fail")
def fail():
    raise ValueError("no file,\\n  no data")

@app.command("stop")
def stop():
    raise KeyboardInterrupt

def alone(name: str):
    typer.echo(f"alone with {name}")

number = 3
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make a distribution with commands, as if it were installed."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(_plugins, "KNOWN", {"study": "install it"})

    def make(points, module=MODULE):
        (site / "extra_commands.py").write_text(module)
        folder = site / "extra-1.dist-info"
        folder.mkdir()
        metadata = (
            "Metadata-Version: 2.1\nName: extra\nVersion: 1\nSummary: Commands to test with.\n"
        )
        (folder / "METADATA").write_text(metadata)
        (folder / "entry_points.txt").write_text(f"[{_plugins.GROUP}]\n{points}\n")
        monkeypatch.delitem(sys.modules, "extra_commands", raising=False)

    return make


def lines(text):
    return text.strip().splitlines()


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"calipers {calipers.__version__}"


def test_group_of_another_distribution(install):
    install("extra = extra_commands:app")
    result = runner.invoke(app, ["extra", "one", "--times", "2"])
    assert (result.exit_code, result.stdout.strip()) == (0, "one one")
    assert "--times" in runner.invoke(app, ["extra", "one", "--help"]).stdout
    assert runner.invoke(app, ["extra", "one", "--times", "x"]).exit_code == 2


def test_function_of_another_distribution(install):
    install("alone = extra_commands:alone")
    assert runner.invoke(app, ["alone", "me"]).stdout.strip() == "alone with me"


def test_help_lists_commands_without_importing_them(install):
    install("extra = extra_commands:app")
    result = runner.invoke(app, ["--help"])
    assert re.search(r"extra +Commands to test with\.", result.stdout)
    assert "extra_commands" not in sys.modules


def test_our_own_commands_go_first(install):
    install("fit = extra_commands:alone")
    assert "--target" in runner.invoke(app, ["fit", "--help"]).stdout
    assert len(re.findall("(?m)^ +fit ", runner.invoke(app, ["--help"]).stdout)) == 1


@pytest.mark.parametrize(
    ("point", "module", "message"),
    [
        ("extra_commands:app", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("extra_commands:nothing", MODULE, "AttributeError: "),
        ("extra_commands:number", MODULE, "must be a typer.Typer or a function, got 3"),
    ],
)
def test_broken_command_says_so_and_stops_no_other(install, point, module, message):
    install(f"extra = {point}", module)
    result = runner.invoke(app, ["extra", "one"])
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert line.startswith("error: the command 'extra' of extra ")
    assert message in line
    assert runner.invoke(app, ["--help"]).exit_code == 0
    assert runner.invoke(app, ["fit", "--help"]).exit_code == 0


def test_unreadable_entry_points_stop_no_other_command(install):
    install("this is no entry point")
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "fit" in result.stdout
    assert "commands of other packages cannot be read" in result.stderr
    assert runner.invoke(app, ["fit", "--help"]).stderr == ""


def test_known_command_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    result = runner.invoke(app, ["study", "run"])
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert line.startswith("error: ")
    assert "pip install ./study" in line
    assert "study" not in runner.invoke(app, ["--help"]).stdout


def test_unknown_command(install):
    install("extra = extra_commands:app")
    result = runner.invoke(app, ["extr"])
    assert result.exit_code == 2
    assert "No such command 'extr'" in result.stderr


def test_error_is_one_line(install):
    install("extra = extra_commands:app")
    result = runner.invoke(app, ["extra", "fail"])
    assert result.exit_code == 1
    assert lines(result.stderr) == ["error: no file, no data"]


def test_debug_shows_the_error(install):
    install("extra = extra_commands:app")
    assert isinstance(runner.invoke(app, ["--debug", "extra", "fail"]).exception, ValueError)


def test_interrupt(install):
    install("extra = extra_commands:app")
    result = runner.invoke(app, ["extra", "stop"])
    assert result.exit_code == 130
    assert lines(result.stderr) == ["interrupted"]


def test_exit_code_of_the_process(tmp_path):
    command = [sys.executable, "-m", "calipers.cli", "inspect", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_heavy_libraries_wait_until_they_are_needed():
    code = "import sys, calipers.cli; print([n for n in ('jax', 'pandas', 'matplotlib') "
    code += "if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_reference_names_what_other_packages_use():
    page = (Path(__file__).parents[2] / "docs/reference.md").read_text("utf-8")
    for name in {_plugins.GROUP, *cli.__all__} - {"app", "main"}:
        assert f"`{name}" in page
