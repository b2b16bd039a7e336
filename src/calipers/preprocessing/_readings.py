"""Numbers and dates in text, which are read only if there is one way to understand them."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._arrays import FloatArray
from calipers.preprocessing._text_columns import HOW, all_match, any_match, as_floats

if TYPE_CHECKING:
    import pandas as pd

_SPACE = r"[\s\x{A0}\x{202F}\x{2009}]"
_POWER = r"([eE][+-]?\d+)?"
_PLAIN = rf"^[+-]?((\d+\.?\d*|\.\d+){_POWER}|(?i:inf(inity)?))$"
_CODE = r"^[+-]?0\d"
_CURRENCIES = (
    r"(?:US|NZ|HK|[ACRS])?\$|[€£¥₹₩₺₽₪]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK"
    r"|HUF|BRL|MXN|ZAR|SGD|HKD|KRW|TRY"
)
# A word in front may name things, as in "Room 12"; the same word at the end is a unit.
_WORD = r"(?![eE][+-]?\d*$)[^\W\d_][^\d()]{0,11}[23]?"
_FRONT = re.compile(rf"[+-]?\s*({_CURRENCIES})")
_BACK = re.compile(rf"[\d.](?:[eE][+-]?\d+)?\s*([%‰°](?:{_WORD})?|{_CURRENCIES}|{_WORD})$")
UNIT = re.compile(rf":|[%‰°](?:{_WORD})?|{_CURRENCIES}|{_WORD}|")
CLOCK = ":"
_CLOCK_TIME = (
    r"^(?P<h>\d{1,3}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d(?:\.\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?$"
)
_WAYS = ((".", ","), (",", "."), (",", " "), (".", " "), (".", "'"))  # decimal and thousands
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
_DATE = r"^(\d{1,4}\D|[A-Za-z]{3,9} \d)"  # what all dates in a column look like; 2024 is a number
_SLASHED = ("%m/%d/%Y", "%d/%m/%Y")
_WHICH_FIRST = (
    f"the day or the month may come first: give the kind 'date %d/%m/%Y' or 'date %m/%d/%Y' {HOW}"
)
_FIRST, _END = np.array(["0001-01-01", "10000-01-01"], "datetime64[us]")
_TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class NumberText:
    """How numbers are written: decimal mark, thousands separator, and unit.

    A space as separator stands for any kind of space. The unit, a currency in front or any word
    at the end, is common to all numbers; ``:`` means clock times, which are read as hours.
    Negative numbers may be written ``-5``, ``(5)`` or ``5-``.
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def read(self, texts: pa.Array) -> FloatArray:
        """An Arrow array of texts as floats; NaN for text that is not a number."""
        if self.unit == CLOCK:
            return _hours(texts)
        bare = _bare(texts, self.unit)
        good = pc.match_substring_regex(bare, _PLAIN)
        if self.thousands:
            good = pc.match_substring_regex(bare, _grouped(self.decimal, self.thousands))
            bare = pc.replace_substring_regex(bare, _mark(self.thousands), "")
            bare = pc.replace_substring(bare, self.decimal, ".")
        bare = pc.utf8_ltrim(bare, "+")
        return as_floats(pc.if_else(good, bare, pa.scalar(None, bare.type)))

    @property
    def is_currency(self) -> bool:
        """Whether the unit is a currency."""
        return re.fullmatch(_CURRENCIES, self.unit) is not None

    def example(self) -> str:
        """A number in this format, as ``given_number_text`` takes it; empty for plain numbers."""
        if self.unit == CLOCK:
            return "10:30"
        if self == NumberText():
            return ""
        number = f"1{self.thousands}234{self.decimal}5"
        if not self.is_currency:
            return f"{number} {self.unit}" if self.unit[:1].isalpha() else f"{number}{self.unit}"
        return f"{self.unit} {number}" if self.unit.isalpha() else f"{self.unit}{number}"


def _mark(thousands: str) -> str:
    return (
        _SPACE if thousands == " " else r"['\x{2019}]" if thousands == "'" else re.escape(thousands)
    )


