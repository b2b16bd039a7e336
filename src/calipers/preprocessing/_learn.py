"""Learning one column: its description, its encoder and its values."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calipers._text import counted
from calipers.preprocessing import _kinds as kinds
from calipers.preprocessing._categories import CategoryEncoder, TextEncoder, as_objects, digests
from calipers.preprocessing._column import Column
from calipers.preprocessing._column_encoder import Encoder
from calipers.preprocessing._encoders import (
    BooleanEncoder,
    ConstantEncoder,
    DateEncoder,
    IdentifierEncoder,
    NumberEncoder,
)
from calipers.preprocessing._numbers import format_error, how_written, kind_of, written_format
from calipers.preprocessing._words import frequent_words

if TYPE_CHECKING:
    import pandas as pd


class LearnedColumn(NamedTuple):
    """The description of a column, its encoder, and its values as the encoder reads them."""

    column: Column
    encoder: Encoder
    values: NDArray[Any]


FEW_CATEGORIES = 30  # up to which every category has an input
FEWEST_ROWS = 2  # of a category with an input, unless a user says otherwise
_ROWS_FOR_INPUT = 20  # rows with which one of many categories has an input ...
_MIN_INPUTS, _MAX_INPUTS = 60, 300  # ... and categories that have one, of one column
_FEW_ROWS = 10  # mean rows of a category below which words in the names have inputs
_NO_WORDS = f"free text without a word that many rows have; {kinds.NOT_STORED}"


def learn(
    series: "pd.Series[Any]", kind: str | None, max_categories: int | None, min_frequency: int
) -> LearnedColumn:
    """Describe a column, make its encoder and read it; its kind is detected if ``kind`` is None."""
    name = str(series.name)
    kind, _, written = (kind or "").partition(" ")
    if not kind:
        detected = kinds.find_kind(series, max_categories or FEW_CATEGORIES)
    elif kind in ("number", "date"):
        style, form = written_format(series, kind, written)
        detected = kinds.DetectedKind(kind, style, form)
    elif written:
        raise format_error(name, kind, written)
    else:
        detected = kinds.DetectedKind(kind)
    if detected.kind == "text" or (detected.kind == "identifier" and detected.texts):
        texts = detected.texts or kinds.Texts.of(series)
        if words := frequent_words(texts.word_places, texts.counts, min_frequency):
            return _text(texts, name, words)
        detected = detected._replace(kind="identifier", note=detected.note or _NO_WORDS)
    if detected.kind == "identifier":
        return _identifier(series, name, detected.note or f"row identifier; {kinds.NOT_STORED}")
    if detected.kind == "constant":
        return _constant(detected.texts or kinds.Texts.of(series), name)
    if detected.kind == "category":
        texts = detected.texts or kinds.Texts.of(series)
        return _category(texts, name, detected.note, max_categories, min_frequency)
    return _ordered(series, name, detected)


def _identifier(series: "pd.Series[Any]", name: str, note: str) -> LearnedColumn:
    encoder, column = IdentifierEncoder(), Column(name, "identifier", used=False, note=note)
    return LearnedColumn(column, encoder, encoder.read(series))


def _constant(texts: kinds.Texts, name: str) -> LearnedColumn:
    texts = texts.plain()
    values = tuple(texts.levels.to_pylist())
    missing = bool((texts.codes < 0).any())
    note = f"always {values[0]!r}" if len(values) == 1 else "always empty"
    column = Column(name, "constant", categories=values, missing=missing, used=False, note=note)
    encoder = ConstantEncoder([*values, None] if missing else [*values])
    return LearnedColumn(column, encoder, _objects(texts))


def _category(
    texts: kinds.Texts, name: str, note: str, max_categories: int | None, min_frequency: int
) -> LearnedColumn:
    texts = texts.plain()
    ranked = sorted(
        zip(texts.levels.to_pylist(), texts.counts.tolist(), strict=True),
        key=lambda item: (-item[1], item[0]),
    )
    required = 1 if len(ranked) <= 2 else min_frequency
    levels = [level for level, count in ranked if count >= required]
    counts = [count for _, count in ranked if count >= required]
    kept = len(levels)
    if len(ranked) > 2 and kept > (max_categories or FEW_CATEGORIES):
        kept = max_categories or _with_inputs(counts)
    missing = bool((texts.codes < 0).any())
    if kept < len(ranked) and not note:
        note = f"{len(ranked):,} categories, of which the {kept} most frequent have inputs"
        note = note if kept else f"{len(ranked):,} categories, all too rare to have inputs"
    rare = digests(level for level, _ in ranked[len(levels) :])
    words: list[str] = []
    if kept < len(ranked) and texts.counts.mean() < _FEW_ROWS:
        words = frequent_words(texts.word_places, texts.counts, min_frequency)
        note += f"; inputs for {counted(len(words), 'word')} in them" if words else ""
    encoder = CategoryEncoder(levels, counts, kept, missing, rare, words=words)
    column = Column(name, "category", categories=tuple(levels[:kept]), missing=missing, note=note)
    return LearnedColumn(column, encoder, _objects(texts))


def _text(texts: kinds.Texts, name: str, words: list[str]) -> LearnedColumn:
    missing = bool((texts.codes < 0).any())
    note = f"free text, with inputs for {counted(len(words), 'word')}; {kinds.NOT_STORED}"
    column = Column(name, "text", categories=tuple(words), missing=missing, note=note)
    return LearnedColumn(column, TextEncoder(words, missing), _objects(texts))


def _with_inputs(counts: list[int]) -> int:
    """Number of categories with an input each, from their rows in descending order, if many.

    At least one has none, so that networks learn what a category without an input is like.
    """
    frequent = sum(count >= _ROWS_FOR_INPUT for count in counts)
    return min(max(frequent, _MIN_INPUTS), _MAX_INPUTS, len(counts) - 1)


def _objects(texts: kinds.Texts) -> NDArray[np.object_]:
    """The text of each row, None where it is missing."""
    return as_objects(texts.levels.take(pa.array(texts.codes, mask=texts.codes < 0)))


def _ordered(series: "pd.Series[Any]", name: str, detected: kinds.DetectedKind) -> LearnedColumn:
    """Learn a column of numbers, booleans or dates."""
    kind, style, form, _, values, _ = detected
    if values is None:
        readers: dict[str, NumberEncoder | DateEncoder] = {
            "number": NumberEncoder(**vars(style)),
            "boolean": BooleanEncoder(),
            "date": DateEncoder(form=form),
        }
        values = readers[kind].read(series)
    present = values[~np.isnan(values)]
    missing = len(present) < len(values)
    if not present.size or (present.min() == present.max() and not missing):
        texts = kinds.Texts.of(series)
        if len(texts.levels) > 1 and present.size:
            return _identifier(
                series, name, kinds.row_identifier("numbers that differ beyond 15 digits")
            )
        return _constant(texts, name)
    low, high, median = float(present.min()), float(present.max()), float(np.median(present))
    encoder: Encoder
    outliers = ""
    summary: tuple[Any, Any, Any] = (low, high, median)
    if kind == "boolean":
        mode = float(present.mean() > 0.5)
        summary, encoder = (low, high, mode), BooleanEncoder(low, high, mode, missing)
    elif kind == "number":
        encoder = NumberEncoder.learn(values, style)
        outliers = "has far outliers: transformed by asinh" if encoder.scale else outliers
    else:
        summary = _iso(low), _iso(high), _iso(median)
        encoder = DateEncoder.learn(values, form)
    note = "; ".join(filter(None, [how_written(kind_of(kind, encoder)), outliers]))
    return LearnedColumn(Column(name, kind, *summary, missing=missing, note=note), encoder, values)


def _iso(seconds: float) -> str:
    """A time as ISO text in UTC, without the time of day at midnight.

    >>> _iso(0.0), _iso(-1.5)
    ('1970-01-01', '1969-12-31T23:59:58.500000')
    """
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return time.replace(tzinfo=None).isoformat().removesuffix("T00:00:00")
