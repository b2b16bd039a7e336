"""Who may import whom, a meaning for each name, short code; import-linter holds the layers."""

import ast
import re
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

from calipers.preprocessing import KINDS

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "calipers").rglob("*.py"))
STUDY = sorted((SOURCE.parent / "study/src").rglob("*.py"))
MODULES = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in FILES}


def imported(tree):
    """Dotted names that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def foreign(package, name):
    """Whether a name is private to another package, or to a module inside a private package.

    Private modules of the top are everyone's, and so is what the private packages there export.
    """
    top, *parts = name.split(".")
    if top != "calipers" or parts[:1] == [package]:
        return False
    module = name if name in MODULES else name.rpartition(".")[0]
    inside = name.startswith("calipers._") and module.count(".") > 1
    return inside or any(part[:1] == "_" and part[:2] != "__" for part in parts[1:])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("calipers.bank._run.run", True),
        ("calipers.distributions._checks", True),
        ("calipers.storage._seal", True),
        ("calipers.cli._options.print_rows", False),
        ("calipers._files.replacing", False),
        ("calipers._estimator.run_fit", False),
        ("calipers._estimator.joint_fits", True),
        ("calipers._estimator.joint_fits.run_fit", True),
        ("calipers.bank.train", False),
        ("calipers", False),
        ("numpy._core", False),
    ],
)
def test_what_counts_as_foreign(name, expected):
    assert foreign("cli", name) is expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_private_to_another_package_is_imported(path):
    package = path.relative_to(SOURCE).parts[1].removesuffix(".py")
    found = [name for name in imported(ast.parse(path.read_text())) if foreign(package, name)]
    assert not found


def classes(tree):
    """Names of the classes that a module defines."""
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def defined(tree):
    """Names of the classes and type aliases that a module defines."""
    yield from classes(tree)
    blocks = [tree, *(node for node in tree.body if isinstance(node, ast.If))]  # TYPE_CHECKING
    for node in (node for block in blocks for node in block.body):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if is_type(getattr(target, "id", "")))


def is_type(name):
    """Whether a name is written like that of a type."""
    name = name.lstrip("_")
    return name[:1].isupper() and not name.isupper()


def test_what_counts_as_defined():
    text = """
    import numpy as np
    Table, LARGEST = tuple[int, int], 5
    _Index = tuple[slice, ...]
    Array: TypeAlias = Any
    _TEXT: dict[str, int] = {}
    if TYPE_CHECKING:
        Model: TypeAlias = Regressor
    class Tree(NamedTuple):
        left: int
    def read(X_test):
        X_test = X_test + 1
    """
    names = ["Tree", "_Index", "Array", "Model"]
    assert list(defined(ast.parse(textwrap.dedent(text)))) == names


def test_only_modules_that_read_columns_compare_their_kinds():
    """Elsewhere ``Column.dtype`` and ``Column.repeats`` do, so that a new kind needs no change."""
    of_kinds = []
    for path in FILES:
        if {"preprocessing", "onnx", "_serialization"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".kind"):
                texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                of_kinds += [path.name] * bool(texts & {*KINDS} - {"identifier"})
    assert not of_kinds


def test_no_two_classes_or_type_aliases_share_a_name():
    places = defaultdict(set)
    for path in FILES:
        for name in defined(ast.parse(path.read_text("utf-8"))):
            places[name.lstrip("_")].add(f"{path.relative_to(SOURCE.parent)}: {name}")
    for path in STUDY:  # its modules each have aliases of their own
        for name in classes(ast.parse(path.read_text("utf-8"))):
            places[name.lstrip("_")].add(f"{path.relative_to(SOURCE.parent)}: {name}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared


def functions(path):
    """Names of the functions of a module that do not look private."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return (node.name for node in nodes if not node.name.startswith("_"))


def test_a_function_that_modules_share_has_a_name_of_its_own():
    """All but a few, whose package says of what they are."""
    places = defaultdict(list)
    for path in FILES:
        package, *_ = path.relative_to(SOURCE / "calipers").parts
        # Formulas of each family of distributions have the names of the methods that use them.
        for name in functions(path) if package != "distributions" else ():
            places[name].append(package)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert set(shared) == {"crps", "interval_score", "load", "run"}
    assert all(len(where) == len(set(where)) for where in shared.values())


def test_the_reference_says_what_is_public():
    pages = (SOURCE.parent / "docs/reference.md").read_text("utf-8")
    modules = re.findall(r"(?m)^   (calipers\.\w+)$", pages)
    assert len(modules) > 20
    for name in [*modules, "calipers.regressor"]:
        path = SOURCE / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert "__all__" in names, f"{name} does not list its public names"


def test_no_two_modules_share_a_name():
    places = defaultdict(set)
    for path in FILES:
        if path.name != "__init__.py":
            places[path.stem.lstrip("_")].add(str(path.relative_to(SOURCE)))
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared


def code_lines(function):
    """Number of lines of a function without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = first.end_lineno - first.lineno + 1 if has_docstring else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_most_modules_and_nearly_all_functions_are_short():
    """As CONTRIBUTING.md says; a few of each hold one long idea."""
    texts = [path.read_text("utf-8") for path in FILES]
    long_modules = sum(len(text.splitlines()) >= 250 for text in texts)
    functions = [
        node
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long_functions = sum(code_lines(function) >= 40 for function in functions)
    assert long_modules < len(FILES) / 4
    assert long_functions < len(functions) / 50


def test_few_annotations_are_a_bare_any():
    """``Any`` is for values of libraries without types; ``benchmarks/size.py`` counts the same."""
    found = []
    for node in (node for path in FILES for node in ast.walk(ast.parse(path.read_text("utf-8")))):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    annotations = [annotation for annotation in found if annotation is not None]
    bare = sum(getattr(annotation, "id", "") == "Any" for annotation in annotations)
    assert bare < 0.03 * len(annotations)
