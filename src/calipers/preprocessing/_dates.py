"""Dates in text, which are read only if there is one way to understand them."""

from typing import Any

import numpy as np

from calipers._checks import FloatArray
from calipers.preprocessing._text_columns import HOW, all_match

_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
_SLASHED = ("%m/%d/%Y", "%d/%m/%Y")
_WHICH_FIRST = (
    f"the day or the month may come first: give the kind 'date %d/%m/%Y' or 'date %m/%d/%Y' {HOW}"
)
_FIRST, _END = np.array(["0001-01-01", "10000-01-01"], "datetime64[us]")
_TIMES = ("", " %H:%M", " %H:%M:%S")


def date_text(texts: Any) -> tuple[str | None, str]:
    """The format of a column's distinct texts as dates, or None if they are not; and a note.

    >>> import pyarrow as pa
    >>> date_text(pa.array(["2024-01-31", "2024-02-01 12:30"]))[0]
    'ISO8601'
    >>> date_text(pa.array(["31/01/2024"]))[0]
    '%d/%m/%Y'
    >>> date_text(pa.array(["01/02/2024"]))[1].partition(":")[0]
    'the day or the month may come first'
    """
    if not all_match(texts, r"^(\d{1,4}\D|[A-Za-z]{3,9} \d)"):
        return None, ""
    if _reads(texts, "ISO8601"):
        return "ISO8601", ""
    for time in _TIMES:
        for day in _DAYS:
            if _reads(texts, day + time):
                return day + time, ""
        fits = [day + time for day in _SLASHED if _reads(texts, day + time)]
        if len(fits) == 1:
            return fits[0], ""
        if fits:
            return None, _WHICH_FIRST
    return None, ""


def _reads(texts: Any, form: str) -> bool:
    return all(not np.isnan(read_dates(part, form)).any() for part in (texts[:50], texts[50:]))


def read_dates(texts: Any, form: str | None) -> FloatArray:
    """Dates in an Arrow array or a series as seconds since 1970; NaN for text that is no date.

    Years outside 1 to 9999, as in ``0000-01-01``, count as no dates: other programs cannot read
    them.
    """
    import pandas as pd

    series = texts if isinstance(texts, pd.Series) else texts.to_pandas()
    parsed = pd.to_datetime(series, format=form, errors="coerce", utc=True)
    times = parsed.dt.tz_localize(None).to_numpy()
    if times.dtype != "datetime64[ns]":  # which can only represent the years 1677 to 2262
        first, end = _FIRST.astype(times.dtype), _END.astype(times.dtype)
        inside = (times >= first) & (times < end)
        times = np.where(inside, times, np.array("NaT", times.dtype))
    seconds = times.astype("datetime64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(times), np.nan, seconds)
