"""Preprocessing of tables: a scikit-learn transformer that describes the columns it finds.

``TableEncoder`` takes frames with numbers, booleans, categories, dates, text that means numbers,
and missing values; a ``Column`` describes each column. The encoder never looks at the target, which
``learn_number`` and ``read_target`` read by the same rules; a model that the encoder is part of
adds a ``TargetEncoding`` of categories with too many levels for an input each. What the encoder
learned is plain JSON (``to_document``), so that it can be saved with a model; it keeps no values of
columns that it does not use.
"""

from calipers.preprocessing._column import (
    KINDS as KINDS,
    Column,
    DataError,
    check_names as check_names,
    describe_numbers as describe_numbers,
    holds_more_than_numbers as holds_more_than_numbers,
    is_frame as is_frame,
    refuse_same_names as refuse_same_names,
    wrong_width as wrong_width,
)
from calipers.preprocessing._document import check_column as check_column
from calipers.preprocessing._encoder import LearnedTable as LearnedTable, TableEncoder
from calipers.preprocessing._forest import (
    INPUT_LIMIT as INPUT_LIMIT,
    MAX_TREES as MAX_TREES,
    Forest as Forest,
    center_and_scale as center_and_scale,
    standardised as standardised,
)
from calipers.preprocessing._numbers import (
    as_numbers as as_numbers,
    how_written as how_written,
    learn_number as learn_number,
    pick_numbers as pick_numbers,
    read_number,
    read_target as read_target,
)
from calipers.preprocessing._numeric_codes import numeric_code_columns as numeric_code_columns
from calipers.preprocessing._readings import parse_times as parse_times
from calipers.preprocessing._target_inputs import (
    find_target_encoding as find_target_encoding,
    learn_target_encoding as learn_target_encoding,
)
from calipers.preprocessing._targets import TargetEncoding as TargetEncoding
from calipers.preprocessing._text_columns import (
    HOW as HOW,
    MISSING_MARKS,
    MISSING_WORDS,
    as_text as as_text,
)
from calipers.preprocessing._trees import (
    FEW as FEW,
    Bag as Bag,
    TreeRows as TreeRows,
    boosted_per_tree as boosted_per_tree,
    inputs_per_split as inputs_per_split,
    smallest_leaf as smallest_leaf,
    weights_of_kinds as weights_of_kinds,
)
from calipers.preprocessing._unread import (
    OnUnread as OnUnread,
    UnreadCells as UnreadCells,
    accept as accept,
    refuse_unread as refuse_unread,
    warn_unread as warn_unread,
)
from calipers.preprocessing._words import with_words as with_words

__all__ = ["MISSING_MARKS", "MISSING_WORDS", "Column", "DataError", "TableEncoder", "read_number"]
