"""Work on several machines: connecting to a cluster, and sending it shared values only once.

Dask or Ray schedules the work, through joblib::

    with joblib.parallel_config(backend="dask"):
        model.fit(X, y)

and prediction is lazy on Dask collections::

    model.predict_interval(dask.dataframe.read_parquet("rows"), as_frame=True).to_parquet("scored")

A value that many tasks need, such as the rows of a bank or a model, is a task of its own: each
worker fetches it once, and the scheduler creates it again if the workers that held it are lost.
"""

from calipers.cluster._connect import (
    Cluster,
    ClusterError,
    connect,
    received as received,
    sender as sender,
)
from calipers.cluster._lazy import is_lazy as is_lazy, lazily as lazily

__all__ = ["Cluster", "ClusterError", "connect"]
