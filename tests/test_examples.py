"""The examples run from top to bottom, in an empty folder."""

import json
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NEEDS_TORCH = {"torch_loop.py"}  # runs in tests/torch
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name not in NEEDS_TORCH)


def run(path, folder, monkeypatch, capsys):
    """An example says what it is about, runs to its end and prints something."""
    monkeypatch.chdir(folder)
    names = runpy.run_path(str(path), run_name="__main__")
    assert names["__doc__"]
    assert capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch, capsys, request):
    if "hidden_layers" not in path.read_text("utf-8"):
        request.getfixturevalue("small_networks")
    run(path, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_with_networks_as_users_have_them(path, tmp_path, monkeypatch, capsys):
    run(path, tmp_path, monkeypatch, capsys)


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_notebook_and_page_have_the_cells_of_the_example(path):
    """`make notebooks` writes them again after an example was changed."""
    gallery = runpy.run_path(str(FOLDER.parent / "docs" / "gallery.py"))
    _, cells = gallery["read_cells"](path.read_text("utf-8"))
    notebook = json.loads((FOLDER / "notebooks" / f"{path.stem}.ipynb").read_text("utf-8"))
    sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sources == [cell.code for cell in cells]
    page = (FOLDER.parent / "docs" / "gallery" / f"{path.stem}.md").read_text("utf-8")
    assert all(f"```{{code-block}} python\n{code}\n```" in page for code in sources)
