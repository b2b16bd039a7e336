"""A fitted model as JSON and arrays, and back. Code is never stored, only asked for again."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from types import NoneType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from calipers._text import plain
from calipers.bank import HISTORY_TYPE, Bank, BankPoints, Program, Scaling, Upgraded
from calipers.calibration import CALIBRATIONS, Calibrator
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.networks import Around, DenseFactory
from calipers.objectives import LOSSES, Objective
from calipers.storage import ModelFileError
from calipers.training import SHORTHANDS

Arrays = dict[str, NDArray[Any]]

CUSTOM = {"custom": True}
"""Stands in a document for a function of the user's own."""

_NETWORKS: dict[str, Any] = {kind.__name__: kind for kind in (DenseFactory, Around)}
_MEASURES = [name for name in HISTORY_TYPE.names or () if name != "epoch"]


def ensemble_to_dict(ensemble: Ensemble) -> tuple[dict[str, Any], Arrays]:
    """An ensemble as a document and arrays."""
    bank = ensemble.bank
    arrays: Arrays = {}
    for i, calibration in enumerate(ensemble.calibrations):
        for name, array in calibration.to_arrays().items():
            arrays[f"calibration.{i}.{name}"] = array
    document: dict[str, Any] = {
        "coverage": float(ensemble.coverage),
        "aggregation": ensemble.aggregation,
        "calibrations": [calibration.kind for calibration in ensemble.calibrations],
        "row_weight": CUSTOM if any(c.row_weight for c in ensemble.calibrations) else None,
        "program": _program_to_dict(bank.program),
        "points": None,
    }
    if isinstance(bank, Upgraded):
        if isinstance(bank.points, BankPoints):
            document["points"] = _program_to_dict(bank.points.bank.program)
            parts = _bank_to_arrays(bank.points.bank)
        else:
            document["points"], parts = CUSTOM, bank.points.to_arrays()
        arrays |= {f"points.{name}": array for name, array in parts.items()}
        bank = bank.heads
    return document, arrays | _bank_to_arrays(bank)


def ensemble_from_dict(
    document: Mapping[str, Any],
    arrays: Arrays,
    *,
    network: Any = None,
    row_weight: Any = None,
    points: Any = None,
) -> Ensemble:
    """The ensemble that ``ensemble_to_dict`` took apart.

    Raises
    ------
    ModelFileError
        If pieces are missing or do not fit together, or if the model has a network of the user's
        own and none is given.
    """
    try:
        bank = _bank_from_arrays(_program_from_dict(document["program"], network), arrays)
        given = document.get("points")
        known = given and _points_from_dict(given, _under(arrays, "points."), network, points)
        calibrations = calibrations_from_dict(document, arrays)
        if document["row_weight"] == CUSTOM and row_weight is None:
            raise ModelFileError(
                "the model was conformalized with a row_weight, which is code and not stored: pass "
                "the same function as load(..., row_weight=...)"
            )
        if row_weight is not None:
            calibrations = (*calibrations[:-1], calibrations[-1].with_row_weight(row_weight))
        return Ensemble(
            Upgraded(known, bank) if known else bank,
            document["coverage"],
            document["aggregation"],
            calibrations,
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ModelFileError(f"the model lacks a piece or holds a wrong one: {error!r}") from error


def calibrations_from_dict(document: Mapping[str, Any], arrays: Arrays) -> tuple[Calibrator, ...]:
    """The calibrations of a stored ensemble."""
    kinds = document["calibrations"]
    if isinstance(kinds, int):  # of version 0.1, which knew one kind
        kinds = ["map"] * kinds
    return tuple(
        CALIBRATIONS[kind].from_arrays(_under(arrays, f"calibration.{i}."))
        for i, kind in enumerate(kinds)
    )


def _bank_to_arrays(bank: Bank) -> Arrays:
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


def _bank_from_arrays(program: Program, arrays: Arrays) -> Bank:
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
        histories=_histories_from_arrays(arrays["history"], arrays["epochs"]),
        out_of_time=arrays.get("out_of_time", np.zeros(len(arrays["seeds"]), bool)),
    )
    _check_shapes(bank)
    return bank


def _points_from_dict(document: Any, arrays: Arrays, network: Any, points: Any) -> Any:
    if document != CUSTOM:
        return BankPoints(_bank_from_arrays(_program_from_dict(document, network), arrays))
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


def _program_to_dict(program: Program) -> dict[str, Any]:
    document = {field.name: getattr(program, field.name) for field in fields(program)}
    document["network"] = _network_to_dict(program.network)
    names = [name for name, known in LOSSES.items() if known is program.objective]
    document["objective"] = {"loss": names[0] if names else CUSTOM, "head": program.output.name}
    del document["head"]
    return document


