"""A fitted model as JSON and arrays, and back. Code is never stored, only asked for again."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import NoneType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from calipers.bank import HISTORY_TYPE, Bank, BankPoints, Program, Scaling, Upgraded
from calipers.calibration import Calibration
from calipers.ensemble import Ensemble
from calipers.networks import MLP, Around, EmbeddedMLP
from calipers.objectives import LOSSES, Objective
from calipers.storage import ModelFileError

Arrays = dict[str, NDArray[Any]]

CUSTOM = {"custom": True}
"""Stands in a document for a function of the user's own."""

_NETWORKS: dict[str, Any] = {kind.__name__: kind for kind in (MLP, EmbeddedMLP, Around)}
_MEASURES = [name for name in HISTORY_TYPE.names or () if name != "epoch"]


def pack_ensemble(ensemble: Ensemble) -> tuple[dict[str, Any], Arrays]:
    """An ensemble as a document and arrays."""
    bank = ensemble.bank
    arrays: Arrays = {}
    for i, calibration in enumerate(ensemble.calibrations):
        for name, array in calibration.to_arrays().items():
            arrays[f"calibration.{i}.{name}"] = array
    document: dict[str, Any] = {
        "coverage": float(ensemble.coverage),
        "aggregation": ensemble.aggregation,
        "calibrations": len(ensemble.calibrations),
        "row_weight": None if ensemble.row_weight is None else CUSTOM,
        "program": _pack_program(bank.program),
        "points": None,
    }
    if isinstance(bank, Upgraded):
        if isinstance(bank.points, BankPoints):
            document["points"] = _pack_program(bank.points.bank.program)
            parts = _pack_bank(bank.points.bank)
        else:
            document["points"], parts = CUSTOM, bank.points.to_arrays()
        arrays |= {f"points.{name}": array for name, array in parts.items()}
        bank = bank.heads
    return document, arrays | _pack_bank(bank)


def unpack_ensemble(
    document: Mapping[str, Any],
    arrays: Arrays,
    *,
    network: Any = None,
    row_weight: Any = None,
    points: Any = None,
) -> Ensemble:
    """The ensemble that ``pack_ensemble`` took apart.

    Raises
    ------
    ModelFileError
        If pieces are missing or do not fit together, or if the model has a network of the user's
        own and none is given.
    """
    try:
        bank = _unpack_bank(_unpack_program(document["program"], network), arrays)
        given = document.get("points")
        known = given and _unpack_points(given, _under(arrays, "points."), network, points)
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
            Upgraded(known, bank) if known else bank,
            document["coverage"],
            document["aggregation"],
            calibrations,
            row_weight,
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ModelFileError(f"the model lacks a piece or holds a wrong one: {error!r}") from error


def _pack_bank(bank: Bank) -> Arrays:
    arrays: Arrays = {f"weights.{i}": leaf for i, leaf in enumerate(bank.weights)}
    for name, scaling in (("scaling", bank.scaling), ("units", bank.units)):
        for field, value in scaling._asdict().items():
            arrays[f"{name}.{field}"] = np.asarray(value, dtype=np.float64)
    for name in ("numbers", "seeds", "failures"):
        arrays[name] = getattr(bank, name)
    arrays["epochs"] = np.array([len(history) for history in bank.histories])
    whole = np.concatenate(bank.histories)
    arrays["history"] = np.stack([whole[name] for name in _MEASURES], axis=1)
    return arrays


def _unpack_bank(program: Program, arrays: Arrays) -> Bank:
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
    return bank


def _unpack_points(document: Any, arrays: Arrays, network: Any, points: Any) -> Any:
    if document != CUSTOM:
        return BankPoints(_unpack_bank(_unpack_program(document, network), arrays))
    if points is None:
        raise ModelFileError(
            "the points of the model come from a network of PyTorch, which is code and not stored: "
            "load it by calipers.torch.load(folder, network)"
        )
    return points.with_arrays(arrays)


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _numbered(arrays: Arrays, name: str) -> list[NDArray[Any]]:
    found = _under(arrays, f"{name}.")
    return [found[str(i)] for i in range(len(found))]


def _pack_program(program: Program) -> dict[str, Any]:
    document = {field.name: getattr(program, field.name) for field in fields(program)}
    objective = program.objective
    document["network"] = _pack_network(program.network)
    names = [name for name, known in LOSSES.items() if known.loss is objective.loss]
    document["objective"] = {"loss": names[0] if names else CUSTOM, "head": objective.head}
    return document


def _pack_network(network: Any) -> Any:
    if not isinstance(network, tuple(_NETWORKS.values())):
        return network if isinstance(network, (int, float, str, NoneType)) else CUSTOM
    parts = {
        name: list(value) if isinstance(value, tuple) else _pack_network(value)
        for name, value in vars(network).items()
    }
    return {"kind": type(network).__name__} | parts


def _unpack_program(document: Mapping[str, Any], network: Any) -> Program:
    rest = dict(document)
    shape, objective = rest.pop("network"), rest.pop("objective")
    name = objective["loss"]
    known = Objective(_untrainable) if name == CUSTOM else LOSSES[name]
    loss = replace(known, head=objective["head"])
    return Program(_unpack_network(shape, network), loss, **rest)


def _unpack_network(shape: Any, network: Any) -> Any:
    if not isinstance(shape, Mapping):
        return tuple(shape) if isinstance(shape, list) else shape
    if shape != CUSTOM:
        parts = {k: _unpack_network(v, network) for k, v in shape.items() if k != "kind"}
        return _NETWORKS[shape["kind"]](**parts)
    if network is None:
        raise ModelFileError(
            "the model has a network of its maker's own, which is code and not stored: pass the "
            "same factory as load(..., network=...)"
        )
    return network


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
