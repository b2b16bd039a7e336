"""What text means: which of it is missing, numbers, clock times, dates or truth.

Every column of text is read here, be it an input, a target or a column that is kept beside the
predictions, so that one list of missing words and one rule for leading zeros hold for all. Text is
read as numbers or dates only where there is one way to read it.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers.preprocessing._column import DataError

FloatArray = NDArray[np.float64]

MISSING_WORDS = ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "missing")
"""Text that means a missing value in any column; any case."""

MISSING_MARKS = ("?", "-", "--", ".")
"""Text that means a missing value too, except among categories: there it may be one of them."""

HOW = "(--type on the command line, kinds= in Python)"  # where the kind of a column is given

_MOSTLY = 0.9  # a column with this share of numbers, or dates, is one with mistakes in it
_TEXT = pa.large_string()
_SPACE = r"[\s\x{A0}\x{202F}\x{2009}]"
_POWER = r"([eE][+-]?\d+)?"
_PLAIN = rf"^[+-]?((\d+\.?\d*|\.\d+){_POWER}|(?i:inf(inity)?))$"
_CODE = r"^[+-]?0\d"
_UNITS = "%$€£¥"
_CLOCK = ":"
_CLOCK_TIME = (
    r"^(?P<h>\d{1,3}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d(?:\.\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?$"
)
_WAYS = ((".", ","), (",", "."), (",", " "), (".", " "), (".", "'"))  # decimal and thousands
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
_SLASHED = ("%m/%d/%Y", "%d/%m/%Y")
_WHICH_FIRST = (
    f"the day or the month may be first: give the kind 'date %d/%m/%Y' or 'date %m/%d/%Y' {HOW}"
)
_TIMES = ("", " %H:%M", " %H:%M:%S")


def as_text(series: Any, *, marks: bool = False, keep: Any = ()) -> Any:
    """Values of a column as an Arrow array of stripped text, null where they are missing.

    Parameters
    ----------
    series : pandas Series
        The column. Of other values than text, 1.0 and 1 are the same text.
    marks : bool
        Whether ``MISSING_MARKS`` are missing as well.
    keep : collection of str
        Text that is a value even if it is in one of the lists.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        levels = as_text(pd.Series(series.cat.categories), marks=marks, keep=keep)
        codes = series.cat.codes.to_numpy()
        return levels.take(pa.array(codes, mask=codes < 0))
    text = pc.utf8_trim_whitespace(_strings(series))
    words = [*MISSING_WORDS, *(MISSING_MARKS if marks else ())]
    gone = pc.is_in(pc.utf8_lower(text), value_set=pa.array(words, _TEXT))
    if len(keep):
        gone = pc.and_not(gone, pc.is_in(text, value_set=pa.array(list(keep), _TEXT)))
    return pc.if_else(gone, pa.scalar(None, _TEXT), text)


def _strings(series: Any) -> Any:
    """A column as an Arrow array of text."""
    try:
        found = pa.array(series, _TEXT, from_pandas=True)
    except (pa.ArrowException, UnicodeEncodeError):
        pairs = zip(series, series.isna(), strict=True)
        texts = [None if gone else _string(value) for value, gone in pairs]
        found = pa.array(texts, _TEXT)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _string(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).encode(errors="replace").decode()


