"""The columns that ``calipers predict`` writes for each block of rows, here or on a cluster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from calipers._arrays import BoolArray, FloatArray
from calipers._text import did_you_mean
from calipers.cli._printing import meaningful
from calipers.multitarget import MultiTargetRegressor, models_of
from calipers.prediction import Prediction, Query
from calipers.preprocessing import DataError, UnreadCells, accept, read_number
from calipers.regressor import IntervalRegressor
from calipers.tables import RowSource

Numbers: TypeAlias = dict[str, FloatArray]
"""Columns of numbers by name."""


@dataclass(eq=False)
class RowScorer:
    """Predicts blocks of rows as requested, and counts rows outside the training range."""

    model: IntervalRegressor | MultiTargetRegressor
    query: Query
    keep: str | None
    mark_outside: bool
    as_text: bool
    joint: bool = False
    rows: int = 0  # predicted so far
    rows_outside: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    unread: int = 0  # cells that could not be read
    first_unread: str | None = None  # the error of the first of them

    def score(self, blocks: Iterable[RowSource]) -> Iterator[pa.Table]:
        """Yield the table to write for each block."""
        for block in blocks:
            with block.placing():
                table = self._score(block)
            yield table

    def _score(self, block: RowSource) -> pa.Table:
        predictions, outside = self._predict(block)
        columns = {name: pa.array(values) for name, values in predictions.items()}
        names = [column.name for column in self.model.inputs_]
        self.rows += len(outside)
        self.rows_outside += int(outside.any(axis=1).sum())
        self.columns.update(dict(zip(names, outside.sum(axis=0).tolist(), strict=True)))
        if self.mark_outside:
            inputs = np.array(names, dtype=object)
            columns["outside"] = pa.array([", ".join(inputs[row]) for row in outside], pa.string())
        return pa.table(self._kept(block, columns) | columns)

    def _predict(self, block: RowSource) -> tuple[Numbers, BoolArray]:
        """Return columns of predictions by name, prefixed by the target if there are several."""

        def count(cells: UnreadCells) -> None:
            self.unread += len(cells.rows)
            self.first_unread = self.first_unread or str(block.placed(cells.error))

        inputs = self.model.pick(block.frame)
        if not isinstance(self.model, MultiTargetRegressor):
            prediction, outside = self.model.query_and_check(inputs, self.query, on_unread=count)
            return self._written(prediction, self.model), outside
        predictions, outside = self.model.query_and_check(
            inputs, self.query, joint=self.joint, on_unread=count
        )
        columns: Numbers = {}
        for target, single in zip(predictions, self.model.models_, strict=True):
            written = self._written(predictions[target], single)
            columns |= {f"{target}_{name}": values for name, values in written.items()}
        return columns, outside

    def _written(self, prediction: Prediction, model: IntervalRegressor) -> Numbers:
        """Return the columns of a prediction, in text files without meaningless digits."""
        columns = prediction.columns()
        if not self.as_text:
            return columns
        spread = cast(float, model.target_.high) - cast(float, model.target_.low)
        return {name: meaningful(values, spread) for name, values in columns.items()}

    def _kept(self, block: RowSource, predictions: Mapping[str, pa.Array]) -> dict[str, Any]:
        """Return the columns of the input that go into the output."""
        if self.keep is None:
            return {}
        known = block.table.column_names
        names = [name.strip() for name in self.keep.split(",")]
        names = known if names == ["all"] else names
        for name in names:
            if name not in known:
                raise DataError(f"there is no column {name!r}{did_you_mean(name, known)}")
            if name in predictions:
                raise DataError(
                    f"the column {name!r} cannot be kept: a column of predictions has that name"
                )
        kept = {name: block.table.column(name) for name in names}
        return kept if self.as_text else self._typed(kept)

    def _typed(self, kept: dict[str, Any]) -> dict[str, Any]:
        """Return the kept columns with numeric inputs parsed from text as the model reads them."""
        encoder = getattr(models_of(self.model)[0], "preprocessor_", None)
        if encoder is None:
            readers: dict[str, Any] = {column.name: read_number for column in self.model.inputs_}
        else:
            pairs = encoder.used_columns()
            readers = {
                column.name: partial(reader.read, on_unread=accept)
                for column, reader in pairs
                if column.dtype == float
            }
        for name in readers.keys() & kept.keys():
            if pa.types.is_string(kept[name].type):
                numbers = readers[name](kept[name].to_pandas().rename(name))
                kept[name] = pa.array(numbers, from_pandas=True)
        return kept

    def outside_report(self) -> dict[str, Any]:
        """Return how many rows are outside the training range, in total and by column.

        If cells could not be read, ``unread`` has their number and the error of the first.
        """
        columns = {name: count for name, count in self.columns.most_common() if count}
        unread = {"cells": self.unread, "first": self.first_unread} if self.unread else None
        found = {"rows": self.rows_outside, "columns": columns}
        return found if unread is None else found | {"unread": unread}
