"""Lazy prediction on Dask arrays and frames, block by block with one model per worker."""

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def is_lazy(X: object) -> bool:
    """Whether ``X`` is a Dask collection."""
    return hasattr(type(X), "__dask_graph__")


def lazily(
    model: Any,
    method: str,
    X: Any,
    options: Mapping[str, Any],
    shape: tuple[int, ...] = (),
    columns: Sequence[str] | None = None,
) -> Any:
    """The lazy result of a method of a model for each block of a Dask array or frame.

    The model is a separate task, so that each worker fetches it once, for any number of blocks.
    An array may be divided along columns too. ``shape`` is the shape of the result for one row;
    ``columns`` are the names of its columns if the result is a frame.
    """
    import cloudpickle
    from dask.delayed import delayed

    sent = copy.copy(model)
    sent.n_jobs = 1  # blocks run in parallel
    vars(sent).pop("_out_of_fold", None)  # predictions of training rows, which are not needed
    payload = cloudpickle.dumps(sent, protocol=5)
    remote = delayed(pickle.loads, pure=False)(payload)
    kwargs = {"method": method, "options": dict(options), "shape": shape, "columns": columns}
    if hasattr(X, "map_partitions"):
        meta = _empty(X._meta, shape, columns)
        return X.map_partitions(_predict_block, remote, meta=meta, enforce_metadata=False, **kwargs)
    if not hasattr(X, "map_blocks") or X.ndim != 2 or columns is not None:
        what = "a Dask DataFrame" if columns is not None else "a Dask DataFrame or a 2D Dask array"
        raise TypeError(f"X must be {what}, got {type(X).__name__}")
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        _predict_block,
        remote,
        dtype=np.float64,
        meta=np.empty((0,) * (1 + len(shape))),
        chunks=(rows.chunks[0], *((size,) for size in shape)),
        drop_axis=() if shape else 1,
        new_axis=range(2, 1 + len(shape)) or None,
        **kwargs,
    )


def _predict_block(
    X: Any,
    model: Any,
    *,
    method: str,
    options: Mapping[str, Any],
    shape: tuple[int, ...],
    columns: Sequence[str] | None,
) -> Any:
    """The result of a method for one block, which may be empty."""
    if not len(X):
        return _empty(X, shape, columns)
    result = getattr(model, method)(X, **options)
    return np.stack(result, axis=-1) if isinstance(result, tuple) else result


def _empty(X: Any, shape: tuple[int, ...], columns: Sequence[str] | None) -> Any:
    """The result for no rows."""
    if columns is None:
        return np.empty((0, *shape))
    import pandas as pd

    return pd.DataFrame(np.empty((0, len(columns))), index=X.index[:0], columns=list(columns))
