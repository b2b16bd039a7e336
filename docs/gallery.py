"""The gallery: examples run cell by cell, as notebooks and as pages with what they print.

``python docs/gallery.py`` writes ``examples/notebooks/NAME.ipynb`` and ``docs/gallery/NAME.md`` for
each example in cells; ``python docs/gallery.py quickstart`` only that one. A cell begins with
``# %%``; comments that follow it are its text. Pictures that a cell saves are shown below it.
"""

import ast
import base64
import contextlib
import io
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, NOTEBOOKS = ROOT / "examples", ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "gallery"


class Cell(NamedTuple):
    """A cell: its text, its code, and after it has run what it printed and drew."""

    text: str
    code: str
    printed: str = ""
    pictures: tuple[bytes, ...] = ()


def read_cells(source):
    """The docstring of an example, and its cells."""
    docstring = ast.get_docstring(ast.parse(source))
    _, *parts = re.split(r"(?m)^# %%", source)
    cells = []
    for part in parts:
        comment, code = re.match(r"(.*\n(?:#.*\n)*)([\s\S]*)", part).groups()
        text = " ".join(line.lstrip("#").strip() for line in comment.splitlines())
        cells.append(Cell(text.strip(), code.strip()))
    return docstring, cells


def run(cells, name):
    """The same cells with their outputs, run from top to bottom in an empty folder."""
    names, seen, done = {"__name__": "__main__"}, set(), []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(cells):
            with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(cell.code, f"{name}, cell {number + 1}", "exec"), names)
            new = sorted(path for path in Path().glob("*.png") if path not in seen)
            seen.update(new)
            done.append(cell._replace(
                printed=printed.getvalue(), pictures=tuple(path.read_bytes() for path in new)
            ))  # fmt: skip
    return done


def notebook(title, docstring, cells):
    """A notebook of version 4.5, as JSON."""
    parts = [{"cell_type": "markdown", "source": f"# {title}\n\n{docstring}"}]
    for count, cell in enumerate(cells, 1):
        outputs = []
        if cell.printed:
            outputs.append({"output_type": "stream", "name": "stdout", "text": cell.printed})
        for picture in cell.pictures:
            data = {"image/png": base64.b64encode(picture).decode()}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        code = {"cell_type": "code", "source": cell.code, "execution_count": count}
        parts += [{"cell_type": "markdown", "source": cell.text}, code | {"outputs": outputs}]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "cells": [{"id": f"cell-{i}", "metadata": {}} | part for i, part in enumerate(parts)],
    }


def page(name, title, docstring, cells):
    """A page of the documentation; its pictures lie beside it."""
    lines = [f"# {title}", "", docstring, ""]
    lines += [f"From `examples/{name}.py`; as a notebook, `examples/notebooks/{name}.ipynb`.", ""]
    for number, cell in enumerate(cells, 1):
        lines += [cell.text, "", "```{code-block} python", cell.code, "```", ""]
        if cell.printed:
            lines += ["```{code-block} text", cell.printed.rstrip(), "```", ""]
        for part, picture in enumerate(cell.pictures, 1):
            file = PAGES / f"{name}-{number}-{part}.png"
            file.write_bytes(picture)
            lines += [f"![What the cell above draws]({file.name})", ""]
    return "\n".join(lines)


def main():
    """Run examples and write what they give."""
    wanted = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for folder in (NOTEBOOKS, PAGES):
        folder.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        docstring, cells = read_cells((EXAMPLES / f"{name}.py").read_text("utf-8"))
        if not cells:
            continue
        head, _, rest = docstring.partition("\n\n")
        title, _, about = head.rstrip(".").partition(": ")
        rest = re.sub(r"Cells begin with.*", "", rest).strip()
        words = " ".join(filter(None, [f"{about[:1].upper()}{about[1:]}.", rest]))
        done = run(cells, name)
        text = json.dumps(notebook(title, words, done), indent=1, ensure_ascii=False)
        (NOTEBOOKS / f"{name}.ipynb").write_text(text + "\n", "utf-8")
        (PAGES / f"{name}.md").write_text(page(name, title, words, done), "utf-8")
        sys.stdout.write(f"{name}: {len(done)} cells\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
