"""Fitting to rows that are more than memory, see ``RowBlocks``: two readings and a scratch file.

The first reading draws a sample: rows to calibrate and to validate on, which no network trains on,
and rows from which the encoding, the units and the shape of the networks are learnt. The second
encodes all other rows into shards (``calipers.bank.Shards``). Where rows are many, those held out
tell as much as folds would, and every network learns from all others.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from calipers._candidates import FOLDS, choose_shape, has_choice
from calipers._checks import FloatArray
from calipers._fitting import TrainingRows, read_rows, train_in_time
from calipers._outliers import far_targets, farthest
from calipers.bank import (
    Plan,
    Program,
    Shards,
    ShardWriter,
    Table,
    spawn_seeds,
    standardised,
)
from calipers.crossfit import Fold, calibrate
from calipers.distributions import Support, TargetMap, refuse_outside
from calipers.ensemble import Ensemble
from calipers.preprocessing import Column, DataError
from calipers.rowblocks import RowBlocks, Sample
from calipers.training import (
    check_parameters,
    make_program,
    make_settings,
)

Float32Array = NDArray[np.float32]

_SAMPLE = 170_000  # rows in memory, at most
_CALIBRATION, _VALIDATION = 0.3, 0.12  # shares of them
_FEWEST = 1000  # rows from which to learn the encoding, if there are so many
_NAMED = 10  # rows that a warning names


class _Scale(NamedTuple):
    """How rows become what networks train on."""

    table: Table  # of a sample of the rows, whose units and limits hold for all
    target_map: TargetMap | None  # the scale of the target
    ordinary: tuple[float, float]  # ends of the targets that are no gross errors

    def __call__(self, X: FloatArray, y: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Rows whose targets are no gross errors, in the units of the table."""
        kept = (y >= self.ordinary[0]) & (y <= self.ordinary[1])
        units = self.table.units
        goal = y[kept] if self.target_map is None else self.target_map.forward(y[kept])
        goal = (goal - units.target_center) / units.target_scale
        return standardised(X[kept], units), goal.astype(np.float32)


def fit_blocks(model: Any, X: Any, y: Any, sample_weight: Any, groups: Any) -> Ensemble:
    """Train and calibrate an ensemble on rows that are read in blocks."""
    _check(model)
    if sample_weight is not None or groups is not None:
        raise ValueError("rows in blocks have neither sample_weight nor groups")
    if isinstance(X, RowBlocks) and y is not None:
        raise ValueError("RowBlocks have their own targets: RowBlocks(source, target)")
    rows = X if isinstance(X, RowBlocks) else RowBlocks(X, y)
    seed = int(check_random_state(model.random_state).randint(2**31))
    sample = rows.sample(_SAMPLE, seed)
    to_calibrate, to_validate, to_learn = _roles(model, sample)
    try:
        data = read_rows(model, sample.X[to_learn], sample.y[to_learn], None, None, reset=True)
    except DataError as error:  # whose row is one of the sample, not of the source
        raise DataError(error.problem, column=error.column) from None
    model.target_ = _spanning(model.target_, sample.y.min(), sample.y.max())
    if isinstance(rows.target, str):
        model.target_ = replace(model.target_, name=rows.target)
    # What is learnt of the targets of categories must not be trained on by the rows it is from.
    last = (to_learn if data.categories is not None else to_validate).stop
    count = sample.total - last
    model.about_ |= {
        "rows": sample.total,
        "held_out": {
            "calibration": to_calibrate.stop,
            "validation": to_validate.stop - to_validate.start,
        },
        "encoding_learnt_from": len(data.y),
    }
    with joblib.parallel_config(backend="threading"):  # other processes see no scratch file
        program, scale = _shape(model, data, count, sample.total)
        with ShardWriter(data.X.shape[1], count, data.seed) as scratch:
            rest = rows.without(sample, last, seed)
            support = _write(model, rest, count, scratch, scale, data.support)
            shards = scratch.finish(
                *scale(*_read(model, sample, to_validate)), scale.table.units, scale.table.limits
            )
            plans = _plans(model, program, shards, count, data.seed)
            bank = train_in_time(model, program, shards, plans, scratch.shards)
        ensemble = Ensemble(
            bank,
            model.coverage,
            model.aggregation,
            n_jobs=model.n_jobs,
            support=support,
            target_map=scale.target_map,
        )
        return _calibrated(model, ensemble, *_read(model, sample, to_calibrate), data.seed)


def _check(model: Any) -> None:
    """Refuse parameters that rows in blocks cannot be fitted by."""
    check_parameters(model)
    if model.warm_start:
        raise ValueError("warm_start goes on with rows in memory, not with RowBlocks")
    if model.cv is not None and not isinstance(model.cv, Integral):
        raise ValueError(
            f"RowBlocks are calibrated on rows held out at random, not by cv={model.cv!r}: set cv "
            "to a number, or to None and conformalize on rows of your own"
        )


