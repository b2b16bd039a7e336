"""Test rows of ``calipers fit``: random, by group or by time; and copies of training rows."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from calipers._arrays import FloatArray, IntArray
from calipers.cli._measures import is_measured
from calipers.preprocessing import DataError, TableEncoder, learn_number
from calipers.tables import RowSource

# Held-out rows that may equal a training row, by chance, without a warning: fraction and number.
_FEW_COPIES = 0.01
_CHANCE_COPIES = 2


class HoldOut(NamedTuple):
    """How the test rows are held out."""

    fraction: float  # of the rows; 0 for none
    labels: NDArray[np.object_] | None = None  # of groups that are not split
    # times of the rows: the latest are held out, instead of random ones
    times: FloatArray | None = None
    time_column: str | None = None  # the column of these times

    def split(
        self, rows: int, seed: int | np.random.RandomState | None
    ) -> tuple[IntArray, IntArray]:
        """Return the training rows and the held-out rows.

        >>> import numpy as np
        >>> train, test = HoldOut(0.4, times=np.array([3.0, 1.0, 2.0, 2.0, 5.0])).split(5, 0)
        >>> train.tolist(), test.tolist()
        ([1, 2, 3], [0, 4])
        """
        if self.times is None:
            cls = ShuffleSplit if self.labels is None else GroupShuffleSplit
            splitter = cls(n_splits=1, test_size=self.fraction, random_state=seed)
            train, test = next(splitter.split(np.empty(rows), None, self.labels))
            return train, test
        first = np.sort(self.times)[rows - max(1, round(self.fraction * rows))]
        held_out = self.times >= first  # rows of the same time stay together
        if held_out.all():
            held_out = self.times > first
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def time_order(table: RowSource, name: str, kinds: dict[str, str]) -> FloatArray:
    """Return the time of each row as a number, from the column ``name``."""
    frame = table.frame
    table.require(name)
    with table.placing():
        encoder = TableEncoder(kinds={name: kinds[name]} if name in kinds else None)
        typed = encoder.fit_typed(frame[[name]].reset_index(drop=True))[name]
        dtype = encoder.columns_[0].dtype
        if dtype.kind == "M":
            times = typed.to_numpy().astype("datetime64[us]").astype(np.float64)
            times[typed.isna()] = np.nan
        else:
            times, _ = learn_number(frame[name], kinds.get(name) if dtype == np.float64 else None)
        missing = np.flatnonzero(np.isnan(times))
        if missing.size:
            raise DataError("the time is missing", column=name, row=int(missing[0]))
        if times.min() == times.max():
            raise DataError("the time is the same in every row", column=name)
    return times


def copies(X: pd.DataFrame, y: "pd.Series[Any]", train: IntArray, test: IntArray) -> int:
    """Return the number of held-out rows whose inputs and target equal those of a training row."""
    hashes = hash_pandas_object(X.assign(**{"": np.asarray(y)}), index=False).to_numpy()
    return int(np.isin(hashes[test], hashes[train]).sum())


def describe_copies(measures: dict[str, Any]) -> str:
    """Return a warning about copies of training rows among the held-out rows, or ``""``."""
    count, rows = measures.get("copies") or 0, measures["rows"]
    if count <= max(_CHANCE_COPIES, _FEW_COPIES * rows):
        return ""
    return (
        f"  But {count:,} of them equal a training row in all inputs and the target, as copies do: "
        "the\n  measures are too optimistic. Remove duplicates, or use --groups with a column that "
        "is\n  the same for rows that belong together.\n"
    )


def cautions(about: dict[str, Any], files: list[str]) -> list[str]:
    """Return warnings about rows that may have been used for training."""
    source = about.get("source")
    train_files = source.get("files", []) if isinstance(source, dict) else []
    texts = []
    evaluation = about.get("evaluation")
    if is_measured(evaluation) and describe_copies(evaluation):
        texts.append(
            f"Of the {evaluation['rows']:,} rows that were held out when the model was fitted, "
            f"{evaluation['copies']:,} had the inputs and the target of a training row. If these "
            "rows contain such copies, too, the results are too optimistic."
        )
    same = {Path(name).resolve() for name in train_files} & {Path(name).resolve() for name in files}
    if same:
        names = ", ".join(sorted(path.name for path in same))
        texts.append(
            f"The model was fitted on rows of {names}, on which it is evaluated here: the results "
            "are too optimistic. Evaluate it on rows that were not used for training."
        )
    return texts
