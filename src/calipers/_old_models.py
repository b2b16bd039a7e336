"""Models of version 0.1: what their documents call by another name, under that of now."""

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
    """Stored parameters, those of version 0.1 under the names they have now."""
    record({}, rest=anything)(document, "parameters")
    rest = dict(document)
    if "waves" not in rest:
        return rest
    old = (*_NETWORK, *_OPTIMIZER, *_LOSS, "retries", "network", "loss")
    record(dict.fromkeys(old, anything), rest=anything)(rest, "parameters")
    rest.pop("retries")
    network = {new: rest.pop(old) for old, new in _NETWORK.items()}
    optimizer = {name: rest.pop(name) for name in _OPTIMIZER}
    numbers = {name: rest.pop(name) for name in _LOSS}
    if rest["network"] is None:
        rest["network"] = {"kind": "MLP"} | network
    rest["optimizer"] = {"kind": "Adam"} | optimizer
    if isinstance(rest["loss"], str):
        one_of(*LOSSES)(rest["loss"], "parameters.loss")
        kind = LOSSES[rest["loss"]]
        if kind is LOSSES["density"]:
            numbers["crps_weight"] = numbers["point_weight"]
        own = {k: v for k, v in numbers.items() if k in kind().get_params() and v is not None}
        rest["loss"] = {"kind": kind.__name__} | own
    return rest


def current_ensemble(document: Any) -> Any:
    """Document of an ensemble, that of version 0.1 under the names of now."""
    if not isinstance(document, Mapping):
        refuse("ensemble", "an object", document)
    found = {"points": None, **document}
    kinds = found.get("calibrations")
    if type(kinds) is int:  # of version 0.1, which knew one kind
        whole(0, 100)(kinds, "ensemble.calibrations")
        found["calibrations"] = ["map"] * kinds
    for name in ("program", "points"):
        program = found.get(name)
        if isinstance(program, Mapping) and isinstance(program.get("network"), Mapping):
            found[name] = {**program, "network": _current_network(program["network"])}
    return found


def _current_network(network: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(network)
    if found.get("kind") in ("MLP", "EmbeddedMLP"):
        for old, new in (("hidden", "hidden_layers"), ("waves", "frequencies")):
            if old in found:
                found[new] = found.pop(old)
        found["kind"] = "DenseFactory"
    elif found.get("kind") == "Around" and isinstance(found.get("network"), Mapping):
        inner = found["network"]  # of which it may be no more than one
        found["network"] = inner if inner.get("kind") == "Around" else _current_network(inner)
    return found