def _roles(model: Any, sample: Sample) -> tuple[slice, slice, slice]:
    """Rows of a sample to calibrate on, to validate on and to learn the encoding from."""
    drawn, every = len(sample.y), sample.total
    calibration = 0 if model.cv is None else min(int(_CALIBRATION * drawn), every // 10)
    fraction = 0.0 if model.patience is None else model.validation_fraction
    validation = min(int(_VALIDATION * drawn), int(fraction * every))
    held_out = calibration + validation
    learnt = min(drawn - held_out, max(_FEWEST, every // 3), (every - held_out) // 2)
    return (
        slice(0, calibration),
        slice(calibration, held_out),
        slice(held_out, held_out + learnt),
    )


def _read(model: Any, sample: Sample, part: slice) -> tuple[FloatArray, FloatArray]:
    """Rows of a sample as numbers."""
    if part.start == part.stop:
        return np.empty((0, model.reader_.width)), sample.y[part]
    found: tuple[FloatArray, FloatArray]
    found = model.reader_.read_with_targets(model, sample.X[part], sample.y[part])
    return found


def _shape(model: Any, data: TrainingRows, count: int, every: int) -> tuple[Program, _Scale]:
    """What networks are, and the scale of their rows, by a sample of them."""
    ordinary = farthest(data.y, every)
    inside = (data.y >= ordinary[0]) & (data.y <= ordinary[1])
    if not inside.all() and not far_targets(data.X, data.y).any():  # inputs tell of them
        ordinary, inside = (-np.inf, np.inf), np.ones(len(data.y), dtype=bool)
    data = data._replace(y=np.clip(data.y, data.y[inside].min(), data.y[inside].max()))
    program = make_program(model, data.X, count)
    copies, folds = data, data.folds(FOLDS, FOLDS)
    if has_choice(model, data.y):
        copies, folds = data.encoded_by_fold(folds, data.seed)
    program, target_map = choose_shape(model, program, copies, folds)
    goal = data.y if target_map is None else target_map.forward(data.y)
    clips = getattr(program.network, "clips_inputs", False)
    table = Table.from_arrays(data.X, goal, robust=clips)
    return program, _Scale(table, target_map, ordinary)


def _write(
    model: Any, rows: RowBlocks, count: int, scratch: ShardWriter, scale: _Scale, support: Support
) -> Support:
    """Encode all rows into shards; gives the support that they leave of that of a sample.

    Warns if targets are left out since they are likely to be errors.
    """
    low: Any = np.inf
    high: Any = -np.inf
    far: list[int] = []
    far_count = 0
    few, many = np.inf, -np.inf
    for numbers, X, y in _counted(rows, count):
        try:
            X, y = model.reader_.read_with_targets(model, X, y)
            if support.given:
                refuse_outside(y, support)
        except ValueError as error:
            raise _placed(error, numbers) from None
        support = support.widened(y)
        few, many = min(few, y.min()), max(many, y.max())
        low, high = np.minimum(low, X.min(axis=0)), np.maximum(high, X.max(axis=0))
        outside = (y < scale.ordinary[0]) | (y > scale.ordinary[1])
        far_count += int(outside.sum())
        far += numbers[outside][: _NAMED - len(far)].tolist()
        scratch.write(*scale(X, y))
    model.target_ = _spanning(model.target_, few, many)
    if model.reader_.encoder is None:
        columns = map(_spanning, model.reader_.columns, low, high)
        model.reader_ = replace(model.reader_, columns=tuple(columns))
    if far:
        model.about_["far_targets"] = {"count": far_count, "rows": far}
        warnings.warn(
            f"y is far from all other targets in {far_count:,} rows, the first of them "
            f"{', '.join(map(str, far))} (from 0): networks do not learn from them. "
            "Correct or leave out what is wrong; if such targets are real, fit their logarithm",
            UserWarning,
            stacklevel=4,
        )
    return support


def _counted(rows: RowBlocks, count: int) -> Iterator[Any]:
    """Blocks of as many rows as a first reading has counted; for more there is no room."""
    found = 0
    for block in rows.numbered():  # which refuses others at the end
        found += len(block[-1])
        if found <= count:
            yield block


def _placed(error: ValueError, numbers: Any) -> DataError:
    """An error in a block, with its place among all rows."""
    if isinstance(error, DataError) and error.row is not None:
        return DataError(error.problem, column=error.column, row=int(numbers[error.row]))
    return DataError(f"in the block of {len(numbers):,} rows from {numbers[0]:,} on: {error}")


def _spanning(column: Any, low: float, high: float) -> Column:
    """What is known of a column of numbers, with the range of all rows."""
    ends = {"low": min(column.low, float(low)), "high": max(column.high, float(high))}
    return replace(column, **ends)


def _plans(model: Any, program: Program, shards: Shards, count: int, seed: int) -> list[Plan]:
    """What each network is to do: train on all shards."""
    stops, parts = bool(len(shards.validation)), shards.scratch.shards
    settings = make_settings(model, count, program.batch_size, stops=stops, shards=parts)
    return [
        Plan(own, shards.train, validation=shards.validation, settings=settings)
        for own in spawn_seeds(seed, model.n_networks)
    ]


def _calibrated(
    model: Any, ensemble: Ensemble, X: FloatArray, y: FloatArray, seed: int
) -> Ensemble:
    """The ensemble corrected by rows that no network has seen."""
    if not len(y) or not ensemble.head.has_interval:
        return ensemble
    fold = Fold(np.arange(0), np.arange(len(y)))
    networks = np.zeros(len(ensemble.bank), dtype=np.intp)
    found, kept = calibrate(ensemble, [fold], networks, X, y, None, model.calibration, seed=seed)
    support = ensemble.support if kept is None else kept.support
    return replace(ensemble, calibrations=found, support=support)
