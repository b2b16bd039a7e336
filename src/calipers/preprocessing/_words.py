"""Words of text and of rare categories: which of them have an input, and which texts have them.

Free text, and most of thousands of names, are in one row or a few, and say little as a whole. But
"Beauty Academy of Dayton" and "Ohio Beauty School" have a word in common.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from calipers._checks import BoolArray, IntArray

_WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")  # letters and digits, at least one of them a letter
_FEWEST_ROWS = 20  # of a word with an input
_MOST_WORDS = 100  # with inputs, of one column


def frequent_words(texts: Iterable[str], counts: IntArray, fewest: int = 1) -> list[str]:
    """Words that some of the distinct texts have in common, most frequent first.

    ``counts`` are the rows of each text. A word has twenty of them at least, or ``fewest``. Of
    words that the same texts have, one is returned.

    >>> texts = ["Ohio Beauty School", "Beauty Academy", "Law School", "ohio"]
    >>> frequent_words(texts, np.array([10, 20, 30, 10]))
    ['school', 'beauty', 'ohio']
    """
    found: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        for word in _words(text):
            found.setdefault(word, []).append(i)
    distinct = {tuple(places): word for word, places in sorted(found.items(), reverse=True)}
    rows = {word: int(counts[list(places)].sum()) for places, word in distinct.items()}
    shared = (w for places, w in distinct.items() if 1 < len(places) < len(counts))
    frequent = (word for word in shared if rows[word] >= max(_FEWEST_ROWS, fewest))
    return sorted(frequent, key=lambda word: (-rows[word], word))[:_MOST_WORDS]


def with_words(values: NDArray[np.object_], words: Sequence[str]) -> BoolArray:
    """(values, words): Which values contain which words; a missing value, None, has none.

    >>> with_words(np.array(["law school", None], dtype=object), ["law", "beauty"])
    array([[ True, False],
           [False, False]])
    """
    place = {word: i for i, word in enumerate(words)}
    by_value: dict[str | None, list[int]] = {None: []}
    result = np.zeros((len(values), len(words)), dtype=bool)
    for row, value in enumerate(values if words else ()):
        if value not in by_value:
            by_value[value] = [place[word] for word in _words(value) if word in place]
        result[row, by_value[value]] = True
    return result


def is_word(text: str) -> bool:
    """Whether a text is one word, as ``frequent_words`` returns them.

    >>> is_word("school"), is_word("School"), is_word("high school"), is_word("")
    (True, False, False, False)
    """
    return _words(text) == {text}


def word_pattern(word: str) -> str:
    """Regular expression, in the syntax of RE2, of the whole of a text with this word."""
    return rf"(?is)(.*[^\p{{L}}\p{{N}}])?{word}([^\p{{L}}\p{{N}}].*)?"


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
