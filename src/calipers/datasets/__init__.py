"""The datasets of the paper, and synthetic problems whose true distribution is known.

``load("yacht")`` finds a dataset in your own folder, in the cache or at its public address, and
refuses files that differ from the catalogue. Three environment variables control where it looks:
``CALIPERS_DATA`` (your own folder), ``CALIPERS_CACHE`` (where downloads are stored) and
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
