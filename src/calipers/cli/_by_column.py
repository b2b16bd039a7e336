"""Coverage in groups of rows, as ``evaluate --by`` prints it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from calipers._arrays import FloatArray
from calipers._evaluation import LabelledPrediction, value_bins
from calipers._text import few_digits
from calipers.cli._measures import print_rates
from calipers.preprocessing import as_numbers
from calipers.regressor import IntervalRegressor

_MAX_GROUPS = 20


def column_as_read(model: IntervalRegressor, frame: pd.DataFrame, name: str) -> "pd.Series[Any]":
    """Return a column as the model reads it; if it is no input, with numbers in text as numbers."""
    inputs = {column.name: column for column in model.inputs_ if column.used}
    if name not in inputs:
        return as_numbers(frame[name])
    values = pd.Series(model.reader_.cells(model, model.pick(frame))[name])
    kind = inputs[name].dtype.kind
    if kind == "M":
        return pd.Series(values.to_numpy().astype("datetime64[s]"))
    return values.map({0.0: False, 1.0: True}) if kind == "b" else values


def measure_groups(labelled: LabelledPrediction, column: "pd.Series[Any]") -> list[dict[str, Any]]:
    """Return coverage and width for each value of a column, or for bins of numbers and dates."""
    is_date = pd.api.types.is_datetime64_any_dtype(column.dtype)
    is_number = pd.api.types.is_numeric_dtype(column.dtype)
    if is_date or (is_number and column.nunique() > _MAX_GROUPS):
        values = _seconds(column) if is_date else column.to_numpy(np.float64, na_value=np.nan)
        group, bins = value_bins(values)
        ends = [[_date(end) if is_date else few_digits(end) for end in each] for each in bins]
        labels = [" to ".join(dict.fromkeys(each)) for each in ends] + ["(missing)"]
    else:
        texts = column.astype(object).where(column.notna(), "(missing)")
        texts = texts.map(lambda v: str(int(v) if isinstance(v, float) and v.is_integer() else v))
        common = texts.value_counts().index[:_MAX_GROUPS]
        texts = texts.where(texts.isin(common), "(others)")
        names, group = np.unique(texts.to_numpy(dtype=str), return_inverse=True)
        labels = names.tolist()
    grouped = labelled.by_group(group)
    observed = [float(labelled.inside[group == number].mean()) for number in grouped.group]
    shared = [None] * len(observed) if labelled.ties is None else grouped.coverage_rate.tolist()
    columns = {
        "group": [labels[number] for number in grouped.group],
        "rows": grouped.n_samples.tolist(),
        "coverage_rate": observed,
        "shared_rate": shared,
        "mean_width": grouped.mean_width.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def print_groups(column: str, groups: Sequence[dict[str, Any]]) -> None:
    """Print the result of ``measure_groups``."""
    first = [(column, [row["group"] for row in groups]), ("rows", [row["rows"] for row in groups])]
    print_rates(first, "coverage_rate", groups)


def _seconds(dates: "pd.Series[Any]") -> FloatArray:
    """Return dates as seconds since 1970, NaN where they are missing."""
    since = pd.to_datetime(dates, utc=True) - pd.Timestamp(0, tz="UTC")
    return np.asarray(since.dt.total_seconds(), dtype=np.float64)


def _date(seconds: float) -> str:
    """Return a time as text, without the time of day at midnight."""
    return str(np.datetime64(int(seconds), "s")).replace("T", " ").removesuffix(" 00:00:00")