def _network_to_dict(network: Any) -> Any:
    if not isinstance(network, tuple(_NETWORKS.values())):
        return network if isinstance(network, (int, float, str, NoneType)) else CUSTOM
    parts = {
        name: list(value) if isinstance(value, tuple) else _network_to_dict(value)
        for name, value in vars(network).items()
    }
    return {"kind": type(network).__name__} | parts


def _program_from_dict(document: Mapping[str, Any], network: Any) -> Program:
    rest = dict(document)
    shape, objective = rest.pop("network"), rest.pop("objective")
    name, head = objective["loss"], objective["head"]
    known = _Unknown if name == CUSTOM else LOSSES[name]
    if head not in HEADS:
        raise ModelFileError(f"the model has the head {head!r}, known are {sorted(HEADS)}")
    own = "" if head == known.head else head
    return Program(_network_from_dict(shape, network), known, head=own, **rest)


def _network_from_dict(shape: Any, network: Any) -> Any:
    if not isinstance(shape, Mapping):
        return tuple(shape) if isinstance(shape, list) else shape
    if shape != CUSTOM:
        parts = {k: _network_from_dict(v, network) for k, v in shape.items() if k != "kind"}
        kind = shape["kind"]
        if kind in ("MLP", "EmbeddedMLP"):  # of version 0.1
            parts["hidden_layers"] = parts.pop("hidden")
            parts["frequencies"] = parts.pop("waves", None)
            kind = "DenseFactory"
        return _NETWORKS[kind](**parts)
    if network is None:
        raise ModelFileError(
            "the model has a network of its maker's own, which is code and not stored: pass the "
            "same factory as load(..., network=...)"
        )
    return network


class _Unknown(Objective):
    """Stands for a loss of one's own, whose code is not stored."""

    @staticmethod
    def loss(*_: Any, **__: Any) -> Any:
        """Refuse."""
        raise ValueError(
            "the loss of this model is code and was not stored: set the parameter loss to train "
            "further"
        )


def _histories_from_arrays(measures: NDArray[Any], epochs: NDArray[Any]) -> list[NDArray[np.void]]:
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


def parameters_to_dict(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator as JSON; objects of the user's own become a mark."""
    return {
        name: plain(value, name, partial(_nested, SHORTHANDS.get(name, {}).values()))
        for name, value in parameters.items()
    }


def parameters_from_dict(document: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the constructor takes them; what was not stored is left out."""
    found = {}
    for name, value in _current(document).items():
        if value == CUSTOM:
            continue
        if isinstance(value, Mapping):
            kinds = {kind.__name__: kind for kind in SHORTHANDS[name].values()}
            own = {k: _as_tuple(v) for k, v in value.items() if k != "kind"}
            found[name] = kinds[value["kind"]](**own)
        else:
            found[name] = _as_tuple(value)
    return found


def _nested(kinds: Any, value: Any) -> Any:
    """A nested object of a known kind as JSON, a mark for another."""
    if type(value) not in kinds:
        return CUSTOM
    return {"kind": type(value).__name__} | parameters_to_dict(value.get_params(deep=False))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Parameters of version 0.1 that have moved into nested objects or are no more.
_NETWORK = {"hidden_layers": "hidden_layers", "activation": "activation", "waves": "frequencies"}
_OPTIMIZER = (
    "learning_rate",
    "schedule",
    "decay_rate",
    "decay_steps",
    "weight_decay",
    "averaging",
    "clip_norm",
    "adversarial_step",
)
_LOSS = ("coverage_weight", "point_weight", "crossing_weight", "softness")


def _current(document: Mapping[str, Any]) -> dict[str, Any]:
    """Stored parameters, those of version 0.1 under the names they have now."""
    rest = dict(document)
    if "waves" not in rest:
        return rest
    rest.pop("retries")
    network = {new: rest.pop(old) for old, new in _NETWORK.items()}
    optimizer = {name: rest.pop(name) for name in _OPTIMIZER}
    numbers = {name: rest.pop(name) for name in _LOSS}
    if rest["network"] is None:
        rest["network"] = {"kind": "MLP"} | network
    rest["optimizer"] = {"kind": "Adam"} | optimizer
    if isinstance(rest["loss"], str):
        kind = LOSSES[rest["loss"]]
        if kind is LOSSES["density"]:
            numbers["crps_weight"] = numbers["point_weight"]
        own = {k: v for k, v in numbers.items() if k in kind().get_params() and v is not None}
        rest["loss"] = {"kind": kind.__name__} | own
    return rest
