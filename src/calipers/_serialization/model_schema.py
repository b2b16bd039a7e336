"""The schema of a stored model, checked before anything is built from it.

A model folder is untrusted data, checksums included. So its sizes are bounded, its parts must be
consistent, and its numbers must not lead to predictions that are not finite.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from calipers._checks import COVERAGES, MAX_TARGET
from calipers._schema import (
    Check,
    anything,
    flag,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    record,
    refuse,
    text,
    whole,
)
from calipers.aggregation import AGGREGATIONS
from calipers.bank import SCHEDULES
from calipers.calibration import CALIBRATIONS
from calipers.distributions import TARGET_MAPS
from calipers.heads import HEADS
from calipers.networks import ACTIVATIONS, MAX_LAYERS, MAX_UNITS
from calipers.objectives import LOSSES, MAX_COMPONENTS
from calipers.preprocessing import KINDS

CUSTOM = {"custom": True}
"""Stands in a document for a function of the user."""

COLUMN = {"kind": "column"}
"""Stands for point predictions of a regressor, which are the last input of the rows."""

MAX_INPUTS, MAX_NETWORKS = 10**6, 10**4
"""Largest numbers of inputs and networks that are loaded."""

_LAYERS = list_of(whole(1, MAX_UNITS), most=MAX_LAYERS)
_OUTPUT = whole(0, MAX_UNITS)


def custom_or(inner: Check) -> Check:
    """Also accept the mark of a user's function."""

    def check(value: object, place: str) -> None:
        if value != CUSTOM:
            inner(value, place)

    return check


def _network(value: object, place: str) -> None:
    dense = record(
        {"kind": one_of("DenseFactory"), "hidden_layers": _LAYERS}
        | {"activation": one_of(*ACTIVATIONS)},
        {
            "frequencies": optional(whole(0, 10**5)),
            "columns": optional(list_of(whole(0, MAX_INPUTS))),
            "spread": number(0, 1e6),
            "amplitude": number(0, 1e6),
            "clip": number(1e-3, 1e6),
            "bins": whole(0, 10**5),
            "skip": list_of(_OUTPUT),
            "smooth": flag,
        },
    )
    around = record(
        {"kind": one_of("Around"), "network": custom_or(dense), "point_at": _OUTPUT}
        | {"reach": number(0, 1e6)}
    )
    is_around = isinstance(value, dict) and value.get("kind") == "Around"
    custom_or(around if is_around else dense)(value, place)


def check_ensemble(document: Any) -> None:
    """Refuse a document that does not describe an ensemble."""
    program = record(
        {
            "network": _network,
            "objective": record({"loss": custom_or(one_of(*LOSSES)), "head": one_of(*HEADS)}),
            "in_size": whole(1, MAX_INPUTS),
            "batch_size": whole(1, 2**31),
            "schedule": one_of(*SCHEDULES),
            "clipping": flag,
            "averaging": flag,
            "adversarial": flag,
        },
        {"components": whole(1, MAX_COMPONENTS)},
    )
    record(
        {
            "coverage": number(*COVERAGES),
            "aggregation": one_of(*AGGREGATIONS),
            "calibrations": list_of(one_of(*CALIBRATIONS), most=100),
            "row_weight": lambda value, place: (
                None if value in (None, CUSTOM) else refuse(place, "null", value)
            ),
            "program": program,
            "points": lambda value, place: (
                None if value == COLUMN else custom_or(optional(program))(value, place)
            ),
        },
        {"support": check_support, "target_map": _TARGET_MAP},
    )(document, "ensemble")
    _check_parts(document)


_TARGET_MAP = record(
    {"kind": one_of(*TARGET_MAPS), "unit": number(1e-100, 1e100)},
    {"low": number(-800, 800), "high": number(-800, 800)},
)
_PLACE = number(-MAX_TARGET, MAX_TARGET)
_KNOTS = list_of(_PLACE, most=1000)
_SUPPORT = record(
    {
        "low": optional(_PLACE),
        "high": optional(_PLACE),
        "step": number(0, MAX_TARGET),
        "origin": _PLACE,
        "decimals": whole(0, 15),
        "latent": _KNOTS,
        "observed": _KNOTS,
        "given": flag,
    },
    {"values": _KNOTS, "atoms": _KNOTS},
)


