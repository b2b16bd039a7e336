"""Columns as text: which values are missing, and which are booleans.

Every column of text is read by this module and ``_readings``, whether it is an input, a target or
a column that is passed through to the predictions, so that one list of missing words and one rule
for leading zeros apply to all. Targets get here by ``learn_number`` or ``read_target``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calipers._arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

MISSING_WORDS = ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "nil", "null", "none", "missing")
"""Text that means a missing value in any column, in upper or lower case."""

MISSING_MARKS = ("?", "-", "--", ".")
"""Text that means a missing value too, except among categories, of which it may be one."""

HOW = "(--type on the command line, kinds= in Python)"  # how to give the kind of a column

_TEXT = pa.large_string()


def as_text(series: "pd.Series[Any]", *, marks: bool = False, keep: Sequence[str] = ()) -> pa.Array:
    """Values of a column as an Arrow array of stripped text, null where they are missing.

    The numbers 1.0 and 1 become the same text. With ``marks``, ``MISSING_MARKS`` are missing too;
    texts in ``keep`` are values even if they are in one of the lists.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        levels = as_text(pd.Series(series.cat.categories), marks=marks, keep=keep)
        codes = series.cat.codes.to_numpy()
        return levels.take(pa.array(codes, mask=codes < 0))
    text = pc.utf8_trim_whitespace(_strings(series))
    words = [*MISSING_WORDS, *(MISSING_MARKS if marks else ())]
    missing = pc.is_in(pc.utf8_lower(text), value_set=pa.array(words, _TEXT))
    if len(keep):
        missing = pc.and_not(missing, pc.is_in(text, value_set=pa.array(list(keep), _TEXT)))
    return pc.if_else(missing, pa.scalar(None, _TEXT), text)


def _strings(series: "pd.Series[Any]") -> pa.Array:
    """A column as an Arrow array of text."""
    try:
        array = pa.array(series, _TEXT, from_pandas=True)
    except (pa.ArrowException, UnicodeEncodeError, TypeError):  # TypeError: intervals, periods
        pairs = zip(series, series.isna(), strict=True)
        texts = [None if missing else _string(value) for value, missing in pairs]
        array = pa.array(texts, _TEXT)
    if isinstance(array, pa.ChunkedArray):  # the chunks of an empty column may be of another type
        array = pa.concat_arrays([pa.array([], _TEXT), *(c.cast(_TEXT) for c in array.chunks)])
    return array.cast(_TEXT)  # pandas before 3 returns its Arrow arrays unchanged


def _string(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).encode(errors="replace").decode()


def plain_text(texts: pa.Array) -> pa.Array:
    """Whole numbers and booleans in text as ``as_text`` writes those of a frame; other text as is.

    >>> plain_text(pa.array(["1.0", "-20.00", "True", "1.5", "007.0", None])).to_pylist()
    ['1', '-20', 'true', '1.5', '007.0', None]
    """
    texts = pc.replace_substring_regex(texts, r"^(-?[1-9]\d*|0)\.0+$|^-(0)(?:\.0+)?$", r"\1\2")
    lower = pc.utf8_lower(texts)
    truth = pc.is_in(lower, value_set=pa.array(["true", "false"], texts.type))
    return pc.if_else(truth, lower, texts)


def all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def any_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def as_floats(array: pa.Array) -> FloatArray:
    """An Arrow array of numbers as floats, NaN where it is null."""
    return array.cast(pa.float64()).to_numpy(zero_copy_only=False)


def read_truth(texts: pa.Array) -> FloatArray:
    """1 for "true", "1" or "1.0", and 0 for "false", "0" or "0.0"; NaN for other text.

    >>> read_truth(pa.array(["True", "0.0", "1", "yes"], pa.large_string())).tolist()
    [1.0, 0.0, 1.0, nan]
    """
    words = pa.array(["false", "true", "0", "1"], pa.large_string())
    return as_floats(pc.index_in(plain_text(texts), value_set=words)) % 2


def is_truth(texts: pa.Array) -> bool:
    return all_match(texts, "^(?i:true|false)$")
