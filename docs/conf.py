"""How Sphinx builds these pages: no network, no JavaScript for formulas, every warning an error."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.util import logging

import calipers
import calipers.report  # loads SciPy and JAX before autodoc mocks PyTorch, which both look for
import calipers.serve

# Formulas look well only in a mathematical font, which few systems have; ziamath has one.
_FONT = Path(find_spec("ziamath").origin).parent / "fonts" / "STIXTwoMath-Regular.ttf"

project = "calipers"
author = "The calipers developers"
project_copyright = author
version = release = calipers.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "py:obj"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The docstrings have types in their own words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_mock_imports = [name for name in ("onnx", "skpro", "torch") if find_spec(name) is None]
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"calipers {release}"
html_static_path = ["_static", str(_FONT)]
html_css_files = ["calipers.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False

_logger = logging.getLogger(__name__)


def _mathml(node, block):
    """A formula as MathML, which browsers draw by themselves."""
    try:
        return tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        _logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def _inline_math(translator, node):
    translator.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def _block_math(translator, node):
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(_mathml(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def _words_stay_words(app, doctree):
    """Types are written in words, such as "array of shape (n,)"; those are no names to link."""
    for name in list(doctree.findall(addnodes.pending_xref)):
        if name["reftype"] == "class" and name["reftarget"].islower():
            name.replace_self(name.children)


def _skips(app, what, name, obj, skip, options):
    """Methods that scikit-learn adds, whose docstrings point into its own documentation."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def _write(page, text):
    """Write a page unless it is there, so that it is not read again."""
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, "utf-8")


def _whole(text):
    """Lists of commands with the first line of each, of which Typer takes the beginning."""
    first = dict(re.findall(r"(?m)^#+ `calipers (?:\w+ )?(\w+)`\n\n(.+)$", text))
    return re.sub(r"(?m)^\* `([a-z]+)`: .*$", lambda m: f"* `{m[1]}`: {first[m[1]]}", text)


def _commands(module, name):
    """Reference of the commands in a module."""
    command = [sys.executable, "-m", "typer", module, "utils", "docs", "--name", name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _write_pages(app):
    """The command line's reference, from the commands themselves, and the tables of the study."""
    folder = Path(app.srcdir) / "generated"
    own = _commands("calipers.cli", "calipers").partition("## `calipers study`")[0]
    study = re.sub("(?m)^#", "##", _commands("calipers_study.cli", "calipers study"))
    text = _whole(own + study).replace("`calipers`", "Command line", 1)
    _write(folder / "command-line.md", text)
    results = Path(app.srcdir).parent / "results"
    for table in (*results.glob("tables/*.md"), results / "again.md"):
        text = re.sub("^##", "#", table.read_text("utf-8"), flags=re.MULTILINE)
        _write(folder / table.name, f"---\norphan: true\n---\n{text}")


def _point_to_pages(app, name, source):
    """Links that lead out of docs/ in the repository lead to copies of those pages here."""
    text = re.sub(r"\]\(\.\./results/(tables/|(?=again\.md))", "](generated/", source[0])
    source[0] = re.sub(r"\[([^]]+)\]\(\.\./results/\w+\)", r"\1", text)  # folders are not copied


def setup(app):
    """Add what Sphinx lacks."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("builder-inited", _write_pages, priority=100)  # before pages are looked for
    app.connect("autodoc-skip-member", _skips)
    app.connect("source-read", _point_to_pages)
    app.connect("doctree-read", _words_stay_words)
