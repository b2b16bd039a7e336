"""The examples run from top to bottom, in an empty folder."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NEEDS_TORCH = {"torch_loop.py"}  # runs in tests/torch
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name not in NEEDS_TORCH)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path), run_name="__main__")
    assert names["__doc__"]
    assert capsys.readouterr().out


def test_there_are_examples():
    assert len(EXAMPLES) >= 3
