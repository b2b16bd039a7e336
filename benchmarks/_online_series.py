"""Series in time order as tables: lags and calendar are the inputs, the next value is the target.

Six series come from the folder ``series`` inside ``CALIPERS_DATA``, three from packages on PyPI
(statsmodels: co2; pmdarima: sunspots, taylor). A missing lag takes the last known value before it;
rows without a target are dropped.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class Series:
    """One table in time order.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n, inputs)
    y : ndarray of shape (n,)
    start : int
        First row of the stream; the rows before are for training.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    start: int


SPECS = {
    # name: (target, lags)
    "electricity": ("nswdemand", (1, 2, 3, 48, 96, 336)),
    "beijing_air": ("pm25", (1, 2, 3, 24, 48, 168)),
    "solar_atlanta": ("dhi", (1, 2, 3, 24, 48)),
    "solar_palo_alto": ("dhi", (1, 2, 3, 24, 48)),
    "solar_fremont": ("dhi", (1, 2, 3, 24, 48)),
    "delhi_climate": ("meantemp", (1, 2, 3, 7, 14)),
    "co2": ("co2", (1, 2, 3, 52)),
    "sunspots": ("sunspots", (1, 2, 3, 12, 132)),
    "taylor": ("demand", (1, 2, 3, 48, 336)),
}

MAX_STEPS = 3_000
"""Longest stream; the peers take milliseconds for a step."""

CHANGES = ("none", "change")
"""The series unchanged, or with another level and scale from the middle of the stream on."""


def load(name, change="none", first=0.5, last=1.0, most=MAX_STEPS):
    """Make the table of a series.

    Parameters
    ----------
    name : str
        A key of `SPECS`.
    change : {"none", "change"}
        With "change", values from the middle of the stream on are 1.5 times as far from the mean
        of the training rows, and higher by one standard deviation of theirs.
    first, last : float
        The stream begins and ends after these parts of the series.
    most : int
        Steps after which it ends at the latest.
    """
    target, lags = SPECS[name]
    frame = _read(name)
    values = frame.pop(target).to_numpy(dtype=np.float64)
    calendar = frame.to_numpy(dtype=np.float64)
    start = int(first * len(values))
    n = min(int(last * len(values)), start + most)
    values, calendar = values[:n], calendar[:n]
    if change == "change":
        middle = (start + n) // 2
        mean, deviation = np.nanmean(values[:start]), np.nanstd(values[:start])
        values = values.copy()
        values[middle:] = mean + 1.5 * (values[middle:] - mean) + deviation
    known = pd.Series(values).ffill().bfill().to_numpy()
    columns = [np.concatenate([np.full(lag, known[0]), known[:-lag]]) for lag in lags]
    keep = np.isfinite(values)
    keep[: min(max(lags), start // 4)] = False
    X = np.column_stack([*columns, calendar])
    return Series(name, X[keep], values[keep], int(keep[:start].sum()))


def _read(name):
    """The target and the calendar of a series, as a frame."""
    target = SPECS[name][0]
    if name == "co2":
        from statsmodels.datasets import co2

        data = co2.load_pandas().data
        return pd.DataFrame({"co2": data["co2"], "day": data.index.dayofyear})
    if name in ("sunspots", "taylor"):
        from pmdarima import datasets

        values = np.asarray(getattr(datasets, f"load_{name}")(), dtype=np.float64)
        step = np.arange(len(values))
        if name == "sunspots":
            return pd.DataFrame({target: values, "month": step % 12})
        return pd.DataFrame({target: values, "period": step % 48, "weekday": step // 48 % 7})
    data = pd.read_csv(Path(os.environ["CALIPERS_DATA"], "series", f"{name}.csv.gz"))
    if name == "electricity":
        return data[[target, "day", "period"]]
    time = pd.to_datetime(data["time"])
    parts = {target: data[target], "day": time.dt.dayofyear, "weekday": time.dt.weekday}
    return pd.DataFrame(parts if name == "delhi_climate" else parts | {"hour": time.dt.hour})
