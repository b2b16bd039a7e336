"""Every block of the README and of docs/ runs, and prints what the page says that it prints.

A page is run from top to bottom in an empty folder. What a fence says decides:

``python``, ``sh``
    Runs. Python blocks of a page share their names, shell blocks its folder. What follows the word,
    such as ``python needs PyTorch``, is the reason why a block cannot run here, and it does not.
``text output``
    What the block before it printed. Numbers stand for any numbers, since they depend on the
    machine; all else must be the same.
``text``, ``toml``, ``json``, ``yaml``, ``ini``, ``nginx``, ``dockerfile``
    Shows something for another program.

The page on serving talks to a server, which is started for it.
"""

import contextlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from calipers import IntervalRegressor
from calipers.aggregation import AGGREGATIONS
from calipers.cli import app
from calipers.networks import MLP

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in DOCS.rglob("*.md") if not {"_build", "generated"} & set(p.parts)),
]
SERVING = DOCS / "serving.md"
SHOWN = {"text", "toml", "json", "yaml", "ini", "nginx", "dockerfile"}
SECONDS = 600
PLAIN_COMMAND = re.compile(r"calipers [^|<>;&$]*$")


class Block(NamedTuple):
    """A fence of a page."""

    kind: str
    rest: str
    text: str
    line: int


def blocks(text):
    """Fences of a page that are not directives."""
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and not token.info.startswith("{"):
            kind, _, rest = token.info.partition(" ")
            yield Block(kind, rest.strip(), token.content, token.map[0] + 1)


def shape(text):
    """Words and columns of an output, whatever its numbers and checksums."""
    numbers = re.compile(r"-?\b[0-9a-f]{12,}\b|-?\d[\d,.]*(e[+-]?\d+)?")
    lines = (re.sub(r"\s+", " ", numbers.sub("#", line)).strip() for line in text.splitlines())
    return [line for line in lines if line]


class Reader:
    """Follows the instructions of a page in order."""

    def __init__(self, page, **names):
        self.page, self.names, self.printed = page, {"__name__": "__main__"} | names, ""

    def follow(self, text):
        for block in blocks(text):
            self.do(block)

    def do(self, block):
        if block.kind in ("python", "sh"):
            run = self.run_python if block.kind == "python" else self.run_shell
            self.printed = "" if block.rest else run(block)
        elif block.kind == "text" and block.rest == "output":
            assert shape(self.printed) == shape(block.text), self.at(block, "prints something else")
        else:
            assert block.kind in SHOWN, self.at(block, f"is {block.kind!r}, which nothing runs")

    def run_python(self, block):
        # Empty lines in front make tracebacks name the line of the page.
        code = compile("\n" * block.line + block.text, self.page, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        return printed.getvalue()

    def run_shell(self, block):
        lines, printed = block.text.replace("\\\n", " ").splitlines(keepends=True), []
        for plain, part in itertools.groupby(lines, lambda line: bool(PLAIN_COMMAND.match(line))):
            if plain:
                printed += [self.run_command(block, line) for line in part]
            else:
                printed.append(self.run_bash(block, "".join(part)))
        return "".join(printed)

    def run_command(self, block, text):
        """A plain call of the command line, in this process: a new one costs seconds each."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # as users have it
            done = CliRunner().invoke(app, shlex.split(text, comments=True)[1:])
        assert done.exit_code == 0, self.at(block, f"ended with {done.exit_code}:\n{done.output}")
        return done.stdout

    def run_bash(self, block, text):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=os.environ | {"PATH": path, "CURL_HOME": "."},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        failed = f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, self.at(block, failed)
        return done.stdout

    def at(self, block, problem):
        return f"{self.page.relative_to(ROOT)}:{block.line}: the block {problem}"


def follow(page):
    """Follow the instructions of a page in this folder."""
    with mock.patch.dict(AGGREGATIONS):  # a page may add its own
        Reader(page).follow(page.read_text("utf-8"))


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p != SERVING], ids=lambda page: str(page.relative_to(ROOT))
)
def test_page_does_what_it_says(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if "hidden_layers" not in page.read_text("utf-8"):
        request.getfixturevalue("small_networks")
    follow(page)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda page: page.stem
)
def test_page_does_what_it_says_with_networks_as_users_have_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(page)


@contextlib.contextmanager
def serving(folder):
    """A server of a model in a folder, and its address."""
    command = [sys.executable, "-m", "calipers.cli", "serve", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://(\S+)", server.stdout.readline())[1].rstrip("/")
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)


@pytest.mark.long
def test_page_on_serving_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = ["age", "sex", "bmi", "bp", *(f"s{i}" for i in range(1, 7))]  # as in the demo
    rows = pd.DataFrame(rng.uniform(1, 100, (60, 10)), columns=names)
    tiny = {
        "n_networks": 2,
        "cv": 2,
        "network": MLP(hidden_layers=(8,), frequencies=0),
        "epochs": 5,
    }
    model = IntervalRegressor(random_state=0, **tiny).fit(rows, rows["age"] + rows["bmi"])
    model.save("model")
    rows.to_csv("rows.csv", index=False)
    Path(".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
    with serving("model") as address:
        reader = Reader(SERVING, table=pa.Table.from_pandas(rows))
        reader.follow(SERVING.read_text("utf-8").replace("localhost:8000", address))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n1 / 0\n```", "division by zero"),
        ("```sh\nfalse\n```", "ended with 1"),
        ("```sh\necho one 1\n```\n```text output\ntwo 1\n```", "prints something else"),
        ("```bash\nnvidia-smi\n```", "which nothing runs"),
        ("```\nanything\n```", "which nothing runs"),
    ],
)
def test_wrong_page_is_found(text, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, ZeroDivisionError), match=problem):
        Reader(ROOT / "README.md").follow(text)


def test_numbers_of_an_output_are_free():
    assert shape("width   12.5\n\nrows 1,000") == shape("width -7e-3\nrows 12")
    assert shape("-inf") != shape("inf")


def test_tutorial_after_readme_in_one_folder_replaces_nothing():
    """No name is written twice, unless the same line writes the same file again."""
    written = {}
    place = re.compile(r"""(?:--out |> |\.save\("|\.report\(.*, "|savefig\(")([\w./-]+)""")
    for page in (ROOT / "README.md", DOCS / "tutorial.md"):
        for block in blocks(page.read_text("utf-8")):
            for line in block.text.splitlines() if block.kind in ("sh", "python") else ():
                command = line.partition("  #")[0]
                for name in place.findall(command):
                    assert written.setdefault(name, command) == command
    assert {"patients", "diabetes-model", "model", "report.html", "new.csv"} <= set(written)
