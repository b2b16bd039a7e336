"""Categories as numbers, and what is kept of those that are rare."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._checks import BoolArray, FloatArray
from calipers.preprocessing._text_columns import as_text


def as_objects(texts: Any) -> NDArray[np.object_]:
    """An Arrow array of text as an array of objects, None where it is null."""
    found: NDArray[np.object_] = texts.to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True)
class CategoryEncoder:
    """One column of ones and zeros for each frequent category; the others share one.

    Where there are too many for a column each, how often a category occurred is a number too, and
    if targets were learnt from, what those of the category were like: ``means`` and ``spreads``,
    the last of which are for others. Rare categories count as unseen ones; of their names only
    digests are kept, to know them again.
    """

    levels: list[str]
    counts: list[int]
    kept: int
    missing: bool
    rare: list[str] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)

    def read(self, series: Any) -> NDArray[np.object_]:
        """Categories as text, None where they are missing."""
        return as_objects(as_text(series, keep=self.levels))

    @property
    def others(self) -> bool:
        """Whether there are categories without a column of their own."""
        return self.kept < len(self.levels) or bool(self.rare)

    @property
    def large(self) -> bool:
        """Whether frequent categories have no column of their own."""
        return self.kept < len(self.levels)

    def codes(self, values: NDArray[np.object_]) -> NDArray[np.intp]:
        """Position of each category among the levels; -1 for others, -2 where it is missing."""
        import pandas as pd

        codes = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
        codes[[value is None for value in values]] = -2
        return codes

    def encode(self, values: NDArray[np.object_]) -> FloatArray:
        """Ones and zeros; then the others, their frequency, and what is missing."""
        codes = self.codes(values)
        columns = [codes == i for i in range(self.kept)]
        if self.others:
            columns.append((codes == -1) | (codes >= self.kept))
            columns += [values[np.maximum(codes, -1)] for values in self.numbers]
        if self.missing:
            columns.append(codes == -2)
        return np.stack(columns, axis=1).astype(np.float64)

    @property
    def numbers(self) -> list[FloatArray]:
        """What each level has as inputs beside ones and zeros; last, what others have."""
        found = [np.log1p(np.array([*self.counts, 0.0]))]
        return found + [np.array(known) for known in (self.means, self.spreads) if known]

    def with_targets(self, means: FloatArray, spreads: FloatArray) -> "CategoryEncoder":
        """The same with what the targets of each level, and of others, were like."""
        return replace(self, means=means.tolist(), spreads=spreads.tolist())

    def names(self, name: str) -> list[str]:
        """Names of what ``encode`` gives."""
        found = [f"{name}={level}" for level in self.levels[: self.kept]]
        found += [f"{name} (other)", f"{name} (frequency)"] if self.others else []
        found += [f"{name} (mean of targets)", f"{name} (spread of targets)"] if self.means else []
        return [*found, f"{name} (missing)"] if self.missing else found

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        """Which categories training did not see, or are missing where none was."""
        codes = self.codes(values)
        found = (codes == -1) | ((codes == -2) & (not self.missing))
        new = np.flatnonzero(codes == -1)
        if self.rare and new.size:
            rare = set(self.rare)
            found[new] = [digest not in rare for digest in digests(values[new])]
        return np.asarray(found, dtype=bool)


def digests(names: Iterable[str]) -> list[str]:
    """Short digests of some names, by which they are known again and cannot be read."""
    return [blake2b(str(name).encode(), digest_size=8).hexdigest() for name in names]
