"""Reading text: which of it means numbers or dates, and only where there is one way to read it."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.preprocessing._column import DataError

FloatArray = NDArray[np.float64]

MISSING_WORDS = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "?", "-", "--", ".", "missing"]
)
"""Text that means a missing value in a column of numbers or dates; any case."""

_MOSTLY = 0.9  # a column with this share of numbers, or dates, is one with mistakes in it
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_CODE = re.compile(r"[+-]?0\d")
_UNITS = "%$€£¥"
_GROUPED = {
    (".", ","): re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?"),
    (",", "."): re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"),
}
_TELLING = {  # text that only one of the two ways to write numbers allows
    (".", ","): re.compile(r".*(,\d{3},|,\d{3}\.)"),
    (",", "."): re.compile(r".*(\.\d{3}\.|\.\d{3},|,(\d{1,2}|\d{4,})$|\d{4},)"),
}
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
_SLASHED = ("%m/%d/%Y", "%d/%m/%Y")
_WHICH_FIRST = "the day or the month may be first: name the kind 'date %d/%m/%Y' or 'date %m/%d/%Y'"
_TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class NumberText:
    """How numbers are written: decimal mark, mark between thousands, and a unit."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def read(self, texts: Any) -> FloatArray:
        """Numbers of a series of texts; NaN for what is none."""
        import pandas as pd

        texts = texts.str.strip()
        if self.unit:
            texts = texts.str.strip(self.unit + " ")
        if self.thousands:
            texts = texts.str.replace(self.thousands, "", regex=False)
        if self.decimal != ".":
            texts = texts.str.replace(self.decimal, ".", regex=False)
        plain = texts.map(lambda text: bool(_PLAIN.fullmatch(text)), na_action="ignore")
        return pd.to_numeric(texts.where(plain == True), errors="coerce").to_numpy(  # noqa: E712
            dtype=np.float64, na_value=np.nan
        )


def number_text(texts: Any) -> tuple[NumberText | None, str]:
    """How the distinct texts of a column write numbers, or None; and what was noticed.

    Examples
    --------
    >>> import pandas as pd
    >>> number_text(pd.Series(["1,234.5", "17"]))[0]
    NumberText(decimal='.', thousands=',', unit='')
    >>> number_text(pd.Series(["1,234", "17"]))
    (None, "may be thousands or decimals: name the kind 'number 1,234.5' or 'number 1.234,5'")
    """
    values = list(texts)
    unit = next((u for u in _UNITS if all(u in (v[0], v[-1]) for v in values)), "")
    bare = [value.strip(unit + " ") for value in values] if unit else values
    if all(map(_PLAIN.fullmatch, bare)):
        if any(map(_CODE.match, bare)):
            return None, "has leading zeros: taken for codes, not numbers"
        return NumberText(unit=unit), ""
    fits = [way for way, shape in _GROUPED.items() if all(map(shape.fullmatch, bare))]
    told = [way for way in fits if any(map(_TELLING[way].match, bare))]
    if len(told) == 1:
        return NumberText(*told[0], unit=unit), ""
    if fits:
        note = "may be thousands or decimals: name the kind 'number 1,234.5' or 'number 1.234,5'"
        return None, note
    return None, ""


def date_text(texts: Any) -> tuple[str | None, str]:
    """Format of the distinct texts of a column as dates, or None; and what was noticed.

    Examples
    --------
    >>> import pandas as pd
    >>> date_text(pd.Series(["2024-01-31", "2024-02-01 12:30"]))[0]
    'ISO8601'
    >>> date_text(pd.Series(["31/01/2024"]))[0]
    '%d/%m/%Y'
    >>> date_text(pd.Series(["01/02/2024"]))
    (None, "the day or the month may be first: name the kind 'date %d/%m/%Y' or 'date %m/%d/%Y'")
    """
    if not texts.str.match(r"\d{1,4}\D|[A-Za-z]{3,9} \d").all():
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
    return all(
        not np.isnan(read_dates(part, form)).any() for part in (texts.iloc[:50], texts.iloc[50:])
    )


def read_dates(texts: Any, form: str | None) -> FloatArray:
    """Seconds since 1970 of dates in a series; NaN for what is none."""
    import pandas as pd

    found = pd.to_datetime(texts, format=form, errors="coerce", utc=True)
    times = found.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e6)


def refuse_mixture(texts: Any, levels: Any, most: int, name: str) -> None:
    """Refuse a column that is numbers, or dates, but for a few values.

    Parameters
    ----------
    texts : series of str
        All values that are there, with the row as index.
    levels : series of str
        The distinct ones, most frequent first.
    most : int
        Up to so many distinct values are taken for categories, whatever they are.
    name : str
        Name of the column.
    """
    if len(levels) <= most:
        return
    readings = (("numbers", NumberText().read), ("dates", lambda part: read_dates(part, "ISO8601")))
    for what, read in readings:
        good = dict(zip(levels, ~np.isnan(read(levels)), strict=True))
        fits = texts.map(good).to_numpy(dtype=bool)
        if _MOSTLY <= fits.mean() < 1:
            place = int(np.argmin(fits))
            raise DataError(
                f"{texts.iloc[place]!r} is not among the {what} that this column holds otherwise "
                f"({fits.mean():.0%} of it): correct it, or leave it empty",
                column=name,
                row=int(texts.index[place]),
            )
