"""Columns of tables made into numbers: a scikit-learn transformer that says what it found.

``TableEncoder`` takes frames with numbers, booleans, categories, dates, text that means numbers,
and missing values; ``Column`` describes what it found in one of them. It never looks at the target,
which ``learn_number`` reads by the same rules; a model that it is part of hands it targets of
``LargeCategories``, whose levels are too many for an input each. What it has learnt is plain JSON
(``to_document``), so that it can be a part of a saved model; it keeps no value of a column that it
does not use.
"""

from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._column import KINDS, Column, DataError, describe_numbers
from calipers.preprocessing._document import check_column
from calipers.preprocessing._encoder import TableEncoder
from calipers.preprocessing._encoders import (
    CYCLES,
    DAY,
    DateEncoder,
    NumberEncoder,
)
from calipers.preprocessing._frames import (
    check_names,
    holds_more_than_numbers,
    is_frame,
    pick_numbers,
)
from calipers.preprocessing._kinds import is_in_thousands
from calipers.preprocessing._learn import as_numbers, learn_number, read_number
from calipers.preprocessing._targets import LargeCategories
from calipers.preprocessing._text_columns import HOW, MISSING_MARKS, MISSING_WORDS, as_text

__all__ = [
    "CYCLES",
    "DAY",
    "HOW",
    "KINDS",
    "MISSING_MARKS",
    "MISSING_WORDS",
    "CategoryEncoder",
    "Column",
    "DataError",
    "DateEncoder",
    "LargeCategories",
    "NumberEncoder",
    "TableEncoder",
    "as_numbers",
    "as_text",
    "check_column",
    "check_names",
    "describe_numbers",
    "holds_more_than_numbers",
    "is_frame",
    "is_in_thousands",
    "learn_number",
    "pick_numbers",
    "read_number",
]
