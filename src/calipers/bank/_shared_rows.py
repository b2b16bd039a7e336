"""The rows that a bank shares, and the plans of the networks that train on them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from calipers._arrays import AnyFloatArray, AnyIntArray
from calipers._outliers import ordinary_limits
from calipers.bank._cache import default_device
from calipers.bank._lanes import Scaling, Settings

DeviceRows = tuple[jax.Array, jax.Array]  # inputs (rows, inputs) and target (rows,) on a device

_CONSTANT_TARGET = 1e-6  # relative scale that a constant target is given
_BLOCK = 2048  # rows whose inputs stay within a core's cache
_CONSTANT = 1e-12  # a column of a smaller relative scale is constant but for rounding errors


def padded(count: int) -> int:
    """``count`` rounded up to one of four sizes per doubling: similar tables share a program."""
    if count <= 256:
        return 256 if count else 0
    step = 2 ** ((count - 1).bit_length() - 3)
    return -(-count // step) * step


def mean_and_scale(values: AnyFloatArray, weights: AnyFloatArray | None = None) -> tuple[Any, Any]:
    """Weighted mean and standard deviation along the first axis, without overflow in any unit.

    A constant column has the scale 1.
    """
    peak = np.max(np.abs(values), axis=0, initial=0.0)
    peak = np.where(peak > 0, peak, 1.0)
    relative = values / peak
    center = np.average(relative, axis=0, weights=weights)
    scale = np.sqrt(np.average((relative - center) ** 2, axis=0, weights=weights))
    constant = scale <= _CONSTANT * np.abs(center)
    return center * peak, np.where(constant, 1.0, scale * peak)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that the networks of a bank share, standardised once and padded.

    They are standardised in double precision, so that the compiled programs can work in single
    precision in any unit; every network then scales by its own training rows.
    """

    inputs: AnyFloatArray  #: (padded rows, inputs)
    target: AnyFloatArray  #: (padded rows,)
    units: Scaling  #: Centres and scales that lead back to the units of the data.
    rows: int  #: Number of rows without padding.
    #: Range of each input without gross errors, if there are any: a network's own scaling clips
    #: inputs to it.
    limits: tuple[AnyFloatArray, AnyFloatArray] | None = None
    streams = False  # whether each epoch sees other rows than the one before

    @classmethod
    def from_arrays(
        cls,
        inputs: AnyFloatArray,
        target: AnyFloatArray,
        units: Scaling | None = None,
        *,
        robust: bool = False,
    ) -> "Table":
        """Make a table of finite inputs (rows, inputs) and targets (rows,).

        To train a bank further, pass the ``units`` of the table that it was trained on. With
        ``robust``, gross errors among the inputs do not affect their scale; they stay in the table,
        so this is for networks that clip their inputs.
        """
        limits = ordinary_limits(inputs) if robust else None
        if units is None:
            center, scale = mean_and_scale(target)
            if np.ptp(target) <= _CONSTANT * np.abs(center):
                scale = _CONSTANT_TARGET * (np.abs(center) or 1.0)
            clipped = inputs if limits is None else np.clip(inputs, *limits)
            input_center, input_scale = mean_and_scale(clipped)
            units = Scaling(input_center, input_scale, center, scale)
        extra = padded(len(target)) - len(target)
        target = (target - units.target_center) / units.target_scale
        return cls(
            np.pad(scaled_inputs(inputs, units), ((0, extra), (0, 0))),
            np.pad(target.astype(np.float32), (0, extra)),
            units,
            len(target),
            limits and (scaled_inputs(limits[0], units), scaled_inputs(limits[1], units)),
        )

    @cached_property
    def _placed(self) -> dict[jax.Device, DeviceRows]:
        return {}

    def feed(self) -> Callable[[int], DeviceRows]:
        """A function that returns the rows of an epoch on the device of this thread's programs."""
        device = default_device()
        if device not in self._placed:
            self._placed[device] = jax.device_put((self.inputs, self.target))
        placed = self._placed[device]
        return lambda epoch: placed

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_placed"}

    def in_units(self, rows: AnyIntArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inputs and target of ``rows`` in the units of the data, to single precision."""
        units = self.units
        inputs = self.inputs[rows] * units.input_scale + units.input_center
        return inputs, self.target[rows] * units.target_scale + units.target_center

    def scaling(self, rows: AnyIntArray, weights: AnyFloatArray | None = None) -> Scaling:
        """Scaling by the mean and standard deviation of ``rows``."""
        target = self.target[rows].astype(np.float64)
        return Scaling(*self._moments(rows, weights), *mean_and_scale(target, weights))

    def _moments(self, rows: AnyIntArray, weights: AnyFloatArray | None) -> tuple[Any, Any]:
        """``mean_and_scale`` of the inputs of ``rows``, computed block by block."""
        weights = np.ones(len(rows)) if weights is None else weights.astype(np.float64)
        blocks = [slice(i, i + _BLOCK) for i in range(0, len(rows), _BLOCK)]

        def mean(center: AnyFloatArray, power: int) -> AnyFloatArray:
            total = np.zeros(self.inputs.shape[1])
            for block in blocks:
                values = self.inputs[rows[block]]
                if self.limits is not None:
                    values = np.clip(values, *self.limits)
                total += weights[block] @ (values - center) ** power
            return total / weights.sum()

        center = mean(np.zeros(self.inputs.shape[1]), 1)
        scale = np.sqrt(mean(center, 2))
        return center, np.where(scale <= _CONSTANT * np.abs(center), 1.0, scale)


def scaled_inputs(inputs: AnyFloatArray, units: Scaling) -> AnyFloatArray:
    """Inputs in the units of a table and in single precision, in which huge values stay finite."""
    with np.errstate(over="ignore"):
        scaled = (inputs - units.input_center) / units.input_scale
    return np.clip(scaled, -1e9, 1e9).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Plan:
    """One network of a bank: the rows it trains on, and how."""

    seed: int  #: Seed of the weights and of the order of the rows, below 2**32.
    rows: AnyIntArray  #: Training rows of the table.
    weights: AnyFloatArray | None = None  #: Their weights.
    #: Rows on which the network is validated after each epoch.
    validation: AnyIntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    validation_weights: AnyFloatArray | None = None  #: Their weights.
    settings: Settings = field(default_factory=Settings)  #: Hyperparameters of its training.
    #: Scaling of inputs and target; by the training rows if None.
    scaling: Scaling | None = None
    #: Weights to start from instead of random ones, see ``Bank.weights_of``.
    initial: list[AnyFloatArray] | None = None
