"""How good intervals are on labelled rows: measured once, for ``fit`` and ``evaluate``."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import typer

from calipers.cli._printing import print_rows, show

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Coverages of the calibration table."""

_MOST_GROUPS = 20


def measure(model: Any, X: Any, y: Any, coverage: float) -> tuple[dict[str, Any], Any]:
    """Measures of a model on labelled rows, as plain JSON; and the bounds of each row."""
    import numpy as np
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    from calipers import metrics
    from calipers.prediction import Query

    y = np.asarray(y, dtype=np.float64)
    levels = [coverage]
    if model.ensemble_.gives_distribution:
        levels = sorted({*LEVELS, coverage})
    at = y if model.ensemble_.gives_distribution else None
    found = model.query(X, Query(tuple(levels), at=at))
    point, bounds = found.point, found.intervals
    lower, upper = found.bounds(coverage)
    low, high = metrics.coverage_band(len(y), coverage)
    table = [
        {
            "coverage": level,
            "observed": metrics.coverage_rate(y, low_side, high_side),
            "mean_width": metrics.mean_width(low_side, high_side),
        }
        for level, (low_side, high_side) in zip(levels, bounds.transpose(2, 1, 0), strict=True)
    ]
    measures = {
        "rows": len(y),
        "coverage": coverage,
        "coverage_rate": metrics.coverage_rate(y, lower, upper),
        "by_chance": [float(low), float(high)],
        "shared_rate": _shared_rate(found, coverage),
        "mean_width": metrics.mean_width(lower, upper),
        "interval_score": metrics.interval_score(y, lower, upper, coverage=coverage),
        "rmse": root_mean_squared_error(y, point),
        "mae": mean_absolute_error(y, point),
        "calibration": table,
        "unbounded": unbounded(model, levels),
        "on_one_row": on_one_row(model, [level for level in levels if level <= coverage]),
    }
    return measures, (lower, upper)


def measure_targets(model: Any, X: Any, y: Any, coverage: float) -> dict[str, Any]:
    """Measures of each target of a model of several, and of all of them together."""
    import numpy as np

    from calipers import metrics

    pairs = zip(model.target_names_, model.models_, strict=True)
    found = {name: measure(own, X, y[name], coverage)[0] for name, own in pairs}
    lower, upper = np.moveaxis(model.predict_interval(X, coverage, joint=True), -1, 0)
    inside = ((lower <= y.to_numpy()) & (y.to_numpy() <= upper)).all(axis=1)
    low, high = metrics.coverage_band(len(y), coverage)
    joint = {
        "coverage": coverage,
        "coverage_of_each": model.single_coverages(coverage)[0],
        "coverage_rate": float(inside.mean()),
        "by_chance": [float(low), float(high)],
        "mean_width": dict(zip(found, (upper - lower).mean(axis=0).tolist(), strict=True)),
    }
    return {"rows": len(y), "coverage": coverage, "targets": found, "joint": joint}


def print_targets(found: dict[str, Any]) -> None:
    """Print what ``measure_targets`` found."""
    for name, own in found["targets"].items():
        typer.echo(f"{name}:")
        print_measures(own, name)
        typer.echo("")
    joint = found["joint"]
    low, high = joint["by_chance"]
    count = len(found["targets"])
    typer.echo(
        f"All {count} together: {joint['coverage']:.0%} joint intervals, of "
        f"{joint['coverage_of_each']:.1%} each, hold {joint['coverage_rate']:.1%} of the rows"
    )
    typer.echo(f"    (chance alone makes it {low:.1%} to {high:.1%} when they are honest)")


def _shared_rate(found: Any, coverage: float) -> float | None:
    """Coverage rate with ties shared out, where the target has mass on single values."""
    import numpy as np

    from calipers.metrics import shared_coverage

    if found.cdf_below is None or np.array_equal(found.cdf, found.cdf_below):
        return None
    return float(shared_coverage(found.cdf_below, found.cdf, coverage).mean())


def unbounded(model: Any, coverages: Sequence[float]) -> dict[str, Any] | None:
    """Coverages whose intervals are infinite, since the rows that calibrate them are too few.

    With the ``rows_needed`` for each, the ``rows`` there are and what these are ``worth``; None
    where all are finite.
    """
    from calipers.calibration import rows_needed

    models = getattr(model, "models_", [model])  # of several targets
    for calibration in (c for own in models for c in own.ensemble_.calibrations[-1:]):
        lacking = [c for c in coverages if not calibration.supports(0.5 * (1.0 - c))]
        if lacking:
            return {
                "coverages": lacking,
                "rows_needed": [rows_needed(c) for c in lacking],
                "rows": calibration.n_rows,
                "worth": getattr(calibration, "n_effective", calibration.n_rows),
            }
    return None


