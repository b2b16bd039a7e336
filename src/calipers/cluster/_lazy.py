"""Prediction on arrays and frames of Dask: lazy, block by block, one copy of the model a worker."""

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def is_lazy(X: Any) -> bool:
    """Whether ``X`` is a collection of Dask."""
    return hasattr(type(X), "__dask_graph__")


def lazily(
    model: Any,
    method: str,
    X: Any,
    options: Mapping[str, Any],
    shape: tuple[int, ...] = (),
    columns: Sequence[str] | None = None,
) -> Any:
    """What a method of a model will answer for each block of a Dask array or frame.

    The model travels as a task of its own, so that a worker has it once whatever the number of
    blocks. An array may be cut along columns, too. ``shape`` is that of the answer for one row;
    ``columns`` names its columns where the answer is a frame.
    """
    import cloudpickle
    from dask.delayed import delayed

    alone = copy.copy(model)
    alone.n_jobs = 1  # blocks are what runs side by side
    vars(alone).pop("_out_of_fold", None)  # of training rows, which predictions do not need
    payload = cloudpickle.dumps(alone, protocol=5)
    worker = delayed(pickle.loads, pure=False)(payload)
    asked = {"method": method, "options": dict(options), "shape": shape, "columns": columns}
    if hasattr(X, "map_partitions"):
        meta = _nothing(X._meta, shape, columns)
        return X.map_partitions(_answer, worker, meta=meta, enforce_metadata=False, **asked)
    if not hasattr(X, "map_blocks") or X.ndim != 2 or columns is not None:
        what = "a Dask DataFrame" if columns is not None else "a Dask DataFrame or a 2D Dask array"
        raise TypeError(f"X must be {what}, got {type(X).__name__}")
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        _answer,
        worker,
        dtype=np.float64,
        meta=np.empty((0,) * (1 + len(shape))),
        chunks=(rows.chunks[0], *((size,) for size in shape)),
        drop_axis=() if shape else 1,
        new_axis=range(2, 1 + len(shape)) or None,
        **asked,
    )


def _answer(
    X: Any,
    model: Any,
    *,
    method: str,
    options: Mapping[str, Any],
    shape: tuple[int, ...],
    columns: Sequence[str] | None,
) -> Any:
    """What the model says of one block, which may be empty."""
    if not len(X):
        return _nothing(X, shape, columns)
    answer = getattr(model, method)(X, **options)
    return np.stack(answer, axis=-1) if isinstance(answer, tuple) else answer


def _nothing(X: Any, shape: tuple[int, ...], columns: Sequence[str] | None) -> Any:
    """An answer for no rows."""
    if columns is None:
        return np.empty((0, *shape))
    import pandas as pd

    index = getattr(X, "index", None)
    return pd.DataFrame(
        np.empty((0, len(columns))),
        columns=list(columns),
        index=None if index is None else index[:0],
    )
