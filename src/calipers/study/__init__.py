"""The study: the paper's experiments, its tables and its figures."""

from calipers.study._methods import DATASETS, METHODS, Method
from calipers.study._run import run
from calipers.study._settings import SettingsError, StudySettings, load_settings, parse_settings
from calipers.study._store import Entry, Store, StoreError
from calipers.study._train import RunReport

__all__ = [
    "DATASETS",
    "METHODS",
    "Entry",
    "Method",
    "RunReport",
    "SettingsError",
    "Store",
    "StoreError",
    "StudySettings",
    "load_settings",
    "parse_settings",
    "run",
]