def _all(texts: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _any(texts: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def as_floats(array: Any) -> FloatArray:
    """An Arrow array of numbers as floats, NaN where it is null."""
    floats: FloatArray = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return floats


@dataclass(frozen=True)
class NumberText:
    """How numbers are written: decimal mark, mark between thousands, and a unit.

    A space between thousands stands for any kind of space. The unit ``:`` means clock times, which
    are read as hours.
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def read(self, texts: Any) -> FloatArray:
        """Numbers of an Arrow array of texts; NaN for what is none."""
        if self.unit == _CLOCK:
            return _hours(texts)
        bare = _bare(texts, self.unit)
        good = pc.match_substring_regex(bare, _PLAIN)
        if self.thousands:
            good = pc.match_substring_regex(bare, _grouped(self.decimal, self.thousands))
            bare = pc.replace_substring_regex(bare, _mark(self.thousands), "")
            bare = pc.replace_substring(bare, self.decimal, ".")
        bare = pc.utf8_ltrim(bare, "+")
        return as_floats(pc.if_else(good, bare, pa.scalar(None, bare.type)))

    def example(self) -> str:
        """A number that is written so, as ``given_number_text`` takes it; empty if it is plain."""
        if self.unit == _CLOCK:
            return "10:30"
        if self == NumberText():
            return ""
        number = f"1{self.thousands}234{self.decimal}5"
        return f"{number}%" if self.unit == "%" else f"{self.unit}{number}"


def _mark(thousands: str) -> str:
    return (
        _SPACE if thousands == " " else r"['\x{2019}]" if thousands == "'" else re.escape(thousands)
    )


def _grouped(decimal: str, thousands: str) -> str:
    """Pattern of numbers whose thousands may be grouped."""
    groups = rf"[1-9]\d{{0,2}}({_mark(thousands)}\d{{3}})+"
    return rf"^[+-]?({groups}|\d+)({re.escape(decimal)}\d+)?{_POWER}$"


def _bare(texts: Any, unit: str) -> Any:
    """Numbers without their unit, which stands in front, behind the sign, or at the end."""
    if not unit:
        return texts
    sign = re.escape(unit)
    texts = pc.replace_substring_regex(texts, rf"^([+-]?){_SPACE}*{sign}{_SPACE}*", r"\1")
    return pc.replace_substring_regex(texts, rf"{_SPACE}*{sign}$", "")


def _hours(texts: Any) -> FloatArray:
    """Hours of clock times such as 10:30, 10:30:15 or 7:05 PM; NaN for what is none."""
    parts = pc.extract_regex(texts, _CLOCK_TIME)
    hours, minutes, seconds = (
        as_floats(pc.replace_substring_regex(parts.field(name), "^$", "0")) for name in "hms"
    )
    half = pc.utf8_lower(parts.field("half")).to_numpy(zero_copy_only=False)
    hours = np.where(half == "", hours, hours % 12 + 12 * (half == "p"))
    found = hours + minutes / 60 + seconds / 3600
    return np.where(pc.is_valid(parts).to_numpy(zero_copy_only=False), found, np.nan)


def unit_of(texts: Any) -> str:
    """The unit that all texts have; empty if there is none."""
    first = texts[0].as_py() if len(texts) else ""
    for unit in _UNITS:
        sign = re.escape(unit)
        if unit in first and _all(texts, rf"^[+-]?{_SPACE}*{sign}|{sign}$"):
            return unit
    return ""


def number_text(texts: Any, *, codes: bool = True) -> tuple[NumberText | None, str]:
    """How the distinct texts of a column write numbers, or None; and what was noticed.

    Parameters
    ----------
    texts : Arrow array of str
        The texts.
    codes : bool
        Whether whole numbers with leading zeros are taken for codes, not numbers.

    Examples
    --------
    >>> number_text(pa.array(["1,234.5", "17"]))[0]
    NumberText(decimal='.', thousands=',', unit='')
    >>> number_text(pa.array(["1\u202f234", "17,50"]))[0]
    NumberText(decimal=',', thousands=' ', unit='')
    >>> number_text(pa.array(["10:30", "9:15"]))[0]
    NumberText(decimal='.', thousands='', unit=':')
    >>> number_text(pa.array(["1,234", "17"]))[1].partition(" (")[0]
    "may be thousands or decimals: give the kind 'number 1,234.5' or 'number 1.234,5'"
    """
    if _all(texts, _CLOCK_TIME):
        return NumberText(unit=_CLOCK), ""
    unit = unit_of(texts)
    bare = _bare(texts, unit)
    plain = _all(bare, _PLAIN)
    fits = [] if plain else [way for way in _WAYS if _all(bare, _grouped(*way))]
    if (plain or fits) and codes and _any(bare, _CODE):
        return None, f"has leading zeros: taken for codes; if they are numbers, say so {HOW}"
    if plain:
        return NumberText(unit=unit), ""
    if {(".", ","), (",", ".")} <= set(fits):
        ways = " or ".join(f"'number {unit}{number}'" for number in ("1,234.5", "1.234,5"))
        return None, f"may be thousands or decimals: give the kind {ways} {HOW}"
    return (NumberText(*fits[0], unit=unit), "") if fits else (None, "")


def given_number_text(example: str, texts: Any) -> NumberText | None:
    """How numbers are written that look like an example; None if it tells no way.

    A unit that the example lacks and all texts have is theirs.
    """
    style, _ = number_text(pa.array([example.strip()], _TEXT), codes=False)
    if style is not None and not style.unit:
        return replace(style, unit=unit_of(texts))
    return style


def date_text(texts: Any) -> tuple[str | None, str]:
    """Format of the distinct texts of a column as dates, or None; and what was noticed.

    Examples
    --------
    >>> date_text(pa.array(["2024-01-31", "2024-02-01 12:30"]))[0]
    'ISO8601'
    >>> date_text(pa.array(["31/01/2024"]))[0]
    '%d/%m/%Y'
    >>> date_text(pa.array(["01/02/2024"]))[1].partition(":")[0]
    'the day or the month may be first'
    """
    if not _all(texts, r"^(\d{1,4}\D|[A-Za-z]{3,9} \d)"):
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
    """Seconds since 1970 of dates in an Arrow array or a series; NaN for what is none."""
    import pandas as pd

    series = texts if isinstance(texts, pd.Series) else texts.to_pandas()
    found = pd.to_datetime(series, format=form, errors="coerce", utc=True)
    times = found.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e6)


def read_truth(texts: Any) -> FloatArray:
    """1 for true and 0 for false, also where they are written so; NaN for what is neither."""
    words = pa.array(["false", "true", "0", "1"], pa.large_string())
    return as_floats(pc.index_in(pc.utf8_lower(texts), value_set=words)) % 2


def is_truth(texts: Any) -> bool:
    """Whether all texts are true or false."""
    return _all(texts, "^(?i:true|false)$")


def is_whole(texts: Any) -> bool:
    """Whether all texts are whole numbers."""
    return _all(texts, r"^[+-]?\d+$")


def best_number_text(texts: Any) -> NumberText:
    """The way of writing numbers that fits most of some texts, so that an error names the rest."""
    sign = next((sign for sign in _UNITS if _any(texts, re.escape(sign))), "")
    ways = [NumberText(*way, unit=unit) for unit in dict.fromkeys(["", sign]) for way in _WAYS]
    fitting = [int((~np.isnan(way.read(texts))).sum()) for way in (NumberText(), *ways)]
    return [NumberText(), *ways][int(np.argmax(fitting))]


def refuse_mixture(
    texts: Any, there: NDArray[Any], codes: NDArray[Any], rows: NDArray[Any], name: str
) -> None:
    """Refuse a column that is numbers, or dates, but for a few values.

    Parameters
    ----------
    texts : Arrow array of str
        The distinct texts of the column.
    there : array of bool
        Which of them are not missing in a column of numbers.
    codes, rows : array of int
        Which of them each value is, and the row of each.
    name : str
        Name of the column.
    """
    readings = (("numbers", NumberText().read), ("dates", lambda part: read_dates(part, "ISO8601")))
    rows, codes = rows[there[codes]], codes[there[codes]]
    for what, read in readings:
        fits = ~np.isnan(read(texts))[codes]
        if _MOSTLY <= fits.mean() < 1:
            place = int(np.argmin(fits))
            raise DataError(
                f"{texts[int(codes[place])].as_py()!r} is not among the {what} that this column "
                f"holds otherwise ({fits.mean():.0%} of it): correct it, or leave it empty",
                column=name,
                row=int(rows[place]),
            )
