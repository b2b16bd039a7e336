"""A bank of trained networks and its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import AnyFloatArray, AnyIntArray
from calipers._process import before_computing
from calipers.bank._cache import compiled
from calipers.bank._dense import NETWORKS, Dense
from calipers.bank._lanes import PyTree, Scaling
from calipers.bank._program import Program
from calipers.bank._run import History
from calipers.bank._shared_rows import scaled_inputs

BLOCK = 8192  # rows handed to a compiled program at a time
_FEW_ROWS = 4096  # for up to this many rows, more networks should share the overhead of a step
_LANES = {2: 5, 4: 2}  # networks per chunk, by the largest number of cores; 1 on more cores


@dataclass(frozen=True, eq=False)
class Bank:
    """Trained networks of one program."""

    program: Program  #: What the networks have in common.
    weights: list[AnyFloatArray]  #: Their weights, with the networks along the first axis.
    scaling: Scaling  #: Each network's own scaling, with the networks along the first axis.
    units: Scaling  #: Units of the table they were trained on.
    numbers: AnyIntArray  #: Number of the plan of each network.
    seeds: AnyIntArray  #: The seed that each network was trained with, after retries.
    failures: AnyIntArray  #: How many attempts at each network failed before it succeeded.
    histories: list[History]  #: The measures of each epoch, in the unit of the target.
    #: Which networks had not finished training when the time was up.
    out_of_time: NDArray[np.bool_]
    #: The result of ``examine`` (see ``train``) for each network; empty without it.
    examined: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, chosen: slice | ArrayLike) -> "Bank":
        """A bank of the networks chosen by an index array, a mask or a slice."""
        numbers = np.arange(len(self))[chosen if isinstance(chosen, slice) else np.asarray(chosen)]
        return Bank(
            self.program,
            self.weights_of(numbers),
            self.scaling_of(numbers),
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
        """One bank of all networks of several banks, which share a program and units."""
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
            [result for bank in banks for result in bank.examined],
        )

    def weights_of(self, number: int | slice | AnyIntArray) -> list[AnyFloatArray]:
        """Weights of a network, to train it further, or of several."""
        return [leaf[number] for leaf in self.weights]

    def scaling_of(self, number: int | slice | AnyIntArray) -> Scaling:
        """Scaling of a network, or of several."""
        return Scaling(*(part[number] for part in self.scaling))

    def predict(self, inputs: AnyFloatArray) -> dict[str, NDArray[np.float64]]:
        """Every network's parameters for every row: the head's fields, each (networks, rows).

        Inputs are finite and in the units of the data; predicted locations and scales are in the
        unit of the target.
        """
        fields = self.program.output.fields
        values = np.empty((len(self), len(fields), len(inputs)))
        for start in range(0, len(inputs), BLOCK):
            block = scaled_inputs(inputs[start : start + BLOCK], self.units)
            values[:, :, start : start + BLOCK] = self.forward(block)
        factor, offset = self._unscaling
        values *= factor
        values += offset
        return {name: values[:, i] for i, name in enumerate(fields)}

    @cached_property
    def _unscaling(self) -> tuple[AnyFloatArray, AnyFloatArray]:
        """The factor and offset that turn the networks' parameters into the target's unit."""
        scale = self.scaling.target_scale * self.units.target_scale
        center = self.scaling.target_center * self.units.target_scale + self.units.target_center
        head = self.program.output
        is_location = np.array([head.is_location(name) for name in head.fields])
        is_fraction = np.array([name in head.shares for name in head.fields])
        factor = np.where(is_fraction, 1.0, scale[:, None])[:, :, None]
        return factor, (center[:, None] * is_location)[:, :, None]

    def forward(self, block: AnyFloatArray) -> NDArray[np.float32]:
        """Parameters of up to ``BLOCK`` standardised rows, as (networks, fields, rows)."""
        if self._dense is not None:
            return np.concatenate([dense(block) for dense in self._dense])
        before_computing()
        rows = np.zeros((BLOCK, block.shape[1]), np.float32)
        rows[: len(block)] = block
        parts = []
        for chunk in self._chunks:
            arguments = (*chunk, rows, np.int32(len(block)))
            predicted = compiled(self.program.predict, arguments)(*arguments)
            parts.append(np.asarray(predicted)[:, :, : len(block)])
        return np.concatenate(parts)[: len(self)]

    @cached_property
    def _dense(self) -> list[Dense] | None:
        """The networks in NumPy, in groups, or None where they must run as compiled programs."""
        if jax.default_backend() != "cpu":
            return None
        groups = []
        for start in range(0, len(self), NETWORKS):
            members = slice(start, start + NETWORKS)
            weights = self.program.tree(self.weights_of(members))
            dense = Dense.of(weights, self.scaling_of(members), self.program.output)
            if dense is None:
                return None
            groups.append(dense)
        return groups

    @cached_property
    def _chunks(self) -> list[tuple[PyTree, Scaling]]:
        """Weights and scalings of the networks that share a call of the program."""
        lanes = lane_count(self.program, len(self))
        chunks = []
        for start in range(0, len(self), lanes):
            # The last chunk is filled up with copies of a network: all chunks have one size.
            members = np.minimum(np.arange(start, start + lanes), len(self) - 1)
            scaling = Scaling(*(part.astype(np.float32) for part in self.scaling_of(members)))
            chunks.append((self.program.tree(self.weights_of(members)), scaling))
        return chunks

    def __getstate__(self) -> dict[str, Any]:
        cached = ("_chunks", "_dense", "_unscaling")
        return {key: value for key, value in self.__dict__.items() if key not in cached}


def lane_count(program: Program, networks: int, rows: int = 0) -> int:
    """How many networks share a compiled program.

    On a CPU, few: that is fastest there and leaves chunks for other threads. With many ``rows`` to
    train on, the number falls as cores are added, so that ten networks keep eight cores busy
    (``benchmarks/cores.py``). It affects a network's bits, and may therefore depend on the machine
    but not on the number of threads of a fit. On an accelerator, as many as a quarter of its memory
    holds.
    """
    if jax.default_backend() == "cpu":
        cores = joblib.cpu_count() if rows > _FEW_ROWS else 1
        return next((lanes for limit, lanes in _LANES.items() if cores <= limit), 1)
    weights = sum(leaf.size for leaf in jax.tree.leaves(program.weights))
    per_network = 4 * (6 * weights + 64 * program.batch_size * max(program.in_size, 64))
    stats = jax.devices()[0].memory_stats() or {}
    capacity = stats.get("bytes_limit", 8 * 2**30) // 4
    return int(max(1, min(networks, capacity // per_network)))