def check_support(document: Any, place: str) -> None:
    """Refuse a support that is not an increasing map onto a range."""
    _SUPPORT(document, place)
    low, high = document["low"], document["high"]
    if low is not None and high is not None and not low < high:
        refuse(f"{place}.high", f"above {low:g}", high)
    if len(document["latent"]) != len(document["observed"]):
        refuse(f"{place}.observed", "as long as latent", document["observed"])
    with np.errstate(all="ignore"):
        steps = [np.diff(np.array(document[name], np.float64)) for name in ("latent", "observed")]
        slopes = steps[1] / steps[0]
    atoms = np.array(document.get("atoms", []), np.float64)
    if atoms.size and (document["step"] or not (np.diff(atoms) > 0).all()):
        refuse(f"{place}.atoms", "in rising order, and empty on a lattice", document["atoms"])
    heavy = [*atoms, *(end for end in (low, high) if end is not None)]
    flat = np.isin(document["observed"][1:], heavy) & (np.arange(len(steps[1])) > 0)
    if not (steps[0] > 0).all():
        refuse(f"{place}.latent", "in rising order", document["latent"])
    if not ((steps[1] > 0) | (flat & (steps[1] == 0))).all():
        refuse(f"{place}.observed", "in rising order", document["observed"])
    if not (((slopes > 0) | (steps[1] == 0)) & (slopes < np.inf)).all():
        refuse(f"{place}.observed", "as far apart as latent, or nearly so", document["observed"])
    values = document.get("values")
    if values:
        places = np.array(document["origin"]) + np.arange(len(values)) * document["step"]
        if not np.abs(places - values).max() <= 1e-3 * document["step"]:
            refuse(f"{place}.values", "a step apart, starting at the origin", values)
    elif 0 < document["step"] < 10.0 ** -document["decimals"] * 0.99:
        refuse(f"{place}.step", "a multiple of its last decimal", document["step"])


def _check_parts(document: Mapping[str, Any]) -> None:
    """Refuse parts that are inconsistent."""
    for name in ("program", "points"):
        _check_program(document[name], f"ensemble.{name}")
    head, points = HEADS[document["program"]["objective"]["head"]], document["points"]
    network = document["program"]["network"]
    has_distribution = (
        head.has_interval and AGGREGATIONS[document["aggregation"]].gives_distribution
    )
    if document["calibrations"] and not has_distribution:
        refuse("ensemble.calibrations", "empty without a distribution", document["calibrations"])
    if document["row_weight"] and not document["calibrations"]:
        refuse("ensemble.row_weight", "null without a calibration", document["row_weight"])
    if (network.get("kind") == "Around") != (points is not None):
        refuse("ensemble.points", "present exactly if networks are of kind Around", points)
    if points is None:
        return
    if network["point_at"] != head.point_at:
        refuse("ensemble.program.network.point_at", f"{head.point_at}", network["point_at"])
    if points in (COLUMN, CUSTOM):
        return
    if points["objective"]["head"] != "point":
        refuse("ensemble.points.objective.head", "'point'", points["objective"]["head"])
    if points["in_size"] != document["program"]["in_size"]:
        refuse("ensemble.points.in_size", "that of the program", points["in_size"])


def _check_program(program: Any, place: str) -> None:
    """Refuse more components than the head supports, and columns and outputs that do not exist."""
    if program in (None, COLUMN, CUSTOM):
        return
    network, inputs = program["network"], program["in_size"]
    dense = network.get("network", network)
    columns = dense.get("columns") or []
    if max(columns, default=0) >= inputs:
        refuse(f"{place}.network.columns", f"below {inputs}, the number of inputs", max(columns))
    count = program.get("components", 1)
    try:
        size = HEADS[program["objective"]["head"]].with_components(count).size
    except ValueError:
        refuse(f"{place}.components", f"1 for the head {program['objective']['head']!r}", count)
    outputs = [network.get("point_at", 0), *dense.get("skip", [])]
    if max(outputs) >= size:
        refuse(f"{place}.network", f"of outputs below {size}, their number", max(outputs))


def _target_kind(value: Any, place: str) -> None:
    """Accept how a target is written: a kind of column, optionally with the form of its text."""
    text(value, place)
    one_of(*KINDS)(value.partition(" ")[0], place)


_COUNT = whole(0, 2**53)

ABOUT = record(
    {},
    {
        "fitted_at": text,
        "rows": _COUNT,
        "versions": mapping_of(text),
        "split": record({"seed": whole(0, 2**64), "rows": text}),
        "trees": record(
            {},
            {"rows": text, "unexplained": record(dict.fromkeys(("trees", "networks"), number(0)))},
        ),
        "time_budget": record(
            {"seconds": number(0), "planned_epochs": whole(1, 2**53), "epochs": whole(1, 2**53)}
            | dict.fromkeys(("networks", "out_of_time"), whole(0, MAX_NETWORKS))
        ),
        "source": optional(
            record(
                {},
                {"files": list_of(text), "target": text, "target_kind": optional(_target_kind)},
                rest=anything,
            )
        ),
        "watched": record(
            {"files": list_of(text), "rows": _COUNT, "alarm_at": optional(_COUNT)}
            | {"coverage": number(*COVERAGES), "counted": _COUNT, "covered": _COUNT}
            | {"recent": text},
            {"out": optional(text), "bytes": _COUNT, "place": _COUNT, "mark": text},
        ),
    },
    rest=anything,
)
"""When and on what a model was fitted, with entries that the user added."""
