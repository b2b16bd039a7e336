"""The study: the paper's experiments, its tables and its figures."""

from calipers.study._figures import FIGURES, write_figures
from calipers.study._methods import DATASETS, METHODS, Method, choose
from calipers.study._run import run
from calipers.study._settings import SettingsError, StudySettings, load_settings, parse_settings
from calipers.study._status import Progress, status
from calipers.study._store import Entry, Store, StoreError
from calipers.study._tables import write_tables
from calipers.study._train import RunReport

__all__ = [
    "DATASETS",
    "FIGURES",
    "METHODS",
    "Entry",
    "Method",
    "Progress",
    "RunReport",
    "SettingsError",
    "Store",
    "StoreError",
    "StudySettings",
    "choose",
    "load_settings",
    "parse_settings",
    "run",
    "status",
    "write_figures",
    "write_tables",
]
