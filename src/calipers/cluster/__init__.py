"""Work on more than one machine: reach a cluster, and send what many tasks need only once.

Nothing here schedules. Dask or Ray does, through joblib::

    with joblib.parallel_config(backend="dask"):
        model.fit(X, y)

and prediction is lazy on the collections of Dask::

    model.predict_interval(dask.dataframe.read_parquet("rows"), as_frame=True).to_parquet("scored")

A value that many tasks need, such as the rows of a bank or a model, is a task of its own: a worker
fetches it once, and the engine makes it again where the workers that held it are gone.
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
