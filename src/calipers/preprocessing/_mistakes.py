"""Columns of text of which most values are numbers or dates: the others may be mistakes.

One mistaken cell must not turn a column into categories or an identifier without a word.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from calipers._arrays import FloatArray
from calipers.preprocessing._column import DataError
from calipers.preprocessing._readings import (
    CLOCK,
    NumberText,
    best_number_text,
    read_most_dates,
)
from calipers.preprocessing._text_columns import HOW, any_match

if TYPE_CHECKING:
    from calipers.preprocessing._kinds import Texts

MOSTLY = 0.9  # if this fraction of a column is numbers, or dates, the other values are mistakes
_CODE_ENDS = re.compile(r"[^\W\d_]|st|nd|rd|th", re.I)  # 12A and 3rd, and also 12 m


class _Reading(NamedTuple):
    """A way to read the values of a column."""

    what: str
    read: Callable[[pa.Array], FloatArray]
    least: float  # fraction of the values that can be read, from which on it is worth a note


def note_mistakes(texts: "Texts", name: str) -> str:
    """A note on a column of which most values are numbers, or dates; empty for others.

    If nearly all are, the others are mistakes, and the column is refused.
    """
    rows = np.flatnonzero(texts.codes >= 0)
    rows = rows[texts.is_word[texts.codes[rows]]]
    for what, read, least in _readings(texts.words):
        fits = ~np.isnan(read(texts.levels))[texts.codes[rows]]
        share = int(100 * fits.mean())
        if not least <= fits.mean() < 1:
            continue
        row = int(rows[np.argmin(fits)])
        other = texts.levels[int(texts.codes[row])].as_py()
        if fits.mean() >= MOSTLY:
            raise DataError(
                f"{other!r} is not one of the {what} that make up {share}% of this column: correct "
                f"it, leave it empty, or give the kind 'category' {HOW}",
                column=name,
                row=row,
            )
        return (
            f"{share}% of the values are {what}, but others, such as {other!r}, are not: leave "
            f"those empty to make this a column of {what}"
        )
    return ""


def _readings(words: pa.Array) -> list[_Reading]:
    """The ways to read most of the distinct texts of a column."""
    style = best_number_text(words)
    readings = [
        _Reading("numbers", NumberText().read, 0.5),
        _Reading("dates", read_most_dates, 0.5),
    ]
    if style.unit == CLOCK:
        readings.append(_Reading("clock times", style.read, MOSTLY))  # scores look like them
    elif not _may_be_codes(style, words):
        readings.append(_Reading("numbers", style.read, MOSTLY))
    return readings


def _may_be_codes(style: NumberText, words: pa.Array) -> bool:
    """Whether numbers in this style may be codes: phone or house numbers, names of products.

    Numbers with decimals are none, nor those with a currency, % or a word as their unit. A single
    letter, an ordinal's end, or capitals without a space, as in ``128XL``, may belong to a code.
    """
    if any_match(words, rf"\d{re.escape(style.decimal)}\d"):
        return False
    if not style.unit:
        return style.thousands == " "
    if style.is_currency or not style.unit[0].isalpha():
        return False
    spaced = any_match(words, rf"\d\s+{re.escape(style.unit)}$")
    return bool(_CODE_ENDS.fullmatch(style.unit)) or (style.unit.isupper() and not spaced)
