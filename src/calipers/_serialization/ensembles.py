"""Convert an ensemble to JSON and arrays, and back. Code is not stored; loading asks for it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from calipers._arrays import FloatArray
from calipers._schema import SchemaError, arrays_under, refuse
from calipers._serialization import banks
from calipers._serialization.model_schema import COLUMN, CUSTOM, check_ensemble
from calipers._serialization.old_models import current_ensemble
from calipers.aggregation import AGGREGATIONS
from calipers.bank import BankPoints, ColumnPoints, Points, Upgraded
from calipers.calibration import (
    CALIBRATIONS,
    AdaptiveCoverage,
    Calibrator,
    DensityRatio,
)
from calipers.distributions import Support, TargetMap
from calipers.ensemble import Ensemble
from calipers.networks import Network

_LAST = 40.0  # normal score beyond which probabilities are 0 in double precision


def ensemble_to_dict(ensemble: Ensemble) -> tuple[dict[str, Any], banks.Arrays]:
    """Return an ensemble as a document and arrays."""
    bank = ensemble.bank
    arrays: banks.Arrays = {}
    for i, calibration in enumerate(ensemble.calibrations):
        for name, array in calibration.to_arrays().items():
            arrays[f"calibration.{i}.{name}"] = array
    document: dict[str, Any] = {
        "coverage": float(ensemble.coverage),
        "aggregation": ensemble.aggregation,
        "calibrations": [calibration.kind for calibration in ensemble.calibrations],
        "row_weight": CUSTOM if any(map(_has_code, ensemble.calibrations)) else None,
        "program": banks.program_to_dict(bank.program),
        "points": None,
    }
    if not ensemble.support.is_line:
        document["support"] = ensemble.support.to_dict()
    if ensemble.target_map is not None:
        document["target_map"] = ensemble.target_map.to_dict()
    if isinstance(bank, Upgraded):
        if isinstance(bank.points, BankPoints):
            document["points"] = banks.program_to_dict(bank.points.bank.program)
            parts = banks.bank_to_arrays(bank.points.bank)
        elif isinstance(bank.points, ColumnPoints):
            document["points"], parts = COLUMN, {}
        else:
            document["points"], parts = CUSTOM, bank.points.to_arrays()
        arrays |= {f"points.{name}": array for name, array in parts.items()}
        bank = bank.heads
    return document, arrays | banks.bank_to_arrays(bank)


def ensemble_from_dict(
    document: Mapping[str, Any],
    arrays: banks.Arrays,
    *,
    network: Network | None = None,
    row_weight: Callable[[FloatArray], FloatArray] | None = None,
    points: Any = None,
    largest: float = 0.0,
) -> Ensemble:
    """Rebuild the ensemble from the results of ``ensemble_to_dict``.

    ``largest`` is the largest absolute target. Raises ``SchemaError`` if parts are missing or
    inconsistent, ``MissingCodeError`` if the model needs code of the user that is not given.
    """
    document = current_ensemble(document)
    check_ensemble(document)
    banks.check_bank(document["program"], arrays)
    if document["points"] not in (None, COLUMN, CUSTOM):
        banks.check_bank(document["points"], arrays_under(arrays, "points."))
    calibrations = calibrations_from_dict(document, arrays)
    stretch = _LAST if calibrations else 1.0
    for calibration in reversed(calibrations):
        stretch = max(calibration.reach(stretch), 1.0)
    bank = banks.bank_from_arrays(document["program"], arrays, network, largest, stretch)
    source = document["points"] and _points_from_dict(
        document["points"], arrays_under(arrays, "points."), network, points, largest, len(bank)
    )
    if AGGREGATIONS[document["aggregation"]].single and len(bank) > 1:
        refuse("ensemble.aggregation", "one for several networks", document["aggregation"])
    if document["row_weight"] == CUSTOM and row_weight is None:
        raise banks.MissingCodeError(
            "the model was conformalized with a row_weight, which is code and not stored: pass "
            "the same function as load(..., row_weight=...)"
        )
    if row_weight is not None and calibrations:
        calibrations = _with_row_weight(calibrations, row_weight)
    return Ensemble(
        Upgraded(source, bank) if source else bank,
        document["coverage"],
        document["aggregation"],
        calibrations,
        support=support_from_dict(document),
        target_map=TargetMap(**document["target_map"]) if "target_map" in document else None,
    )


def support_from_dict(document: Mapping[str, Any]) -> Support:
    """The support of a stored ensemble; without one, every number is possible."""
    return Support.from_dict(document["support"]) if "support" in document else Support()


def _with_row_weight(
    calibrations: tuple[Calibrator, ...], row_weight: Callable[[FloatArray], FloatArray]
) -> tuple[Calibrator, ...]:
    """Give these weights of new rows to the last calibration that was not learned online."""
    last = len(calibrations) - 1
    last -= last > 0 and calibrations[last].kind == AdaptiveCoverage.kind
    weighted: Any = calibrations[last]
    try:
        weighted = replace(weighted, row_weight=row_weight)
    except TypeError:
        raise ValueError(f"a calibration {weighted.kind!r} takes no row_weight") from None
    return (*calibrations[:last], weighted, *calibrations[last + 1 :])


def _has_code(calibration: Calibrator) -> bool:
    weight = calibration.row_weight
    return weight is not None and not isinstance(weight, DensityRatio)


def calibrations_from_dict(
    document: Mapping[str, Any], arrays: banks.Arrays
) -> tuple[Calibrator, ...]:
    """The calibrations of a stored ensemble."""
    calibrations = []
    for i, kind in enumerate(current_ensemble(document)["calibrations"]):
        try:
            parts = arrays_under(arrays, f"calibration.{i}.")
            calibrations.append(CALIBRATIONS[kind].from_arrays(parts))
        except (KeyError, TypeError) as error:  # from a user's calibration
            problem = f"the calibration lacks an array or has a wrong one: {error!r}"
            raise SchemaError(problem) from None
    return tuple(calibrations)


def _points_from_dict(
    document: Any,
    arrays: banks.Arrays,
    network: Network | None,
    points: Any,
    largest: float,
    networks: int,
) -> BankPoints | ColumnPoints | Points:
    if document == COLUMN:
        return ColumnPoints()
    if document != CUSTOM:
        bank = banks.bank_from_arrays(document, arrays, network, largest)
        if len(bank) != networks:
            refuse("array 'points.seeds'", f"of {networks} networks, as the heads", len(bank))
        return BankPoints(bank)
    if not hasattr(points, "with_arrays"):
        raise banks.MissingCodeError(
            "the point predictions of the model come from a PyTorch network, which is code and not "
            "stored: load it by calipers.torch.load(folder, network)"
        )
    return points.with_arrays(arrays)
