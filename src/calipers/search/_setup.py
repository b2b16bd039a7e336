"""Arguments of a search: what they must be, and what follows from them."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import ShuffleSplit

from calipers._text import plain
from calipers.regressor import IntervalRegressor
from calipers.search._validation import Rows, Trial

Splits = int | Iterable[tuple[ArrayLike, ArrayLike]]

_WITHOUT_EFFECT = (
    "cv",
    "n_jobs",
    "patience",
    "random_state",
    "unsupported",
    "validation_fraction",
    "verbose",
    "warm_start",
)


def check_estimator(estimator: object) -> None:
    """Refuse what does not train on the bank."""
    if not isinstance(estimator, IntervalRegressor):
        raise TypeError(f"estimator must be an IntervalRegressor, got {type(estimator).__name__}")


def check_counts(**counts: object) -> None:
    """Refuse what is not a whole number from 1 on; finalists start at 0."""
    for name, value in counts.items():
        least = 0 if name == "finalists" else 1
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def split_rows(splits: Splits, rows: int, fraction: float, seed: int) -> list[tuple[Rows, Rows]]:
    """Training and validation rows of every split.

    Examples
    --------
    >>> [(train, valid)] = split_rows(1, 20, 0.1, 0)
    >>> train.size, valid.size
    (18, 2)
    """
    if isinstance(splits, int | np.integer):
        check_counts(splits=splits)
        shuffle = ShuffleSplit(int(splits), test_size=fraction, random_state=seed)
        return list(shuffle.split(np.empty(rows)))
    pairs = [(np.asarray(train), np.asarray(valid)) for train, valid in splits]
    if not pairs:
        raise ValueError("splits must hold at least one pair of training and validation rows")
    for number, pair in enumerate(pairs):
        for name, index in zip(("training", "validation"), pair, strict=True):
            whole = index.ndim == 1 and index.size and np.issubdtype(index.dtype, np.integer)
            if not whole or index.min() < 0 or index.max() >= rows:
                raise ValueError(
                    f"{name} rows of split {number} must be numbers from 0 to {rows - 1}, at "
                    f"least one, got {index!r}"
                )
    return pairs


def identity(
    trial: Trial, final: Trial, estimator: IntervalRegressor, drawn: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the outcomes of a search depend on, as plain values."""
    params = estimator.get_params()
    fixed = {name: value for name, value in params.items() if name not in _WITHOUT_EFFECT}
    return {
        "data": _digest(trial.X, trial.y),
        "splits": _digest(*(rows for split in trial.splits for rows in split)),
        "final_splits": _digest(*(rows for split in final.splits for rows in split)),
        "estimator": plain(fixed, other=_name),
        "candidates": _digest(np.frombuffer(repr(plain(drawn, other=_name)).encode(), np.uint8)),
        "max_epochs": trial.max_epochs,
        "patience": trial.patience,
        "seed": trial.seed,
    }


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _name(value: object) -> str:
    """Name of an object, since its text may hold an address."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))
