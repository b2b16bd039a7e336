"""Translate the documents of models of version 0.1 to the current names."""

from collections.abc import Mapping
from typing import Any

from calipers._schema import anything, one_of, record, refuse, whole
from calipers.objectives import LOSSES
from calipers.optimizers import Adam

# Parameters that have moved into nested objects.
_NETWORK = {"hidden_layers": "hidden_layers", "activation": "activation", "waves": "frequencies"}
_OPTIMIZER = tuple(Adam().get_params())
_LOSS = ("coverage_weight", "point_weight", "crossing_weight", "softness")


def current_parameters(document: Any) -> dict[str, Any]:
    """Return stored parameters with those of version 0.1 under their current names."""
    record({}, rest=anything)(document, "parameters")
    params = dict(document)
    if "waves" not in params:
        return params
    old = (*_NETWORK, *_OPTIMIZER, *_LOSS, "retries", "network", "loss")
    record(dict.fromkeys(old, anything), rest=anything)(params, "parameters")
    params.pop("retries")
    network = {new: params.pop(old) for old, new in _NETWORK.items()}
    optimizer = {name: params.pop(name) for name in _OPTIMIZER}
    numbers = {name: params.pop(name) for name in _LOSS}
    if params["network"] is None:
        params["network"] = {"kind": "MLP"} | network
    params["optimizer"] = {"kind": "Adam"} | optimizer
    if isinstance(params["loss"], str):
        one_of(*LOSSES)(params["loss"], "parameters.loss")
        kind = LOSSES[params["loss"]]
        if kind is LOSSES["density"]:
            numbers["crps_weight"] = numbers["point_weight"]
        loss_params = {
            k: v for k, v in numbers.items() if k in kind().get_params() and v is not None
        }
        params["loss"] = {"kind": kind.__name__} | loss_params
    return params


def current_ensemble(document: object) -> dict[str, Any]:
    """Return the document of an ensemble with current names."""
    if not isinstance(document, Mapping):
        refuse("ensemble", "an object", document)
    current = {"points": None, **document}
    kinds = current.get("calibrations")
    if type(kinds) is int:  # version 0.1 had one kind of calibration
        whole(0, 100)(kinds, "ensemble.calibrations")
        current["calibrations"] = ["map"] * kinds
    for name in ("program", "points"):
        program = current.get(name)
        if isinstance(program, Mapping) and isinstance(program.get("network"), Mapping):
            current[name] = {**program, "network": _current_network(program["network"])}
    return current


def _current_network(network: Mapping[str, Any]) -> dict[str, Any]:
    current = dict(network)
    if current.get("kind") in ("MLP", "EmbeddedMLP"):
        for old, new in (("hidden", "hidden_layers"), ("waves", "frequencies")):
            if old in current:
                current[new] = current.pop(old)
        current["kind"] = "DenseFactory"
    elif current.get("kind") == "Around" and isinstance(current.get("network"), Mapping):
        inner = current["network"]  # an Around within an Around is invalid: leave it to the schema
        current["network"] = inner if inner.get("kind") == "Around" else _current_network(inner)
    return current
