"""Tables as they come, made into numbers: a scikit-learn transformer that says what it found.

``TableEncoder`` takes frames with numbers, booleans, categories, dates, text that means numbers,
and missing values; ``Column`` describes what it found in one of them. The encoders hold what it
has learnt about columns of numbers, categories and dates, for exports. It never looks at the
target. What it has learnt is plain JSON (``to_document``), so that it can be a part of a saved
model.
"""

from calipers.preprocessing._column import KINDS, Column, DataError, describe_numbers
from calipers.preprocessing._encoders import CYCLES, CategoryEncoder, DateEncoder, NumberEncoder
from calipers.preprocessing._learn import read_number
from calipers.preprocessing._table import TableEncoder, pick_numbers

__all__ = [
    "CYCLES",
    "KINDS",
    "CategoryEncoder",
    "Column",
    "DataError",
    "DateEncoder",
    "NumberEncoder",
    "TableEncoder",
    "describe_numbers",
    "pick_numbers",
    "read_number",
]
