"""A fitted model as JSON and arrays, and back. Code is never stored, only asked for again."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from calipers.bank import HISTORY_TYPE, Bank, Program, Scaling
from calipers.calibration import Calibration
from calipers.ensemble import Ensemble
from calipers.networks import MLP, EmbeddedMLP
from calipers.objectives import LOSSES, Objective
from calipers.storage import ModelFileError

Arrays = dict[str, NDArray[Any]]

CUSTOM = {"custom": True}
"""Stands in a document for a function of the user's own."""

_NETWORKS: dict[str, Any] = {kind.__name__: kind for kind in (MLP, EmbeddedMLP)}
_MEASURES = [name for name in HISTORY_TYPE.names or () if name != "epoch"]


def pack_ensemble(ensemble: Ensemble) -> tuple[dict[str, Any], Arrays]:
    """An ensemble as a document and arrays."""
    bank = ensemble.bank
    arrays: Arrays = {f"weights.{i}": leaf for i, leaf in enumerate(bank.weights)}
    for name, scaling in (("scaling", bank.scaling), ("units", bank.units)):
        for field, value in scaling._asdict().items():
            arrays[f"{name}.{field}"] = np.asarray(value, dtype=np.float64)
    for name in ("numbers", "seeds", "failures"):
        arrays[name] = getattr(bank, name)
    for i, calibration in enumerate(ensemble.calibrations):
        for name, array in calibration.to_arrays().items():
            arrays[f"calibration.{i}.{name}"] = array
    arrays["epochs"] = np.array([len(history) for history in bank.histories])
    whole = np.concatenate(bank.histories)
    arrays["history"] = np.stack([whole[name] for name in _MEASURES], axis=1)
    document = {
        "coverage": float(ensemble.coverage),
        "aggregation": ensemble.aggregation,
        "calibrations": len(ensemble.calibrations),
        "row_weight": None if ensemble.row_weight is None else CUSTOM,
        "program": _pack_program(bank.program),
    }
    return document, arrays


def unpack_ensemble(
    document: Mapping[str, Any], arrays: Arrays, *, network: Any = None, row_weight: Any = None
) -> Ensemble:
    """The ensemble that ``pack_ensemble`` took apart.

    Raises
    ------
    ModelFileError
        If pieces are missing or do not fit together, or if the model has a network of the user's
        own and none is given.
    """
    try:
        program = _unpack_program(document["program"], network)
        scaling, units = (
            Scaling(*(arrays[f"{name}.{field}"] for field in Scaling._fields))
            for name in ("scaling", "units")
        )
        bank = Bank(
            program,
            _numbered(arrays, "weights"),
            scaling,
            units,
            numbers=arrays["numbers"],
            seeds=arrays["seeds"],
            failures=arrays["failures"],
            histories=_unpack_histories(arrays["history"], arrays["epochs"]),
        )
        _check_shapes(bank)
        calibrations = tuple(
            Calibration.from_arrays(_under(arrays, f"calibration.{i}."))
            for i in range(document["calibrations"])
        )
        if document["row_weight"] == CUSTOM and row_weight is None:
            raise ModelFileError(
                "the model was conformalized with a row_weight, which is code and not stored: pass "
                "the same function as load(..., row_weight=...)"
            )
        return Ensemble(
            bank, document["coverage"], document["aggregation"], calibrations, row_weight
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ModelFileError(f"the model lacks a piece or holds a wrong one: {error!r}") from error


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _numbered(arrays: Arrays, name: str) -> list[NDArray[Any]]:
    found = _under(arrays, f"{name}.")
    return [found[str(i)] for i in range(len(found))]


def _pack_program(program: Program) -> dict[str, Any]:
    document = {field.name: getattr(program, field.name) for field in fields(program)}
    network, objective = program.network, program.objective
    document["network"] = CUSTOM
    if isinstance(network, tuple(_NETWORKS.values())):
        document["network"] = {"kind": type(network).__name__} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(network).items()
        }
    names = [name for name, known in LOSSES.items() if known == objective]
    document["objective"] = {"loss": names[0] if names else CUSTOM, "head": objective.head}
    return document


def _unpack_program(document: Mapping[str, Any], network: Any) -> Program:
    rest = dict(document)
    shape, objective = rest.pop("network"), rest.pop("objective")
    if shape != CUSTOM:
        kind = _NETWORKS[shape["kind"]]
        parameters = {k: tuple(v) if isinstance(v, list) else v for k, v in shape.items()}
        network = kind(**{k: v for k, v in parameters.items() if k != "kind"})
    elif network is None:
        raise ModelFileError(
            "the model has a network of its maker's own, which is code and not stored: pass the "
            "same factory as load(..., network=...)"
        )
    name = objective["loss"]
    loss = Objective(_untrainable, objective["head"]) if name == CUSTOM else LOSSES[name]
    return Program(network, loss, **rest)


def _untrainable(*_: Any, **__: Any) -> Any:
    raise ValueError(
        "the loss of this model is code and was not stored: set the parameter loss to train further"
    )


def _unpack_histories(measures: NDArray[Any], epochs: NDArray[Any]) -> list[NDArray[np.void]]:
    histories = []
    for part in np.split(measures, np.cumsum(epochs)[:-1]):
        history = np.empty(len(part), dtype=HISTORY_TYPE)
        history["epoch"] = np.arange(1, len(part) + 1)
        for name, column in zip(_MEASURES, part.T, strict=True):
            history[name] = column
        histories.append(history)
    return histories


def _check_shapes(bank: Bank) -> None:

    expected = [(len(bank), *leaf.shape) for leaf in jax.tree.leaves(bank.program.weights)]
    found = [leaf.shape for leaf in bank.weights]
    if expected != found:
        raise ModelFileError(
            f"the weights do not fit the network: its arrays are {expected}, the model has {found}"
        )
