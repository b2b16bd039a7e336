"""Tables as they come, made into numbers: a scikit-learn transformer that says what it found.

``TableEncoder`` takes frames with numbers, booleans, categories, dates, text that means numbers,
and missing values; ``Column`` describes what it found in one of them. It never looks at the target.
What it has learnt is plain JSON (``to_document``), so that it can be a part of a saved model.
"""

from calipers.preprocessing._column import KINDS, Column, DataError, describe_numbers
from calipers.preprocessing._learn import read_number
from calipers.preprocessing._table import TableEncoder, near, pick_numbers

__all__ = [
    "KINDS",
    "Column",
    "DataError",
    "TableEncoder",
    "describe_numbers",
    "near",
    "pick_numbers",
    "read_number",
]
