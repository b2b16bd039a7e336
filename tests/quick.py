"""The tests of what changed, one per line, for ``make quick``.

Tests mirror the tree: a module has a test file of its name, else its package has a folder or a
file of tests, else its tests are those that name it. Where nothing changed that has tests, a core
selection stands in. Changes are those since this branch left ``main``, committed or not.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = (
    "tests/test_architecture.py",
    "tests/serialization/test_models_of_0_1.py",
    "tests/test_aggregation.py",
    "tests/test_losses.py",
    "tests/test_metrics.py",
    "tests/calibration",
    "src/calipers/distributions",
)
TREES = {"src/calipers": "tests", "study/src/calipers_study": "study/tests"}


def git(*arguments):
    """Lines that a command of Git prints; none if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed():
    """Files that differ from where this branch left ``main``, and new ones."""
    bases = (git("merge-base", "HEAD", branch) for branch in ("main", "origin/main"))
    base = next(filter(None, bases), ["HEAD"])[0]
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "-o", "--exclude-standard")})


def tests_of(path):
    """Tests of one file, by its path from the root of the repository."""
    folder, _, name = path.rpartition("/")
    if name.endswith(".md") and (path == "README.md" or folder.startswith("docs")):
        return [f"tests/test_docs.py::test_page_does_what_it_says[{path}]"]
    if not name.endswith(".py"):
        return []
    if folder == "examples":
        return [f"tests/test_examples.py::test_example_runs[{name.removesuffix('.py')}]"]
    if re.match(r"(study/)?tests/", path):
        return [folder] if name == "conftest.py" else [path] if name.startswith("test_") else []
    for tree, tests in TREES.items():
        if path.startswith(f"{tree}/"):
            module = path.removeprefix(f"{tree}/").removesuffix(".py")
            return [path, *mirrored(module, ROOT / tests, tree.rpartition("/")[2])]
    return []


def mirrored(module, tests, package):
    """Tests in a folder of a module, given by its path within its package, without suffix."""
    *rooms, last = [part.lstrip("_") for part in module.split("/")]
    names = [*(f"{room}" for room in rooms), f"test_{last}.py", *(f"test_{r}.py" for r in rooms)]
    places = [Path(*rooms, f"test_{last}.py"), *map(Path, names)]
    found = [tests / place for place in places if (tests / place).exists()][:1]
    if not found:
        name = re.compile(rf"\b{package}(\.| import ){module.split('/')[0]}\b")
        found = [path for path in tests.rglob("test_*.py") if name.search(path.read_text("utf-8"))]
    return [str(path.relative_to(ROOT)) for path in sorted(found)]


def selection(paths):
    """Tests of files, without those that a folder among them holds already."""
    found = dict.fromkeys(test for path in paths for test in tests_of(path))
    there = [test for test in found if (ROOT / test.partition("::")[0]).exists()]
    folders = tuple(f"{test}/" for test in there if (ROOT / test).is_dir())
    kept = [test for test in there if not test.startswith(folders)]
    return kept if any("test" in test for test in kept) else [*kept, *CORE]


if __name__ == "__main__":
    sys.stdout.write("\n".join(selection(changed())) + "\n")
