"""The option ``--cluster``, which runs the work of a command on a Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Run the work on the cluster of this Dask scheduler, such as tcp://10.0.0.1:8786.",
    ),
]


@contextmanager
def spread(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at ``address`` and yield it, or None without an address."""
    if address is None:
        yield None
        return
    from calipers.cluster import connect

    with connect(address) as cluster:
        typer.echo(
            f"{cluster.workers} workers with {cluster.threads} threads at {address}", err=True
        )
        if cluster.processors > 1:
            typer.echo(
                f"the workers have {cluster.processors} kinds of processors: results will not be "
                "bit-identical to those of a single kind",
                err=True,
            )
        yield cluster
