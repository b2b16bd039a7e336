"""A bank of trained networks, and what it predicts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._process import before_computing
from calipers.bank._cache import compiled
from calipers.bank._dense import NETWORKS, Dense
from calipers.bank._lanes import Scaling, Tree
from calipers.bank._program import Program
from calipers.bank._run import History
from calipers.bank._shared_rows import FloatArray, IntArray, standardised

BLOCK = 8192  # rows handed to a compiled program at a time
_FEW_ROWS = 4096  # up to which a step's overhead is best shared by more networks
_LANES = {2: 5, 4: 2}  # networks to a chunk on up to so many cores; one each on more


@dataclass(frozen=True, eq=False)
class Bank:
    """Trained networks, all of one program."""

    program: Program  #: What they have in common.
    weights: list[FloatArray]  #: Their weights, the networks along the first axis of each.
    scaling: Scaling  #: Each network's own scaling, the networks along the first axis.
    units: Scaling  #: Units of the table they were trained on.
    numbers: IntArray  #: Which plan each network came from.
    seeds: IntArray  #: The seed each network was trained with, after retries.
    failures: IntArray  #: How many networks were thrown away before each of these.
    histories: list[History]  #: What happened in each epoch, in the target's unit.
    #: Which networks were still getting better when their time was up.
    out_of_time: NDArray[np.bool_]
    #: What ``examine`` of ``train`` found of each network; empty without it.
    examined: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, chosen: slice | ArrayLike) -> "Bank":
        """Some of the networks, by an index array, a mask or a slice."""
        numbers = np.arange(len(self))[chosen if isinstance(chosen, slice) else np.asarray(chosen)]
        return Bank(
            self.program,
            [leaf[numbers] for leaf in self.weights],
            Scaling(*(leaf[numbers] for leaf in self.scaling)),
            self.units,
            self.numbers[numbers],
            self.seeds[numbers],
            self.failures[numbers],
            [self.histories[i] for i in numbers],
            self.out_of_time[numbers],
            [self.examined[i] for i in numbers] if self.examined else [],
        )

    @classmethod
    def concatenate(cls, banks: Sequence["Bank"]) -> "Bank":
        """One bank of the networks of several, all of one program and of the same units."""
        first = banks[0]
        return cls(
            first.program,
            [np.concatenate(parts) for parts in zip(*(b.weights for b in banks), strict=True)],
            Scaling(*map(np.concatenate, zip(*(b.scaling for b in banks), strict=True))),
            first.units,
            np.arange(sum(map(len, banks))),
            np.concatenate([bank.seeds for bank in banks]),
            np.concatenate([bank.failures for bank in banks]),
            [history for bank in banks for history in bank.histories],
            np.concatenate([bank.out_of_time for bank in banks]),
            [found for bank in banks for found in bank.examined],
        )

    def weights_of(self, number: int) -> list[FloatArray]:
        """One network's weights, to train it further."""
        return [leaf[number] for leaf in self.weights]

    def scaling_of(self, number: int) -> Scaling:
        """One network's scaling."""
        return Scaling(*(part[number] for part in self.scaling))

    def predict(self, inputs: FloatArray) -> dict[str, NDArray[np.float64]]:
        """Every network's parameters for every row: the head's fields, each (networks, rows).

        Inputs are finite numbers in the data's own units, and so are places and lengths in the
        target's.
        """
        fields = self.program.output.fields
        values = np.empty((len(self), len(fields), len(inputs)))
        for start in range(0, len(inputs), BLOCK):
            block = standardised(inputs[start : start + BLOCK], self.units)
            values[:, :, start : start + BLOCK] = self.forward(block)
        factor, offset = self._back
        values *= factor
        values += offset
        return {name: values[:, i] for i, name in enumerate(fields)}

    @cached_property
    def _back(self) -> tuple[FloatArray, FloatArray]:
        """What takes the networks' own units back to the target's: a factor and an offset."""
        scale = self.scaling.target_scale * self.units.target_scale
        center = self.scaling.target_center * self.units.target_scale + self.units.target_center
        head = self.program.output
        is_place = np.array([head.is_place(name) for name in head.fields])
        is_share = np.array([name in head.shares for name in head.fields])
        factor = np.where(is_share, 1.0, scale[:, None])[:, :, None]
        return factor, (center[:, None] * is_place)[:, :, None]

    def forward(self, block: FloatArray) -> NDArray[np.float32]:
        """Parameters of up to ``BLOCK`` standardised rows, as (networks, fields, rows)."""
        if self._dense is not None:
            return np.concatenate([dense(block) for dense in self._dense])
        before_computing()
        rows = np.zeros((BLOCK, block.shape[1]), np.float32)
        rows[: len(block)] = block
        parts = []
        for chunk in self._chunks:
            arguments = (*chunk, rows, np.int32(len(block)))
            found = compiled(self.program.predict, arguments)(*arguments)
            parts.append(np.asarray(found)[:, :, : len(block)])
        return np.concatenate(parts)[: len(self)]

    @cached_property
    def _dense(self) -> list[Dense] | None:
        """The networks in NumPy, some in each entry, where that is how they predict."""
        if jax.default_backend() != "cpu":
            return None
        found = []
        for start in range(0, len(self), NETWORKS):
            some = slice(start, start + NETWORKS)
            weights = self.program.tree([leaf[some] for leaf in self.weights])
            scaling = Scaling(*(part[some] for part in self.scaling))
            dense = Dense.of(weights, scaling, self.program.output)
            if dense is None:
                return None
            found.append(dense)
        return found

    @cached_property
    def _chunks(self) -> list[tuple[Tree, Scaling]]:
        """Weights and scalings of the networks that share a call of the program."""
        lanes = lane_count(self.program, len(self))
        found = []
        for start in range(0, len(self), lanes):
            # The last chunk repeats a network where it lacks one: every chunk has one width.
            members = np.minimum(np.arange(start, start + lanes), len(self) - 1)
            weights = self.program.tree([leaf[members] for leaf in self.weights])
            scaling = Scaling(*(part[members].astype(np.float32) for part in self.scaling))
            found.append((weights, scaling))
        return found

    def __getstate__(self) -> dict[str, Any]:
        made = ("_chunks", "_dense", "_back")
        return {key: value for key, value in self.__dict__.items() if key not in made}


def lane_count(program: Program, networks: int, rows: int = 0) -> int:
    """How many networks share a compiled program.

    On a CPU a small number, which is fastest there and leaves chunks for other threads, and the
    smaller the more cores there are where many ``rows`` are trained on, so that ten networks keep
    eight of them busy (``benchmarks/cores.py``). A network's bits depend on it, so that it may
    follow the machine, and must not follow the threads that a fit is given. On an accelerator as
    many as fit in a part of its memory.
    """
    if jax.default_backend() == "cpu":
        cores = joblib.cpu_count() if rows > _FEW_ROWS else 1
        return next((lanes for limit, lanes in _LANES.items() if cores <= limit), 1)
    weights = sum(leaf.size for leaf in jax.tree.leaves(program.weights))
    per_network = 4 * (6 * weights + 64 * program.batch_size * max(program.in_size, 64))
    stats = jax.devices()[0].memory_stats() or {}
    room = stats.get("bytes_limit", 8 * 2**30) // 4
    return int(max(1, min(networks, room // per_network)))
