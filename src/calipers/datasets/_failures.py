"""What can go wrong with a dataset; each case has a name, so that callers can tell them apart."""


class DatasetError(Exception):
    """Any failure of :mod:`calipers.datasets`."""


class UnknownDatasetError(DatasetError, ValueError):
    """The name is not in the catalogue."""


class DatasetUnavailableError(DatasetError):
    """The data is neither at hand nor to be had; the message says how to provide it."""


class DatasetCorruptError(DatasetError, ValueError):
    """A file is there, but it does not hold the dataset that the catalogue describes."""
