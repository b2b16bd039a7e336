"""Convert a bank of networks to JSON and arrays, and back; what is loaded is validated first."""

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, NoReturn

import jax
import numpy as np
from numpy.typing import NDArray

from calipers._checks import MAX_TARGET
from calipers._schema import SchemaError, array_of, arrays_under, refuse, within
from calipers._serialization.model_schema import CUSTOM, MAX_NETWORKS
from calipers.bank import HISTORY_TYPE, MEASURES, Bank, Program, Scaling
from calipers.networks import Around, DenseFactory, Network
from calipers.objectives import LOSSES, Objective
from calipers.storage import ModelFileError

Arrays = dict[str, NDArray[Any]]

_NETWORKS: dict[str, Any] = {kind.__name__: kind for kind in (DenseFactory, Around)}
_MEASURES = [name for name in HISTORY_TYPE.names or () if name != "epoch"]

_DEEP = 16  # layers from which on the bound of the outputs is too loose to be useful
_MAX_INPUT = 1e4  # standardised, assumed in that bound if a network does not clip its inputs
_NARROWEST = 1e-6  # width of a segment of an input; those of a fit are much wider
_MAX_OUTPUT = 1e37  # single precision ends at 3e38


class MissingCodeError(ModelFileError):
    """A model that needs code of its author, which is not stored and was not given."""


def bank_to_arrays(bank: Bank) -> Arrays:
    arrays: Arrays = {f"weights.{i}": leaf for i, leaf in enumerate(bank.weights)}
    for name, scaling in (("scaling", bank.scaling), ("units", bank.units)):
        for field, value in scaling._asdict().items():
            arrays[f"{name}.{field}"] = np.asarray(value, dtype=np.float64)
    for name in ("numbers", "seeds", "failures", "out_of_time"):
        arrays[name] = getattr(bank, name)
    arrays["epochs"] = np.array([len(history) for history in bank.histories])
    whole = np.concatenate(bank.histories)
    arrays["history"] = np.stack([whole[name] for name in _MEASURES], axis=1)
    return arrays


def bank_from_arrays(
    document: Mapping[str, Any],
    arrays: Arrays,
    network: Network | None,
    largest: float,
    stretch: float = 1.0,
) -> Bank:
    program = _program_from_dict(document, network)
    scaling, units = (
        Scaling(*(arrays[f"{name}.{field}"] for field in Scaling._fields))
        for name in ("scaling", "units")
    )
    numbered = arrays_under(arrays, "weights.")
    if set(numbered) != {str(i) for i in range(len(numbered))}:
        rule = f"numbered from 0 to {len(numbered) - 1}"
        refuse("arrays 'weights'", rule, sorted(numbered)[:5])
    weights = [numbered[str(i)] for i in range(len(numbered))]
    _check_shapes(program, len(arrays["seeds"]), weights)
    _check_outputs(document, arrays, weights, largest, stretch)
    return Bank(
        program,
        weights,
        scaling,
        units,
        numbers=arrays["numbers"],
        seeds=arrays["seeds"],
        failures=arrays["failures"],
        histories=_histories_from_arrays(arrays["history"], arrays["epochs"]),
        out_of_time=arrays.get("out_of_time", np.zeros(len(arrays["seeds"]), bool)),
    )


def _histories_from_arrays(measures: NDArray[Any], epochs: NDArray[Any]) -> list[NDArray[np.void]]:
    whole = np.empty(len(measures), dtype=HISTORY_TYPE)
    whole["epoch"] = np.concatenate([np.arange(1, count + 1) for count in epochs])
    for name, column in zip(_MEASURES, measures.T, strict=True):
        whole[name] = column
    return np.split(whole, np.cumsum(epochs)[:-1])


def check_bank(document: Mapping[str, Any], arrays: Arrays) -> None:
    """Refuse arrays that are not those of a bank with this program."""
    seeds = array_of(arrays, "seeds", "iu")
    if seeds.ndim != 1 or not 1 <= len(seeds) <= MAX_NETWORKS:
        refuse("array 'seeds'", f"a list of 1 to {MAX_NETWORKS} networks", seeds.shape)
    networks, inputs = len(seeds), document["in_size"]
    for name in ("numbers", "failures", "epochs"):
        array_of(arrays, name, "iu", (networks,), 0, 2**53)
    if "out_of_time" in arrays:
        array_of(arrays, "out_of_time", "b", (networks,))
    history, epochs = arrays.get("history"), arrays["epochs"]
    shape = (int(epochs.sum()), 2 * len(MEASURES))
    if history is None or history.shape != shape or history.dtype.kind != "f":
        refuse("array 'history'", f"of numbers of shape {shape}", getattr(history, "shape", None))
    for name, lanes in (("scaling", (networks,)), ("units", ())):
        array_of(arrays, f"{name}.input_center", "f", (*lanes, inputs))
        array_of(arrays, f"{name}.input_scale", "f", (*lanes, inputs), 5e-324)
        array_of(arrays, f"{name}.target_center", "f", lanes)
        array_of(arrays, f"{name}.target_scale", "f", lanes, 5e-324)
    within("scaling.input_center", arrays["scaling.input_center"], -1e12, 1e12)
    within("scaling.input_scale", arrays["scaling.input_scale"], 1e-25, 1e25)


def _check_shapes(program: Program, networks: int, weights: list[NDArray[Any]]) -> None:
    leaves = jax.tree.leaves(program.weights)
    expected = [((networks, *leaf.shape), leaf.dtype) for leaf in leaves]
    stored = [(leaf.shape, leaf.dtype) for leaf in weights]
    if expected != stored:
        wanted, got = ([(*shape, str(dtype)) for shape, dtype in x] for x in (expected, stored))
        raise SchemaError(
            f"the weights do not fit the network: its arrays are {wanted}, the model has {got}"
        )


