"""Datasets of the paper, and problems whose truth is known.

``load("yacht")`` finds a dataset in a folder of yours, in the cache or at its public address, and
lets nothing through that differs from the catalogue. Three environment variables steer it:
``CALIPERS_DATA`` (a folder of yours), ``CALIPERS_CACHE`` (where downloads are kept) and
``CALIPERS_MIRROR`` (the address of a mirror).
"""

from calipers._files import cache_folder
from calipers.datasets._catalogue import (
    CATALOGUE,
    DatasetCorruptError,
    DatasetError,
    DatasetUnavailableError,
    Entry,
    UnknownDatasetError,
    lookup,
)
from calipers.datasets._load import Dataset, available, load
from calipers.datasets._synthetic import FRIEDMAN, GAP, PROBLEMS, SKEWED, TOY, TWO_MODES, Problem

__all__ = [
    "CATALOGUE",
    "FRIEDMAN",
    "GAP",
    "PROBLEMS",
    "SKEWED",
    "TOY",
    "TWO_MODES",
    "Dataset",
    "DatasetCorruptError",
    "DatasetError",
    "DatasetUnavailableError",
    "Entry",
    "Problem",
    "UnknownDatasetError",
    "available",
    "cache_folder",
    "load",
    "lookup",
]
