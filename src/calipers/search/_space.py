"""Search spaces: parameters of the estimator by name, each with values to draw from."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler, ShuffleSplit

from calipers._arrays import IntArray
from calipers._text import did_you_mean, plain
from calipers.heads import HEADS
from calipers.regressor import IntervalRegressor
from calipers.search._validation import Setup
from calipers.training import check_parameters, objective_of

Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Params = dict[str, Any]

_NOT_SEARCHED = {
    "calibration": "candidates are measured before calibration",
    "cv": "candidates are measured before calibration",
    "coverage": "candidates of different coverage cannot be compared",
    "n_networks": "more are always better, and cost more",
    "patience": "it is an argument of the search",
    "validation_fraction": "it is an argument of the search",
    "n_jobs": "it changes no result",
    "random_state": "a seed should not be tuned",
    "unsupported": "it changes no network",
    "verbose": "it changes no result",
    "warm_start": "every network starts from random weights",
}


def _steps(first: float, last: float, step: float) -> tuple[float, ...]:
    count = round((last - first) / step) + 1
    return tuple(np.linspace(first, last, count).round(6).tolist())


PAPER_SPACE: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "optimizer__learning_rate": _steps(0.001, 0.01, 0.001),
        "optimizer__schedule": ("exponential",),
        "optimizer__decay_rate": _steps(0.95, 1.0, 0.01),
        "optimizer__decay_steps": (50,),
        "loss__coverage_weight": _steps(0.97, 0.999, 0.0002),
        "loss__point_weight": _steps(0.01, 0.99, 0.01),
        "loss__crossing_weight": (10.0,),
    }
)
"""The paper's space for QD+: learning rate, decay rate, lambda_1 and lambda_2; xi is 10.

For use with ``IntervalRegressor.paper()``.
"""


DEFAULT_SPACE: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "network__hidden_layers": ((64, 64), (128, 128, 128)),
        "network__activation": ("silu", "relu"),
        "network__frequencies": (0, 8),
        "optimizer__learning_rate": (0.001, 0.002, 0.003, 0.005, 0.01),
        "optimizer__weight_decay": (0.0, 0.003, 0.01, 0.03, 0.1),
        "loss__crps_weight": (0.65, 0.95),
    }
)
"""A space for the default method, around its settings; few shapes, since each is compiled."""


def candidates(estimator: IntervalRegressor, space: Space, count: int, seed: int) -> list[Params]:
    """Draw parameters from a space; all combinations if there are at most ``count``.

    Raises ``ValueError`` if a name or value is invalid, or is not to be searched.

    >>> from calipers import IntervalRegressor
    >>> candidates(IntervalRegressor(), {"batch_size": [50, 100]}, 300, 0)
    [{'batch_size': 50}, {'batch_size': 100}]
    """
    parts = [dict(part) for part in ([space] if isinstance(space, Mapping) else space)]
    for part in parts:
        for name, values in part.items():
            _check(name, values, estimator)
    drawn = _draw(parts, count, seed)
    for params in drawn:
        candidate = clone(estimator).set_params(**params)
        check_parameters(candidate)
        if not HEADS[objective_of(candidate).head].has_interval:
            raise ValueError(
                f"loss={candidate.loss!r} gives point predictions, but no intervals to measure"
            )
    return drawn


def _draw(parts: list[dict[str, Any]], count: int, seed: int) -> list[Params]:
    if not any(hasattr(values, "rvs") for part in parts for values in part.values()):
        parts = [{name: list(values) for name, values in part.items()} for part in parts]
        grid = ParameterGrid(parts)
        if len(grid) <= count:
            return list(grid)
    return list(ParameterSampler(parts, count, random_state=seed))


def _check(name: str, values: object, estimator: IntervalRegressor) -> None:
    known = estimator.get_params()
    if name not in known:
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {name!r}{did_you_mean(name, known)}. "
            f"Known: {', '.join(sorted(known))}"
        )
    if name in _NOT_SEARCHED:
        raise ValueError(f"{name!r} cannot be searched: {_NOT_SEARCHED[name]}")
    if hasattr(values, "rvs"):  # a distribution
        return
    if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
        raise ValueError(
            f"the space must give {name!r} a sequence of values or a distribution with an 'rvs' "
            f"method, got {values!r}"
        )


Splits = int | Iterable[tuple[ArrayLike, ArrayLike]]

# Parameters on which outcomes do not depend.
_WITHOUT_EFFECT = _NOT_SEARCHED.keys() - {"calibration", "coverage", "n_networks"}


def check_counts(**counts: object) -> None:
    """Refuse counts that are not positive integers; ``finalists`` may be 0."""
    for name, value in counts.items():
        least = 0 if name == "finalists" else 1
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def split_rows(
    splits: Splits, rows: int, fraction: float, seed: int
) -> list[tuple[IntArray, IntArray]]:
    """Return training and validation rows of every split.

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
            integers = index.ndim == 1 and index.size and np.issubdtype(index.dtype, np.integer)
            if not integers or index.min() < 0 or index.max() >= rows:
                raise ValueError(
                    f"{name} rows of split {number} must be integers from 0 to {rows - 1}, at "
                    f"least one, got {index!r}"
                )
    return pairs


def identity(
    setup: Setup, final: Setup, estimator: IntervalRegressor, drawn: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return everything that the outcomes of a search depend on, as plain values."""
    params = estimator.get_params()
    fixed = {name: value for name, value in params.items() if name not in _WITHOUT_EFFECT}
    return {
        "data": _digest(setup.X, setup.y),
        "splits": _digest(*(rows for split in setup.splits for rows in split)),
        "final_splits": _digest(*(rows for split in final.splits for rows in split)),
        "estimator": plain(fixed, other=_name),
        "candidates": _digest(np.frombuffer(repr(plain(drawn, other=_name)).encode(), np.uint8)),
        "max_epochs": setup.max_epochs,
        "patience": setup.patience,
        "seed": setup.seed,
    }


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _name(value: object) -> str:
    """Return the name of an object; its ``repr`` may contain an address."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))
