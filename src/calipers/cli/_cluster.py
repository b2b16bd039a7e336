"""``--cluster``: commands whose work goes to a Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers do the work.",
    ),
]


@contextmanager
def spread(address: str | None) -> Iterator[Any]:
    """Let a command work on a cluster, if one is given; yields what ``connect`` does, or None."""
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
                "the same bits as on one of them",
                err=True,
            )
        yield cluster