def say_unbounded(found: dict[str, Any] | None) -> str:
    """Why intervals are infinite, in a sentence; empty where none is.

    >>> say_unbounded({"coverages": [0.95], "rows_needed": [39], "rows": 16})
    '95% intervals are infinite: it takes 39 rows to calibrate them, and the model has 16'
    """
    if not found:
        return ""
    shown = _listed([f"{100 * coverage:.4g}%" for coverage in found["coverages"]])
    needed = _listed([f"{rows:,}" for rows in found["rows_needed"]])
    worth = found.get("worth", found["rows"])
    less = f", worth {worth:.3g} by their groups and weights" if worth < found["rows"] - 0.5 else ""
    return (
        f"{shown} intervals are infinite: it takes {needed} rows to calibrate them, and the model "
        f"has {found['rows']:,}{less}"
    )


def on_one_row(model: Any, coverages: Sequence[float]) -> list[float]:
    """Coverages whose intervals are finite, and end where the farthest calibration row does."""
    calibrations = model.ensemble_.calibrations[-1:]
    tails = {coverage: 0.5 * (1.0 - coverage) for coverage in coverages}
    return [
        coverage
        for coverage, tail in tails.items()
        if any(own.supports(tail) and not own.supports(0.5 * tail) for own in calibrations)
    ]


def _listed(texts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def measure_groups(bounds: Any, y: Any, column: Any) -> list[dict[str, Any]]:
    """Coverage and width for each value of a column, or for ranges of a number."""
    import numpy as np
    import pandas as pd

    from calipers import metrics

    lower, upper = bounds
    y = np.asarray(y, dtype=np.float64)
    if pd.api.types.is_numeric_dtype(column.dtype) and column.nunique() > _MOST_GROUPS:
        there = column.notna().to_numpy()
        values = column[there].to_numpy(np.float64)
        found = metrics.coverage_by_value(y[there], lower[there], upper[there], values)
        labels = [f"about {show(float(group))}" for group in found.group]
    else:
        texts = column.astype(object).where(column.notna(), "(missing)")
        texts = texts.map(lambda v: str(int(v) if isinstance(v, float) and v.is_integer() else v))
        common = texts.value_counts().index[:_MOST_GROUPS]
        texts = texts.where(texts.isin(common), "(others)")
        found = metrics.coverage_by_group(y, lower, upper, texts.to_numpy(dtype=str))
        labels = [str(group) for group in found.group]
    rows = zip(labels, found.n_samples, found.coverage_rate, found.mean_width, strict=True)
    return [
        {"group": label, "rows": int(n), "coverage_rate": float(rate), "mean_width": float(width)}
        for label, n, rate, width in rows
    ]


def is_measured(found: Any) -> TypeGuard[dict[str, Any]]:
    """Whether something that a model folder holds is what ``measure`` gave."""
    from calipers import _schema as schema

    number = schema.optional(schema.number())
    share = schema.number(0, 1)
    few = dict.fromkeys(("coverages", "rows_needed"), schema.list_of(schema.number(), least=1))
    levels = {"coverage": share, "observed": share, "mean_width": number}
    check = schema.record(
        {"rows": schema.whole(0, 2**53), "coverage": share, "coverage_rate": share}
        | {"by_chance": schema.list_of(share, least=2, most=2)}
        | dict.fromkeys(("mean_width", "interval_score", "rmse", "mae"), number)
        | {"calibration": schema.list_of(schema.record(levels, rest=schema.anything))},
        {
            "copies": schema.optional(schema.whole(0, 2**53)),
            "on_one_row": schema.list_of(share),
            "unbounded": schema.optional(
                schema.record({**few, "rows": schema.whole(0, 2**53)}, {"worth": schema.number()})
            ),
        },
        rest=schema.anything,
    )
    try:
        check(found, "evaluation")
    except schema.SchemaError:
        return False
    return True


def _width(value: float | None) -> float:
    """A width, also from a folder, whose JSON has no infinite ones."""
    return float("inf") if value is None else value


def print_measures(found: dict[str, Any], target: str) -> None:
    """Print what ``measure`` found."""
    low, high = found["by_chance"]
    typer.echo(f"  {found['coverage']:.0%} intervals hold {found['coverage_rate']:.1%} of the rows")
    shared = found.get("shared_rate")
    if shared is not None:
        typer.echo(f"    and {shared:.1%} with the rows on bounds shared out by their mass")
    typer.echo(f"    (chance alone makes it {low:.1%} to {high:.1%} when they are honest)")
    print_rows(
        ("", f"in units of {target}"),
        [
            ("mean width", _width(found["mean_width"])),
            ("interval score", _width(found["interval_score"])),
            ("root mean squared error", found["rmse"]),
            ("mean absolute error", found["mae"]),
        ],
    )
    typer.echo("")
    print_rows(
        ("coverage", "observed", "mean width"),
        [
            (f"{row['coverage']:.0%}", f"{row['observed']:.1%}", _width(row["mean_width"]))
            for row in found["calibration"]
        ],
    )
    if few := found.get("on_one_row"):
        shown = _listed([f"{100 * coverage:.4g}%" for coverage in few])
        typer.echo(
            f"  {shown} intervals rest on one row at each end: an odd one makes all of them wide"
        )
    if why := say_unbounded(found.get("unbounded")):
        typer.echo(f"  {why}")
