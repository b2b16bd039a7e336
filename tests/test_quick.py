"""`make quick` finds the tests of a change."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
quick = runpy.run_path(str(ROOT / "tests" / "quick.py"))
PAGE = "tests/test_docs.py::test_page_does_what_it_says"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/calipers/regressor.py", {"tests/test_regressor.py"}),
        ("src/calipers/bank/_cache.py", {"tests/bank/test_cache.py"}),
        ("src/calipers/bank/_clock.py", {"tests/bank"}),
        ("src/calipers/_serialization/models.py", {"tests/serialization"}),
        ("src/calipers/storage.py", {"tests/test_storage.py"}),
        ("src/calipers/_estimator/inputs.py", {"tests/test_inputs.py"}),
        ("src/calipers/metrics/_scorers.py", {"tests/test_scorers.py"}),
        ("src/calipers/metrics/_chance.py", {"tests/test_metrics.py"}),
        ("src/calipers/cli/_conformalize.py", {"tests/cli"}),
        ("study/src/calipers_study/verdict.py", {"study/tests/test_verdict.py"}),
        ("tests/serve/conftest.py", {"tests/serve"}),
        ("tests/test_losses.py", {"tests/test_losses.py"}),
        ("docs/tutorial.md", {f"{PAGE}[docs/tutorial.md]"}),
        ("README.md", {f"{PAGE}[README.md]"}),
        ("examples/quickstart.py", {"tests/test_examples.py::test_example_runs[quickstart]"}),
        ("CHANGELOG.md", set()),
        ("Makefile", set()),
    ],
)
def test_tests_mirror_the_tree(path, expected):
    assert {test for test in quick["tests_of"](path) if test != path or "test_" in path} == expected


def test_a_module_without_tests_of_its_own_has_those_that_name_it():
    found = quick["tests_of"]("src/calipers/optimizers.py")
    assert "src/calipers/optimizers.py" in found  # its doctests
    assert "tests/test_regressor.py" in found
    assert "tests/test_losses.py" not in found


def test_folders_swallow_their_files_and_deleted_files_have_no_tests():
    paths = ["tests/bank/test_train.py", "tests/bank/conftest.py", "tests/test_gone.py"]
    assert quick["selection"](paths) == ["tests/bank"]


def test_the_core_stands_in():
    core = list(quick["CORE"])
    assert quick["selection"](["Makefile"]) == core
    assert all((ROOT / path).exists() for path in core)
