"""Rows that ``calipers fit`` holds out: at random, by groups or by time; and copies in them."""

from typing import Any, NamedTuple

_FEW = 0.01  # share of rows held out that may equal a row of training without a word
_CHANCE = 2  # as many may do so in any table


class HoldOut(NamedTuple):
    """Which rows are held out."""

    fraction: float  # share of the rows; 0 for none
    labels: Any = None  # groups that are not parted
    # where rows stand in time: the last ones are held out, in place of rows drawn at random
    times: Any = None
    time_column: str | None = None  # name of the column that says so

    def split(self, rows: int, seed: int) -> tuple[Any, Any]:
        """Rows that train, and rows that are held out.

        >>> import numpy as np
        >>> train, test = HoldOut(0.4, times=np.array([3.0, 1.0, 2.0, 2.0, 5.0])).split(5, 0)
        >>> train.tolist(), test.tolist()
        ([1, 2, 3], [0, 4])
        """
        import numpy as np
        from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

        if self.times is None:
            kind = ShuffleSplit if self.labels is None else GroupShuffleSplit
            splitter = kind(n_splits=1, test_size=self.fraction, random_state=seed)
            train, test = next(splitter.split(np.empty(rows), None, self.labels))
            return train, test
        first = np.sort(self.times)[rows - max(1, round(self.fraction * rows))]
        last = self.times >= first  # rows of the same time stay together
        if last.all():
            last = self.times > first
        return np.flatnonzero(~last), np.flatnonzero(last)

    def fitted(self, rows: int, seed: int, refit: bool) -> Any:
        """Rows that the saved model was fitted on."""
        import numpy as np

        return np.arange(rows) if refit or self.fraction == 0 else self.split(rows, seed)[0]


def time_order(table: Any, name: str, kinds: dict[str, str]) -> Any:
    """Where each row stands in time, as numbers."""
    import numpy as np

    from calipers.preprocessing import DataError, TableEncoder, learn_number

    frame = table.frame
    table.require(name)
    with table.placing():
        own = {name: kinds[name]} if name in kinds else None
        encoder = TableEncoder(kinds=own)
        typed = encoder.fit_typed(frame[[name]].reset_index(drop=True))[name]
        kind = encoder.columns_[0].kind
        if kind == "date":
            times = typed.to_numpy().astype("datetime64[us]").astype(np.float64)
            times[typed.isna()] = np.nan
        else:
            times, _ = learn_number(frame[name], kinds.get(name) if kind == "number" else None)
        gone = np.flatnonzero(np.isnan(times))
        if gone.size:
            raise DataError("the time is missing", column=name, row=int(gone[0]))
        if times.min() == times.max():
            raise DataError("the time is the same in every row", column=name)
    return times


def copies(X: Any, y: Any, train: Any, test: Any) -> int:
    """Rows held out whose inputs and target also occur in training."""
    import numpy as np
    from pandas.util import hash_pandas_object

    names = hash_pandas_object(X.assign(**{"": np.asarray(y)}), index=False).to_numpy()
    return int(np.isin(names[test], names[train]).sum())


def say_copies(found: dict[str, Any]) -> str:
    """A paragraph on rows held out that training has seen; empty if there are next to none."""
    count, rows = found.get("copies") or 0, found["rows"]
    if count <= max(_CHANCE, _FEW * rows):
        return ""
    return (
        f"  But {count:,} of them have the inputs and the target of a row of training, as copies "
        "have: the\n  measures flatter the model. Remove copies, or name a column that is the same "
        "for rows\n  that belong together by --groups.\n"
    )
