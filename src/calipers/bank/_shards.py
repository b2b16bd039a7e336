"""Tables that do not fit in memory: shards in a scratch file, trained on one at a time.

Every shard is a random sample of all rows: of n successive rows in the source, each of n shards
gets one. To the compiled program, a pass over a shard is an epoch, within which it shuffles, so
that it trains on shards as it does on tables.

The file has no name, so that nothing remains of it however the process ends.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, Self

import jax
import numpy as np

from calipers._arrays import AnyFloatArray, AnyIntArray, Float32Array
from calipers.bank._cache import default_device
from calipers.bank._lanes import Scaling
from calipers.bank._shared_rows import DeviceRows, Table, padded

_CELLS = 2**24  # most numbers in a shard
_SHARD = (2**13, 2**18)  # fewest and most rows in a shard, which take precedence


@dataclass(frozen=True, eq=False)
class Shards(Table):
    """A table with one shard at a time in memory; ``inputs`` and ``target`` are the first shard.

    Every shard is followed by the same validation rows.
    """

    scratch: "ShardWriter" = field(kw_only=True)  # it wrote the shards
    streams = True

    @property
    def train(self) -> AnyIntArray:
        """Indices of the training rows in a shard."""
        return np.arange(self.scratch.slots)

    @property
    def validation(self) -> AnyIntArray:
        """Indices of the validation rows, which follow those of the shard."""
        return np.arange(self.scratch.slots, self.rows)

    def feed(self) -> Callable[[int], DeviceRows]:
        """A function that loads the shard of an epoch, and the next in the background."""
        device, pool, count = default_device(), self.scratch.pool, self.scratch.shards
        held: dict[int, Future[DeviceRows]] = {}  # the shards of this epoch and of the next

        def load(shard: int) -> DeviceRows:
            inputs, target, part = self.inputs.copy(), self.target.copy(), self.scratch.read(shard)
            inputs[: len(part)], target[: len(part)] = part[:, :-1], part[:, -1]
            return jax.device_put((inputs, target), device)

        def place(epoch: int) -> DeviceRows:
            wanted = dict.fromkeys((epoch % count, (epoch + 1) % count))
            for shard in held.keys() - wanted.keys():
                del held[shard]
            for shard in wanted:
                if shard not in held:
                    held[shard] = pool.submit(load, shard)
            return held[epoch % count].result()

        return place


class ShardWriter:
    """A scratch file to which rows are written once, in the order of their source.

    The seed determines which row goes to which shard. Raises ``OSError`` if the disk is too full.
    """

    def __init__(self, inputs: int, rows: int, seed: int) -> None:
        self.width = inputs + 1
        largest = int(np.clip(_CELLS // self.width, *_SHARD))
        self.shards = max(1, -(-rows // largest))
        self.capacity = -(-rows // self.shards)
        self.slots = 0
        self.random = np.random.default_rng(seed)
        self.waiting = np.empty((0, self.width), np.float32)
        size, place = 4 * self.shards * self.capacity * self.width, tempfile.gettempdir()
        if size > (free := shutil.disk_usage(place).free):
            raise OSError(
                f"{rows:,} rows of {self.width} numbers need {size / 2**30:.1f} GiB of scratch in "
                f"{place}, which has {free / 2**30:.1f} GiB free: set TMPDIR to a larger disk"
            )
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="shards")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.file.close()

    def write(self, inputs: Float32Array, target: Float32Array) -> None:
        """Add rows, up to the number announced; a few are held back until more arrive."""
        rows = np.concatenate([self.waiting, np.column_stack([inputs, target])])
        slots = len(rows) // self.shards
        if self.slots + slots > self.capacity:
            raise ValueError(f"more than the {self.capacity * self.shards:,} rows announced")
        whole = rows[: slots * self.shards].reshape(slots, self.shards, self.width)
        order = self.random.permuted(np.tile(np.arange(self.shards), (slots, 1)), axis=1)
        mixed = np.take_along_axis(whole, order[:, :, None], axis=1)
        for shard in range(self.shards):
            self.file.seek(4 * self.width * (shard * self.capacity + self.slots))
            self.file.write(np.ascontiguousarray(mixed[:, shard]).tobytes())
        self.slots += slots
        self.waiting = rows[slots * self.shards :]

    def read(self, shard: int) -> Float32Array:
        """Rows of a shard, with the target as the last column."""
        with self.lock:
            self.file.seek(4 * self.width * shard * self.capacity)
            content = self.file.read(4 * self.width * self.slots)
        return np.frombuffer(content, np.float32).reshape(-1, self.width)

    def finish(
        self,
        inputs: Float32Array,
        target: Float32Array,
        units: Scaling,
        limits: tuple[AnyFloatArray, AnyFloatArray] | None,
    ) -> Shards:
        """The table of all rows written, with ``inputs`` and ``target`` to validate on.

        The last rows are left out if there are too few of them for one in each shard.
        """
        self.file.flush()
        first = self.read(0)
        rows = self.slots + len(target)
        extra = padded(self.slots) + padded(len(target)) - rows
        return Shards(
            np.pad(np.concatenate([first[:, :-1], inputs]), ((0, extra), (0, 0))),
            np.pad(np.concatenate([first[:, -1], target]), (0, extra)),
            units,
            rows,
            limits,
            scratch=self,
        )
