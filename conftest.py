"""Fixtures of all tests, and what pytest leaves alone: modules whose extra is not installed."""

import os
import shutil
from importlib.util import find_spec

import pytest
from hypothesis import settings

collect_ignore = [] if find_spec("torch") else ["src/calipers/torch.py"]

settings.register_profile("patient", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Nothing that tests compile or download leaves the test run, whose workers share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALIPERS_CACHE", str(shared / "cache"))
        yield


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