def _grouped(decimal: str, thousands: str) -> str:
    """Pattern of numbers that may have a thousands separator."""
    mark = _mark(thousands)
    lakhs = rf"({mark}\d{{2}})*" if thousands == "," else ""  # 12,34,567, as in India
    groups = rf"[1-9]\d{{0,2}}({lakhs}{mark}\d{{3}})+"
    return rf"^[+-]?({groups}|\d+)({re.escape(decimal)}\d+)?{_POWER}$"


def _signed(texts: pa.Array) -> pa.Array:
    """Texts with an ASCII minus in front, also for other minus signs, ``(5)`` and ``5-``."""
    texts = pc.replace_substring(texts, "\u2212", "-")
    return pc.replace_substring_regex(texts, r"^(?:\((.*)\)|([^-+(].*)-)$", r"-\1\2")


def _bare(texts: pa.Array, unit: str) -> pa.Array:
    """Numbers without their unit, which stands at the end or in front, after the sign."""
    texts = _signed(texts)
    if not unit:
        return texts
    sign = re.escape(unit)
    texts = pc.replace_substring_regex(texts, rf"^([+-]?){_SPACE}*{sign}{_SPACE}*", r"\1")
    return pc.replace_substring_regex(texts, rf"{_SPACE}*{sign}$", "")


def _hours(texts: pa.Array) -> FloatArray:
    """Clock times such as 10:30, 10:30:15 or 7:05 PM as hours; NaN for other text."""
    parts = pc.extract_regex(texts, _CLOCK_TIME)
    hours, minutes, seconds = (
        as_floats(pc.replace_substring_regex(parts.field(name), "^$", "0")) for name in "hms"
    )
    half = pc.utf8_lower(parts.field("half")).to_numpy(zero_copy_only=False)
    hours = np.where(half == "", hours, hours % 12 + 12 * (half == "p"))
    total = hours + minutes / 60 + seconds / 3600
    return np.where(pc.is_valid(parts).to_numpy(zero_copy_only=False), total, np.nan)


def unit_of(texts: pa.Array) -> str:
    """The unit that all texts have in common; empty if there is none.

    >>> unit_of(pa.array(["12.5 kg", "7kg"])), unit_of(pa.array(["$3", "($1,200)"]))
    ('kg', '$')
    >>> unit_of(pa.array(["12 kg", "7 lb"])), unit_of(pa.array(["Q1", "Q2"]))
    ('', '')
    >>> unit_of(pa.array(["5e2", "7e2"])), unit_of(pa.array(["1,5e-3", "2,5e-3"]))
    ('', '')
    """
    texts = _signed(texts)
    if all_match(texts, _PLAIN):  # the e of 5e3 is not a unit
        return ""
    first = texts[0].as_py() if len(texts) else ""
    for match in (_FRONT.match(first), _BACK.search(first)):
        if match:
            unit = re.escape(match[1])
            if all_match(texts, rf"^[+-]?{_SPACE}*{unit}|{unit}$"):
                return match[1]
    return ""


def number_text(texts: pa.Array, *, codes: bool = True) -> tuple[NumberText | None, str]:
    """How the distinct texts of a column write numbers, or None if they do not; and a note.

    With ``codes``, numbers with leading zeros count as codes, not numbers.

    >>> number_text(pa.array(["1,234.5", "17"]))[0]
    NumberText(decimal='.', thousands=',', unit='')
    >>> number_text(pa.array(["1\u202f234", "17,50"]))[0]
    NumberText(decimal=',', thousands=' ', unit='')
    >>> number_text(pa.array(["10:30", "9:15"]))[0]
    NumberText(decimal='.', thousands='', unit=':')
    >>> number_text(pa.array(["1,234", "17"]))[1].partition(" (")[0]
    "may be thousands or decimals: give the kind 'number 1,234.5' or 'number 1.234,5'"
    """
    if all_match(texts, _CLOCK_TIME):
        return NumberText(unit=CLOCK), ""
    unit = unit_of(texts)
    bare = _bare(texts, unit)
    plain = all_match(bare, _PLAIN)
    fits = [] if plain else [way for way in _WAYS if all_match(bare, _grouped(*way))]
    if (plain or fits) and codes and any_match(bare, _CODE):
        return None, f"has leading zeros: taken as codes; if they are numbers, say so {HOW}"
    if plain:
        return NumberText(unit=unit), ""
    if {(".", ","), (",", ".")} <= set(fits):
        ways = " or ".join(f"'number {unit}{number}'" for number in ("1,234.5", "1.234,5"))
        return None, f"may be thousands or decimals: give the kind {ways} {HOW}"
    return (NumberText(*fits[0], unit=unit), "") if fits else (None, "")


