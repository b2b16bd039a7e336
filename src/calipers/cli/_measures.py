"""Measures of intervals on labelled rows, as ``fit``, ``evaluate`` and ``inspect`` print them."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import typer
from numpy.typing import ArrayLike
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

from calipers import _schema as schema, metrics
from calipers._checks import COVERAGES
from calipers._evaluation import LabelledPrediction, predict_labelled
from calipers._text import counted, describe_support, listed
from calipers.calibration import RowCount, effective_rows, infinite_reason, rows_needed
from calipers.cli._printing import print_rows
from calipers.multitarget import MultiTargetRegressor, models_of
from calipers.regressor import IntervalRegressor

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # coverages of the calibration table


def measure(
    model: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    coverage: float,
    further: Sequence[float] = (),
) -> tuple[dict[str, Any], LabelledPrediction]:
    """Return a model's measures on labelled rows, as plain JSON, and the predictions.

    The predictions also have intervals of the ``further`` coverages.
    """
    labelled = predict_labelled(model, X, y, coverage=coverage, levels=(*LEVELS, *further))
    y = labelled.target
    low, high = metrics.coverage_band(len(y), coverage)
    levels = [level for level in labelled.levels.tolist() if level in (*LEVELS, coverage)]

    def at_level(level: float) -> dict[str, Any]:
        index = labelled.index_of(level)
        bounds = labelled.bounds[:, 0, index], labelled.bounds[:, 1, index]
        return {
            "coverage": level,
            "observed": metrics.coverage_rate(y, *bounds),
            "shared_rate": None if labelled.ties is None else float(labelled.covered(index).mean()),
            "mean_width": metrics.mean_width(*bounds),
        }

    table = [at_level(level) for level in levels]
    own, bounds = table[levels.index(coverage)], (labelled.lower, labelled.upper)
    measures = {
        "rows": len(y),
        "coverage": coverage,
        "coverage_rate": own["observed"],
        "by_chance": [float(low), float(high)],
        "shared_rate": own["shared_rate"],
        "mean_width": own["mean_width"],
        "interval_score": metrics.interval_score(y, *bounds, coverage=coverage),
        "rmse": root_mean_squared_error(y, labelled.point),
        "mae": mean_absolute_error(y, labelled.point),
        "calibration": table,
        "support": str(labelled.support),
        "excluded": labelled.excluded,
        "unbounded": unbounded(model, levels),
        "on_one_row": on_one_row(model, [level for level in levels if level <= coverage]),
    }
    return measures, labelled


def measure_targets(
    model: MultiTargetRegressor, X: ArrayLike, y: pd.DataFrame, coverage: float
) -> dict[str, Any]:
    """Return the measures of a multi-target model: of each target, and of joint intervals."""
    (of_each,) = model.single_coverages(coverage)
    targets, widths, inside = {}, {}, np.ones(len(y), dtype=bool)
    for name, single in zip(model.target_names_, model.models_, strict=True):
        targets[name], labelled = measure(single, X, y[name], coverage, [of_each])
        lower, upper = labelled.bounds[:, :, labelled.index_of(of_each)].T
        inside &= (lower <= labelled.target) & (labelled.target <= upper)
        widths[name] = float((upper - lower).mean())
    low, high = metrics.coverage_band(len(y), coverage)
    joint = {
        "coverage": coverage,
        "coverage_of_each": of_each,
        "coverage_rate": float(inside.mean()),
        "by_chance": [float(low), float(high)],
        "mean_width": widths,
    }
    return {"rows": len(y), "coverage": coverage, "targets": targets, "joint": joint}


def print_targets(measures: dict[str, Any]) -> None:
    """Print the result of ``measure_targets``."""
    for name, single in measures["targets"].items():
        typer.echo(f"{name}:")
        print_measures(single, name)
        typer.echo("")
    joint = measures["joint"]
    count = len(measures["targets"])
    typer.echo(
        f"All {count} together: {joint['coverage']:.0%} joint intervals, of "
        f"{joint['coverage_of_each']:.1%} each, contain {joint['coverage_rate']:.1%} of the rows"
    )
    _print_band(measures["rows"], joint["by_chance"])


def _print_band(rows: int, by_chance: Sequence[float]) -> None:
    """Print the range in which the coverage rate of calibrated intervals varies by chance."""
    low, high = by_chance
    typer.echo(f"    (with {counted(rows, 'row')}, chance alone gives {low:.1%} to {high:.1%})")


def unbounded(
    model: IntervalRegressor | MultiTargetRegressor, coverages: Sequence[float]
) -> dict[str, Any] | None:
    """Return the coverages whose intervals are infinite for lack of calibration rows.

    The result also has the ``rows_needed`` for each, the number of calibration ``rows`` and their
    ``effective_rows``; it is None if all intervals are finite.
    """
    last = (c for single in models_of(model) for c in single.ensemble_.calibrations[-1:])
    for calibration in last:
        infinite = [c for c in coverages if not calibration.supports(0.5 * (1.0 - c))]
        if infinite:
            return {
                "coverages": infinite,
                "rows_needed": [rows_needed(c) for c in infinite],
                "rows": calibration.n_rows,
                "effective_rows": effective_rows(calibration),
            }
    return None


def describe_unbounded(unbounded: dict[str, Any] | None) -> str:
    """Return a sentence on why intervals are infinite, or ``""`` if none is.

    >>> describe_unbounded({"coverages": [0.95, 0.99], "rows": 9, "effective_rows": 7})[:74]
    'intervals of 95% and 99% are infinite: it takes 39 and 199 rows to calibra'
    """
    if not unbounded:
        return ""
    rows = unbounded["rows"]
    # "worth" is the name in models saved by earlier versions.
    effective = unbounded.get("effective_rows", unbounded.get("worth", rows))
    return infinite_reason(unbounded["coverages"], RowCount(rows, effective))


def on_one_row(model: IntervalRegressor, coverages: Sequence[float]) -> list[float]:
    """Return the coverages whose finite intervals depend on the most extreme calibration row."""
    calibrations = model.ensemble_.calibrations[-1:]
    tails = {coverage: 0.5 * (1.0 - coverage) for coverage in coverages}
    return [
        coverage
        for coverage, tail in tails.items()
        if any(c.supports(tail) and not c.supports(0.5 * tail) for c in calibrations)
    ]


def is_measured(found: object) -> TypeGuard[dict[str, Any]]:
    """Whether an object read from a model folder has the form of what ``measure`` returns."""
    count, number = schema.whole(0, 2**53), schema.optional(schema.number())
    fraction, level = schema.number(0, 1), schema.number(*COVERAGES)
    tied = {"shared_rate": schema.optional(fraction)}
    levels = {"coverage": fraction, "observed": fraction, "mean_width": number}
    few = {"coverages": schema.list_of(level, least=1), "rows_needed": schema.anything}
    required = {"rows": count, "coverage": fraction, "coverage_rate": fraction}
    required |= dict.fromkeys(("mean_width", "interval_score", "rmse", "mae"), number)
    required["by_chance"] = schema.list_of(fraction, least=2, most=2)
    required["calibration"] = schema.list_of(schema.record(levels, tied, rest=schema.anything))
    effective = dict.fromkeys(("effective_rows", "worth"), schema.number())
    unbounded = schema.record({**few, "rows": count}, effective)
    further = {"copies": schema.optional(count), "unbounded": schema.optional(unbounded)}
    further |= {"support": schema.text, "excluded": count}
    further |= {"on_one_row": schema.list_of(fraction), **tied}
    try:
        schema.record(required, further, rest=schema.anything)(found, "evaluation")
    except schema.SchemaError:
        return False
    return True


def _width(value: float | None) -> float:
    """Return a width; JSON from a model folder has None for infinity."""
    return float("inf") if value is None else value


def _print_levels(levels: Sequence[dict[str, Any]]) -> None:
    """Print the observed coverage at each level."""
    print_rates([("coverage", [f"{row['coverage']:.0%}" for row in levels])], "observed", levels)


def print_rates(
    first: Sequence[tuple[str, list[Any]]], rate: str, rows: Sequence[dict[str, Any]]
) -> None:
    """Print the first columns, coverage, which is also corrected for any ties, and width."""
    shared = [row["shared_rate"] for row in rows if row.get("shared_rate") is not None]
    columns = [
        *first,
        ("observed", [f"{row[rate]:.1%}" for row in rows]),
        *([("corrected", [f"{each:.1%}" for each in shared])] if len(shared) == len(rows) else []),
        ("mean width", [_width(row["mean_width"]) for row in rows]),
    ]
    names, cells = zip(*columns, strict=True)
    print_rows(names, list(zip(*cells, strict=True)))


def print_measures(measures: dict[str, Any], target: str) -> None:
    """Print the result of ``measure``."""
    coverage, rate = measures["coverage"], measures["coverage_rate"]
    typer.echo(f"  {coverage:.0%} intervals contain {rate:.1%} of the rows")
    shared = measures.get("shared_rate")
    if shared is not None:
        typer.echo(
            "    (targets equal to an end of their interval inflate this; corrected for them: "
            f"{shared:.1%})"
        )
    _print_band(measures["rows"], measures["by_chance"])
    if excluded := measures.get("excluded"):
        typer.echo(f"  {describe_support(target, measures.get('support', ''), excluded)}")
    print_rows(
        ("", f"in units of {target}"),
        [
            ("mean width", _width(measures["mean_width"])),
            ("interval score", _width(measures["interval_score"])),
            ("root mean squared error", measures["rmse"]),
            ("mean absolute error", measures["mae"]),
        ],
    )
    typer.echo("")
    _print_levels(measures["calibration"])
    if few := measures.get("on_one_row"):
        shown = listed(f"{100 * level:.4g}%" for level in few)
        typer.echo(
            f"  {shown} intervals rest on one calibration row at each end: a single outlier makes "
            "all of them wide"
        )
    if why := describe_unbounded(measures.get("unbounded")):
        typer.echo(f"  {why}")
