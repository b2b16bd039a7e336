"""Train on a Dask collection whose rows stay on its workers: each trains on its own share of rows.

There are as many shares as workers, but at most as many as networks, and partition i belongs to
share i modulo their number. A worker reads and encodes the partitions of its share and trains its
networks on them; the client receives the numbers of rows, a sample and the networks. So the rows of
a network depend on the number of workers alone.
"""

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import joblib
import numpy as np

from calipers._arrays import IntArray
from calipers.rowblocks import RowBlocks, Sample, chosen_rows, dask_function, merged_sample

Train = Callable[[Iterable[Any], int, Sequence[int], int], Any]
"""A function of encoded blocks, their number of rows, seeds and threads that returns networks."""

_SPARE = 1.2  # rows that the sample is drawn from, as a multiple of its size


class WorkerShares:
    """Shares of the rows, one for each worker of a cluster."""

    def __init__(self, client: Any, rows: RowBlocks, networks: int) -> None:
        self.client, self.rows, self.parts = client, rows, rows.partitions()
        count = dask_function(lambda block: len(block[1] if isinstance(block, tuple) else block))
        sizes = client.gather(client.compute([count(part) for part in self.parts]))
        self.parts = [part for part, size in zip(self.parts, sizes, strict=True) if size]
        sizes = [size for size in sizes if size]
        self.starts = [0, *np.cumsum(sizes).tolist()]
        workers = sorted(client.nthreads())
        self.workers = workers[: min(networks, len(self.parts))]
        self.first: list[Any] = [None] * len(self.parts)  # row count and checksum of each

    @classmethod
    def of(cls, rows: RowBlocks, networks: int) -> Self | None:
        """Return the shares on the cluster that joblib uses; None if it uses this machine."""
        client = getattr(joblib.parallel.get_active_backend()[0], "client", None)
        return None if client is None else cls(client, rows, networks)

    def order(self, networks: int) -> IntArray:
        """Position of each network among the networks of all shares, one share after the other."""
        by_share = np.argsort(np.arange(networks) % len(self.workers), kind="stable")
        return np.argsort(by_share)

    def sample(self, rows: int, seed: int) -> Sample:
        """Return the sample that ``RowBlocks.sample`` would draw, drawn by the workers."""
        fraction = (_SPARE * rows + 1000) / max(1, self.starts[-1])
        limit = 2**64 - 1 if fraction >= 1 else int(fraction * 2**64)
        reader = self.rows.reader()
        choose = dask_function(lambda *part: chosen_rows(reader(*part), seed, limit))
        pairs = zip(self.parts, self.starts[:-1], strict=True)
        tasks = [choose(part, start) for part, start in pairs]
        chosen = self.client.gather(self.client.compute(tasks))
        self.first = [first for _, first in chosen]
        return merged_sample([sample for sample, _ in chosen if sample is not None], rows)

    def train(
        self, rows: RowBlocks, encode: Callable[..., Any], train: Train, seeds: Sequence[int]
    ) -> tuple[list[Any], list[Any]]:
        """Return the results of ``train`` on each worker's share, and the summary of each block.

        ``encode`` maps row numbers, inputs and targets of a block to its encoded rows and its
        summary. ``seeds`` has one seed per network, of which share k takes every n-th from k on.
        """
        import cloudpickle

        client, shares = self.client, len(self.workers)
        payload, read = cloudpickle.dumps((rows.reader(), encode)), dask_function(_encoded)
        trained, seen = [], []
        for number, worker in enumerate(self.workers):
            place = {"workers": [worker], "allow_other_workers": True}
            tools = dask_function(pickle.loads)(payload)
            tasks = [
                read(tools, self.parts[i], self.starts[i], self.first[i])
                for i in range(number, len(self.parts), shares)
            ]
            encoded = client.compute(tasks, **place)
            seen += client.map(lambda one: one and one[1], encoded, pure=False, **place)
            share_seeds = list(seeds[number::shares])
            task = client.submit(_trained, encoded, train, share_seeds, pure=False, **place)
            trained.append(task)
        return client.gather(trained), [one for one in client.gather(seen) if one is not None]


def _encoded(tools: tuple[Any, Any], block: Any, start: int, first: Any) -> Any:
    """Encoded rows of one partition and their summary; None if it has no rows."""
    reader, encode = tools
    # Consume the whole pass: changed rows are detected at its end.
    encoded = [encode(*rows) for rows in reader(block, start, first).numbered()]
    return encoded[0] if encoded else None


def _trained(encoded: list[Any], train: Train, seeds: list[int]) -> Any:
    """Train the networks of one share, on all threads of its worker."""
    from distributed import get_worker

    rows = [one[0] for one in encoded if one is not None]
    threads = get_worker().state.nthreads
    with joblib.parallel_config(backend="threading"):
        return train(rows, sum(len(target) for _, target in rows), seeds, threads)
