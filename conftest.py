"""Fixtures of all tests, and what pytest leaves alone: modules whose extra is not installed."""

import contextlib
import os
import shutil
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

collect_ignore = [f"src/calipers/{name}.py" for name in ("skpro", "torch") if not find_spec(name)]

# Most of the time of these tests is compilation: a program takes 2.5 s of a processor with few
# optimisations, more with all, and 1.1 s if XLA also emits fused loops the old way, in one piece.
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1":
    FLAGS = "--xla_backend_optimization_level=1"
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # has no old way any more
        FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    if FLAGS not in os.environ.get("XLA_FLAGS", ""):  # workers have it from the process above
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

settings.register_profile("patient", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("patient")


DATA_FOLDER = os.environ.get("CALIPERS_DATA")


def pytest_addoption(parser):
    """Add a limit of time."""
    text = "seconds after which no further test is started, as `make quick` has it"
    parser.addoption("--budget", type=float, metavar="SECONDS", help=text)
    parser.addoption("--ends-at", type=float, help="the same as a time, passed on to workers")
    text = "download datasets if CALIPERS_DATA is not set; such tests are skipped otherwise"
    parser.addoption("--download", action="store_true", help=text)


def pytest_configure(config):
    """Set the end once, for all workers."""
    if config.option.budget and not config.option.ends_at:
        config.option.ends_at = time.time() + config.option.budget


def pytest_collection_modifyitems(items):
    """Start with the files that take longest, so that no worker is left alone with one."""
    longest = {
        "test_docs.py", "test_regressor.py", "test_campaigns.py", "test_online.py", "test_files.py",
        "test_connections.py", "test_attacks.py", "test_trees.py", "test_losses.py",
        "test_train.py", "test_components.py", "test_integrals.py", "test_rowblocks.py",
    }  # fmt: skip
    items.sort(key=lambda item: item.path.name not in longest)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leave out what no time is left for."""
    if time.time() > (item.config.option.ends_at or float("inf")):
        pytest.skip("no time left within the budget; `make unit` has none")


@pytest.fixture
def data_source(pytestconfig):
    """The folder with the real data; None if it is to be downloaded, which may fail."""
    if not (DATA_FOLDER or pytestconfig.option.download):
        pytest.skip("CALIPERS_DATA is not set, so the real data is not at hand")
    return Path(DATA_FOLDER) if DATA_FOLDER else None


@pytest.fixture
def data_folder(data_source):
    """The folder with the real data, for tests of files in it that the loader does not download."""
    if data_source is None:
        pytest.skip("CALIPERS_DATA is not set, and these files are nowhere else")
    return data_source


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory, pytestconfig):
    """Workers share what tests download, and the next run of all tests what they compiled.

    Programs of other sources are other programs, so it need not compile these again. The user's own
    cache is left alone, and no test sees the user's folder of data unless it asks for it.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    shared.mkdir(exist_ok=True)
    kept = getattr(pytestconfig, "cache", None)  # None where pytest is told to keep nothing
    with contextlib.suppress(FileExistsError):
        if kept is not None:
            (shared / "programs").symlink_to(kept.mkdir("programs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALIPERS_CACHE", str(shared))
        patch.delenv("CALIPERS_DATA", raising=False)
        yield


@pytest.fixture
def small_networks(monkeypatch):
    """Networks of a few neurons and epochs where none are named; what users have takes long."""
    from calipers import IntervalRegressor
    from calipers.networks import MLP

    small = {"hidden_layers": (8,), "frequencies": 0, "trees": 0}
    for part, defaults in ((MLP, small), (IntervalRegressor, {"epochs": 60})):
        for name, value in defaults.items():
            monkeypatch.setitem(part.__init__.__kwdefaults__, name, value)


@pytest.fixture(autouse=True)
def _small_networks_of_docstrings(request):
    """All examples but those that name the layers of a network themselves."""
    if isinstance(request.node, pytest.DoctestItem):
        sources = [example.source for example in request.node.dtest.examples]
        if not any("hidden_layers" in source for source in sources):
            request.getfixturevalue("small_networks")


@pytest.fixture(scope="session")
def chromium():
    """Chromium of the system, driven by Playwright and kept from calling home."""
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("there is no Chromium; `make test-browser` installs it")
    flags = [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update",
    ]  # fmt: skip
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()
