"""Words of text and of rare categories: which of them have an input, and which texts have them.

Free text, and most of thousands of names, are in one row or a few, and carry little information as
a whole. But "Beauty Academy of Dayton" and "Ohio Beauty School" have a word in common.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import BoolArray, IntArray
from calipers.preprocessing._text_columns import MISSING_WORDS

_RUN = re.compile(r"[^\W_]+")  # of letters and digits
_MIN_ROWS = 20  # of a word with an input
_MAX_WORDS = 100  # with inputs, of one column
_LANGUAGE = (2, 3)  # words, and their letters, of a text that is more than an identifier


def word_places(texts: Iterable[str]) -> dict[str, list[int]]:
    """Every word of some texts, with the indices of the texts that have it.

    >>> word_places(["Law School", "law"])["law"]
    [0, 1]
    """
    found: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        for word in _words(text):
            found.setdefault(word, []).append(i)
    return found


def frequent_words(found: Mapping[str, list[int]], counts: IntArray, fewest: int = 1) -> list[str]:
    """Words that some of the distinct texts have in common, most frequent first.

    ``found`` are the ``word_places`` of the texts, and ``counts`` the rows of each. A word has
    twenty of them at least, or ``fewest``. Of words that the same texts have, one is returned.

    >>> texts = ["Ohio Beauty School", "Beauty Academy", "Law School", "ohio"]
    >>> frequent_words(word_places(texts), np.array([10, 20, 30, 10]))
    ['school', 'beauty', 'ohio']
    """
    shared = {w: places for w, places in found.items() if 1 < len(places) < len(counts)}
    distinct = {tuple(shared[word]): word for word in sorted(shared, reverse=True)}
    rows = {word: int(counts[list(places)].sum()) for places, word in distinct.items()}
    frequent = (word for word in rows if rows[word] >= max(_MIN_ROWS, fewest))
    return sorted(frequent, key=lambda word: (-rows[word], word))[:_MAX_WORDS]


def with_words(values: NDArray[np.object_], words: Sequence[str]) -> BoolArray:
    """(values, words): Which values contain which words; a missing value, None, has none.

    >>> with_words(np.array(["law school", None], dtype=object), ["law", "beauty"])
    array([[ True, False],
           [False, False]])
    """
    place = {word: i for i, word in enumerate(words)}
    by_value: dict[str | None, list[int]] = {None: []}
    result = np.zeros((len(values), len(words)), dtype=bool)
    for row, value in enumerate(values if place else ()):
        if value not in by_value:
            by_value[value] = [place[word] for word in _words(value) if word in place]
        result[row, by_value[value]] = True
    return result


def is_language(found: Mapping[str, list[int]], count: int) -> bool:
    """Whether ``count`` distinct texts, of almost as many rows, are more than identifiers.

    >>> is_language(word_places(["Anna's car", "car repair"]), 2)
    True
    >>> is_language(word_places(["AB-12-cd", "3f2a-77bc"]), 2)
    False
    """
    fewest, letters = _LANGUAGE
    places = chain.from_iterable(found[word] for word in found if len(word) >= letters)
    words = np.bincount(np.fromiter(places, np.intp), minlength=count)
    return bool(np.median(words) >= fewest)


def is_word(text: str) -> bool:
    """Whether a text is one word, as ``frequent_words`` returns them.

    >>> is_word("school"), is_word("School"), is_word("high school"), is_word("")
    (True, False, False, False)
    """
    return _words(text) == {text}


def word_pattern(word: str) -> str:
    r"""Regular expression, in the syntax of RE2, of the whole of a text with this word.

    >>> print(word_pattern("pub"))
    (?s)(.*[^\p{L}\p{N}])?[Pp][Uu][Bb]([^\p{L}\p{N}].*)?
    """
    letters = "".join(f"[{''.join(_variants()[letter])}]" for letter in word)
    return rf"(?s)(.*[^\p{{L}}\p{{N}}])?{letters}([^\p{{L}}\p{{N}}].*)?"


def _words(text: str) -> set[str]:
    """The words of a text: runs of two letters or more, without digits, in lower case."""
    runs = _RUN.findall(_lower(text))
    return {run for run in runs if len(run) > 1 and run.isalpha() and run not in MISSING_WORDS}


def _lower(text: str) -> str:
    """Lower-cased character by character, whatever the context (Greek final sigma)."""
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


@cache
def _variants() -> dict[str, list[str]]:
    """All characters that ``_lower`` turns into a letter, by that letter."""
    found: dict[str, list[str]] = {}
    for character in filter(str.isalpha, map(chr, range(sys.maxunicode + 1))):
        found.setdefault(_lower(character), []).append(character)
    return found
