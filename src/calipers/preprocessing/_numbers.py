"""Numbers in text: how they are written, and only where there is one way to read them."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers.preprocessing._text_columns import HOW, as_floats, every, some

FloatArray = NDArray[np.float64]

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
        if unit in first and every(texts, rf"^[+-]?{_SPACE}*{sign}|{sign}$"):
            return unit
    return ""


def number_text(texts: Any, *, codes: bool = True) -> tuple[NumberText | None, str]:
    """How the distinct texts of a column write numbers, or None; and what was noticed.

    With ``codes``, whole numbers with leading zeros are taken for codes, not numbers.

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
    if every(texts, _CLOCK_TIME):
        return NumberText(unit=_CLOCK), ""
    unit = unit_of(texts)
    bare = _bare(texts, unit)
    plain = every(bare, _PLAIN)
    fits = [] if plain else [way for way in _WAYS if every(bare, _grouped(*way))]
    if (plain or fits) and codes and some(bare, _CODE):
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
    style, _ = number_text(pa.array([example.strip()], pa.large_string()), codes=False)
    if style is not None and not style.unit:
        return replace(style, unit=unit_of(texts))
    return style


def best_number_text(texts: Any) -> NumberText:
    """The way of writing numbers that fits most of some texts, so that an error names the rest."""
    sign = next((sign for sign in _UNITS if some(texts, re.escape(sign))), "")
    ways = [NumberText(*way, unit=unit) for unit in dict.fromkeys(["", sign]) for way in _WAYS]
    fitting = [int((~np.isnan(way.read(texts))).sum()) for way in (NumberText(), *ways)]
    return [NumberText(), *ways][int(np.argmax(fitting))]