def given_number_text(example: str, texts: pa.Array) -> NumberText | None:
    """How numbers like an example are written; None if that is not clear.

    If the example has no unit, the unit is that of all ``texts``.
    """
    style, _ = number_text(pa.array([example.strip()], pa.large_string()), codes=False)
    if style is not None and not style.unit:
        return replace(style, unit=unit_of(texts))
    return style


def best_number_text(texts: pa.Array) -> NumberText:
    """The way of writing numbers that fits most texts; an error can then name the others."""
    units = dict.fromkeys(["", *(unit_of(texts[i : i + 1]) for i in range(min(len(texts), 3)))])
    ways = [NumberText(*way, unit=unit) for unit in units for way in ((".", ""), *_WAYS)]
    ways.append(NumberText(unit=CLOCK))
    return max(ways, key=lambda way: int((~np.isnan(way.read(texts))).sum()))


def date_text(texts: pa.Array) -> tuple[str | None, str]:
    """The format of a column's distinct texts as dates, or None if they are not; and a note.

    >>> date_text(pa.array(["2024-01-31", "2024-02-01 12:30"]))[0]
    'ISO8601'
    >>> date_text(pa.array(["31/01/2024"]))[0]
    '%d/%m/%Y'
    >>> date_text(pa.array(["01/02/2024"]))[1].partition(":")[0]
    'the day or the month may come first'
    """
    if not all_match(texts, _DATE):
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


def read_most_dates(texts: pa.Array) -> FloatArray:
    """Dates as ``read_dates`` returns them, in the format that fits most of a sample of texts.

    >>> read_most_dates(pa.array(["02.01.1970", "oops", "03.01.1970"])).tolist()
    [86400.0, nan, 172800.0]
    """
    sample = texts.take(pa.array(np.unique(np.linspace(0, len(texts) - 1, 50).astype(int))))
    forms = ["ISO8601", *(day + time for time in _TIMES for day in (*_DAYS, *_SLASHED))]
    form = max(forms, key=lambda form: int((~np.isnan(read_dates(sample, form))).sum()))
    like_dates = pc.match_substring_regex(texts, _DATE)
    return read_dates(pc.if_else(like_dates, texts, pa.scalar(None, texts.type)), form)


def _reads(texts: pa.Array, form: str) -> bool:
    return all(not np.isnan(read_dates(part, form)).any() for part in (texts[:50], texts[50:]))


def parse_times(series: "pd.Series[Any]", form: str | None) -> NDArray[np.datetime64]:
    """Dates as times without a time zone, in UTC; NaT for other text."""
    import pandas as pd

    parsed = pd.to_datetime(series, format=form, errors="coerce", utc=True)
    return parsed.dt.tz_localize(None).to_numpy()


def read_dates(texts: "pa.Array | pd.Series[Any]", form: str | None) -> FloatArray:
    """Dates in an Arrow array or a series as seconds since 1970; NaN for other text.

    Years outside 1 to 9999, as in ``0000-01-01``, are not accepted: other programs cannot read
    them.
    """
    import pandas as pd

    series = texts if isinstance(texts, pd.Series) else texts.to_pandas()
    times = parse_times(series, form)
    if times.dtype != "datetime64[ns]":  # which can only represent the years 1677 to 2262
        first, end = _FIRST.astype(times.dtype), _END.astype(times.dtype)
        inside = (times >= first) & (times < end)
        times = np.where(inside, times, np.array("NaT", times.dtype))
    seconds = times.astype("datetime64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(times), np.nan, seconds)