def _check_outputs(
    document: Mapping[str, Any],
    arrays: Arrays,
    weights: list[NDArray[Any]],
    largest: float,
    stretch: float,
) -> None:
    """Refuse networks whose outputs might not be finite.

    ``largest`` is the largest absolute target, and ``stretch`` the largest factor by which
    calibrations widen distributions.
    """
    for i, leaf in enumerate(weights):
        array_of({f"weights.{i}": leaf}, f"weights.{i}", "biuf")
    reach = _output_bound(document["network"], weights)
    if (components := document.get("components", 1)) > 1:  # locations are products of two outputs
        with np.errstate(over="ignore"):
            reach = (components + 1) * (reach + 1.0) ** 2
    if not (reach <= _MAX_OUTPUT).all():
        refuse("the weights", "such that outputs stay finite", f"up to {reach.max():.3g}")
    with np.errstate(over="ignore"):
        scale = arrays["scaling.target_scale"] * arrays["units.target_scale"]
        center = arrays["scaling.target_center"] * arrays["units.target_scale"]
        ends = reach * scale * stretch + np.abs(center + arrays["units.target_center"])
    if not (ends <= max(MAX_TARGET, 1e50 * largest)).all() or not (scale > 0).all():
        problem = "of the size of the target" + (" over that of scores" if stretch > 1 else "")
        refuse("array 'scaling.target_scale'", problem, scale)


def _output_bound(network: Mapping[str, Any], weights: list[NDArray[Any]]) -> NDArray[np.float64]:
    """Bound of each network's absolute outputs, from the absolute values of its weights."""
    if network.get("kind") == "Around":
        network = network["network"]
    networks = len(weights[0])
    if network == CUSTOM or len(network["hidden_layers"]) >= _DEEP:
        return np.ones(networks)
    leaves = [np.abs(leaf).astype(np.float64) for leaf in weights]
    embedded = network.get("frequencies") is not None
    skip = leaves.pop() if embedded and network.get("skip") else 0.0
    if not embedded:
        reach = np.full((networks, leaves[0].shape[1]), _MAX_INPUT)
    else:
        clip = float(network.get("clip", 3.0))
        frequency, phase, amplitude = leaves[:3]
        within("weights.0", frequency, 0, 1e6)
        within("weights.1", phase, 0, 1e6)
        parts = [np.repeat(amplitude, frequency.shape[2], axis=1)]
        first = leaves[3].shape[1]
        leaves = leaves[3:]
        if network.get("bins") and amplitude.shape[1]:
            *leaves, knots, pieces = leaves
            within(f"weights.{3 + len(leaves)}", knots, 0, 1e9)
            gaps = np.diff(weights[3 + len(leaves)].reshape(networks, amplitude.shape[1], -1))
            if ((gaps > 0) & (gaps < _NARROWEST)).any():
                refuse("knots of an input", f"equal, or {_NARROWEST:g} apart", gaps[gaps > 0].min())
            parts.append(np.repeat(pieces, network["bins"], axis=1))
        plain = np.full((networks, first - sum(part.shape[1] for part in parts)), clip)
        reach = np.concatenate([plain, *parts], axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for weight, bias in zip(leaves[::2], leaves[1::2], strict=True):
            reach = np.einsum("ni,nij->nj", reach, weight) + bias
        reach = reach + _MAX_INPUT * skip
    return np.asarray(np.nan_to_num(reach.max(axis=1), nan=np.inf)) + 1.0


def program_to_dict(program: Program) -> dict[str, Any]:
    document = {field.name: getattr(program, field.name) for field in fields(program)}
    document["network"] = _network_to_dict(program.network)
    names = [name for name, loss in LOSSES.items() if loss is program.objective]
    document["objective"] = {"loss": names[0] if names else CUSTOM, "head": program.output.name}
    del document["head"], document["refuse_crossing"]  # the latter only matters to training
    if program.components == 1:  # as in versions that knew only one
        del document["components"]
    return document


def _network_to_dict(network: object) -> object:
    if not isinstance(network, tuple(_NETWORKS.values())):
        return network if isinstance(network, (int, float, str, NoneType)) else CUSTOM
    parts = {
        name: list(value) if isinstance(value, tuple) else _network_to_dict(value)
        for name, value in vars(network).items()
    }
    return {"kind": type(network).__name__} | parts


def _program_from_dict(document: Mapping[str, Any], network: Network | None) -> Program:
    kwargs = dict(document)
    shape, objective = kwargs.pop("network"), kwargs.pop("objective")
    name, head = objective["loss"], objective["head"]
    loss = _Unknown if name == CUSTOM else LOSSES[name]
    other_head = "" if head == loss.head else head
    return Program(_network_from_dict(shape, network), loss, head=other_head, **kwargs)


def _network_from_dict(shape: object, network: Network | None) -> Any:
    if not isinstance(shape, Mapping):
        return tuple(shape) if isinstance(shape, list) else shape
    if shape != CUSTOM:
        parts = {k: _network_from_dict(v, network) for k, v in shape.items() if k != "kind"}
        return _NETWORKS[shape["kind"]](**parts)
    if network is None:
        raise MissingCodeError(
            "the model has a custom network, which is code and not stored: pass the same factory "
            "as load(..., network=...)"
        )
    return network


class _Unknown(Objective):
    """Stands for a custom loss, whose code is not stored."""

    @staticmethod
    def loss(*_: object, **__: object) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(
            "the loss of this model is code and was not stored: set the parameter loss to train "
            "it further"
        )
