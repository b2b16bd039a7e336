"""Fixtures of all tests, and what pytest leaves alone: modules whose extra is not installed."""

import os
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
