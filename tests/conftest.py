"""Fixtures for all tests."""

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Nothing that tests compile or download leaves the test run, nothing enters it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALIPERS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
