"""The encoders of categories and of free text."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray
from calipers.preprocessing._column_encoder import Encoder
from calipers.preprocessing._text_columns import as_text, plain_text
from calipers.preprocessing._unread import OnUnread, refuse_unread
from calipers.preprocessing._words import with_words, word_pattern

if TYPE_CHECKING:
    import pandas as pd

    from calipers.onnx import Graph, Value


def as_objects(texts: "pd.Series[Any]") -> NDArray[np.object_]:
    """An Arrow array of text as an array of objects, None where it is null."""
    return texts.to_numpy(zero_copy_only=False)


def respelled(
    texts: pa.Array, levels: Collection[str | None], rare: Collection[str] = ()
) -> pa.Array:
    """Texts that are not among ``levels`` as the only level of the same number or boolean.

    A file writes 1.0 and True where a frame has 1 and true. ``rare`` has digests of further levels.

    >>> respelled(pa.array(["1", "2.0", "x"]), ["1.0", "2"]).to_pylist()
    ['1.0', '2', 'x']
    >>> respelled(pa.array(["1", "1.0"]), ["1.0", "1"]).to_pylist()
    ['1', '1.0']
    """
    names = pa.array([level for level in levels if level is not None], texts.type)
    if pc.all(pc.or_(pc.is_null(texts), pc.is_in(texts, value_set=names)), min_count=0).as_py():
        return texts
    plain = plain_text(names).to_pylist()
    counts = Counter(plain)
    level_of = {text: name.as_py() for text, name in zip(plain, names, strict=True)}
    known, hidden = set(names.to_pylist()), set(rare)
    distinct = texts.dictionary_encode()
    result = []
    for text, short in zip(
        distinct.dictionary.to_pylist(), plain_text(distinct.dictionary).to_pylist(), strict=True
    ):
        other = level_of[short] if counts[short] == 1 else short
        same = other == text or text in known or (hidden and digests([text])[0] in hidden)
        result.append(text if same else other)
    return pa.array(result, texts.type).take(distinct.indices)


@dataclass(frozen=True)
class CategoryEncoder(Encoder):
    """One-hot encoding of frequent categories; all other categories share a column.

    If there are such others, the frequency of the category is an input as well; so is the target
    encoding, ``means`` and ``spreads``, where it was learned: the last entries are for unseen
    categories. Rare categories count as unseen, and only digests of their names are kept, by which
    they are recognised. ``words`` that many names have in common have a column each. Text that
    writes a whole number or a boolean as a file does, 1.0 or True, means the category 1 or true.
    """

    levels: list[str]  # categories that are not rare, most frequent first
    counts: list[int]
    kept: int  # how many of them have a column each
    missing: bool
    rare: list[str] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def read(
        self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread
    ) -> NDArray[np.object_]:
        return as_objects(respelled(as_text(series, keep=self.levels), self.levels, self.rare))

    def with_rare(self, values: NDArray[np.object_]) -> "CategoryEncoder":
        """The encoder that also has the rare categories among these values by their names."""
        others = Counter(value for value in values[self.codes(values) == -1])
        names, rare = sorted(others), set(self.rare)
        named = {name: d for name, d in zip(names, digests(names), strict=True) if d in rare}
        return replace(
            self,
            levels=[*self.levels, *named],
            counts=[*self.counts, *(others[name] for name in named)],
            rare=sorted(rare.difference(named.values())),
        )

    @property
    def large(self) -> bool:
        """Whether frequent categories have no column of their own."""
        return self.kept < len(self.levels)

    @property
    def others(self) -> bool:
        """Whether there are categories without a column of their own."""
        return self.large or bool(self.rare)

    def codes(self, values: NDArray[np.object_]) -> NDArray[np.intp]:
        """Index of each category in ``levels``; -1 for others, -2 where it is missing."""
        import pandas as pd

        codes = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
        codes[[value is None for value in values]] = -2
        return codes

    def encode(self, values: NDArray[np.object_]) -> FloatArray:
        """One-hot columns; then for other categories, the numbers, missing values, and words."""
        codes = self.codes(values)
        columns = [codes == i for i in range(self.kept)]
        if self.others:
            columns.append((codes == -1) | (codes >= self.kept))
            columns += [values[np.maximum(codes, -1)] for values in self.numbers]
        if self.missing:
            columns.append(codes == -2)
        return np.column_stack([*columns, with_words(values, self.words)]).astype(np.float64)

    @property
    def numbers(self) -> list[FloatArray]:
        """Frequency and target encoding of each level; the last entries are for all others."""
        frequency = np.log1p(np.array([*self.counts, 0.0]))
        return [frequency, *(np.array(part) for part in (self.means, self.spreads) if part)]

    def names(self, name: str) -> list[str]:
        names = [f"{name}={level}" for level in self.levels[: self.kept]]
        names += [f"{name} (other)", f"{name} (frequency)"] if self.others else []
        names += [f"{name} (mean of targets)", f"{name} (spread of targets)"] if self.means else []
        names += [f"{name} (missing)"] if self.missing else []
        return names + [f"{name} (word {word})" for word in self.words]

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        codes = self.codes(values)
        outside = (codes == -1) | ((codes == -2) & (not self.missing))
        others = np.flatnonzero(codes == -1)
        if self.rare and others.size:
            rare = set(self.rare)
            outside[others] = [digest not in rare for digest in digests(values[others])]
        return np.asarray(outside, dtype=bool)

    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        missing = len(self.levels) + 1
        code = graph(
            "LabelEncoder",
            value,
            domain="ai.onnx.ml",
            keys_strings=[*self.levels, ""],
            values_int64s=[*range(len(self.levels)), missing],
            default_int64=len(self.levels),
        )
        # For each column but those of words, a lookup table by code.
        codes = np.arange(missing + 1)
        tables = [codes == i for i in range(self.kept)]
        if self.others:
            tables += [(codes >= self.kept) & (codes != missing)]
            tables += [np.append(values, values[-1]) for values in self.numbers]
        tables += [codes == missing] if self.missing else []
        words = (graph("RegexFullMatch", value, pattern=word_pattern(w)) for w in self.words)
        found = [graph.cast(each, "float64") for each in words]
        return [graph("Gather", table, code) for table in tables] + found


@dataclass(frozen=True)
class TextEncoder(Encoder):
    """Free text: which of the frequent ``words`` it has. Texts are not stored.

    No text counts as unseen; missing text does, unless some was ``missing`` in training.
    """

    words: list[str]
    missing: bool

    def read(
        self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread
    ) -> NDArray[np.object_]:
        return as_objects(as_text(series))

    def encode(self, values: NDArray[np.object_]) -> FloatArray:
        columns = with_words(values, self.words)
        if self.missing:
            columns = np.column_stack([[value is None for value in values], columns])
        return columns.astype(np.float64)

    def names(self, name: str) -> list[str]:
        names = [f"{name} (missing)"] if self.missing else []
        return names + [f"{name} (word {word})" for word in self.words]

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        return np.array([value is None and not self.missing for value in values], dtype=bool)

    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        # All texts are alike, but for missing ones and for words.
        return CategoryEncoder([], [], 0, self.missing, words=self.words).onnx(graph, value)


def digests(names: Iterable[str]) -> list[str]:
    """Short digests of names, by which they can be recognised but not read."""
    return [blake2b(str(name).encode(), digest_size=8).hexdigest() for name in names]
