"""Out-of-core fitting, see ``RowBlocks``: two passes over the rows and a scratch file.

The first pass draws a sample: rows to calibrate and to validate on, which no network is trained on,
and rows from which the encoding, the units and the shape of the networks are learned. The second
encodes all other rows into shards (``calipers.bank.Shards``), on a Dask cluster one set of shards
per worker (``calipers._estimator.shares``). With this many rows, held-out rows are as informative
as folds, and every network is trained on all others.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from numbers import Integral
from operator import add
from typing import Any, NamedTuple, cast

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from calipers._arrays import Float32Array, FloatArray
from calipers._estimator.candidates import FOLDS, choose_shape, has_choice
from calipers._estimator.fitting import calibrated, ensemble_of, fit_rows
from calipers._estimator.joint_fits import Steps, report_time, run_fit, train_in_time
from calipers._estimator.model import Model
from calipers._estimator.shares import WorkerShares
from calipers._estimator.training_rows import (
    NAMED,
    TrainingRows,
    make_table,
    note_far_targets,
    read_rows,
)
from calipers._outliers import outlier_limits, outlying_targets
from calipers.bank import Bank, Plan, Program, ShardWriter, Table, scaled_inputs, spawn_seeds
from calipers.cluster import is_lazy
from calipers.crossfit import Fold
from calipers.distributions import Support, TargetMap, given_support, refuse_outside, with_atoms
from calipers.ensemble import Ensemble
from calipers.networks import traits
from calipers.preprocessing import Column, DataError
from calipers.rowblocks import RowBlocks, Sample
from calipers.training import check_parameters, make_program, make_settings

_SAMPLE = 170_000  # rows in memory, at most
_CALIBRATION, _VALIDATION = 0.3, 0.12  # fractions of the sample
_MIN_ROWS = 1000  # rows to learn the encoding from, if there are that many


class Scale(NamedTuple):
    """The transformation from rows to what networks are trained on."""

    table: Table  # of a sample of the rows, whose units and limits hold for all
    target_map: TargetMap | None  # the scale of the target
    ordinary: tuple[float, float]  # range of targets that are not gross errors

    def __call__(self, X: FloatArray, y: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Rows without gross errors of the target, in the units of the table."""
        kept = (y >= self.ordinary[0]) & (y <= self.ordinary[1])
        units = self.table.units
        target = y[kept] if self.target_map is None else self.target_map.forward(y[kept])
        target = (target - units.target_center) / units.target_scale
        return scaled_inputs(X[kept], units), target.astype(np.float32)


class BlockSummary(NamedTuple):
    """Summary of blocks of rows."""

    contradicted: NDArray[np.bool_]  # assumptions about the target, see ``Support.contradicted``
    target: tuple[float, float]  # lowest and highest
    low: FloatArray  # of each input
    high: FloatArray
    outlier_count: int  # targets that are likely to be errors
    outliers: list[int]  # row numbers of the first of them

    def __add__(self, other: "BlockSummary") -> "BlockSummary":  # type: ignore[override]
        return BlockSummary(
            self.contradicted | other.contradicted,
            (min(self.target[0], other.target[0]), max(self.target[1], other.target[1])),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.outlier_count + other.outlier_count,
            sorted(self.outliers + other.outliers)[:NAMED],
        )


def fit_steps(
    model: Model,
    X: ArrayLike | RowBlocks,
    y: Any,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
) -> Steps[Ensemble]:
    """Fit on rows in memory, in blocks or on a cluster; several fits may take their steps together.

    The networks of rows in blocks are not trained together with others.
    """
    if isinstance(X, RowBlocks) or is_lazy(X):
        return fit_blocks(model, X, y, sample_weight, groups)
    return (yield from fit_rows(model, X, y, sample_weight, groups))


def fit_blocks(
    model: Model,
    X: ArrayLike | RowBlocks,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
) -> Ensemble:
    """Train and calibrate an ensemble on rows that are streamed in blocks."""
    _check(model)
    if sample_weight is not None or groups is not None:
        raise ValueError("RowBlocks support neither sample_weight nor groups")
    if isinstance(X, RowBlocks) and y is not None:
        raise ValueError("RowBlocks contain the targets, RowBlocks(source, target): y must be None")
    rows = X if isinstance(X, RowBlocks) else RowBlocks(X, y)
    seed = int(check_random_state(model.random_state).randint(2**31))
    shares = WorkerShares.of(rows, model.n_networks) if is_lazy(rows.source) else None
    sample = (rows if shares is None else shares).sample(_SAMPLE, seed)
    refuse_outside(sample.y, given_support(model.bounds), sample.numbers)
    to_calibrate, to_validate, to_learn = _roles(model, sample)
    try:
        data = read_rows(model, sample.X[to_learn], sample.y[to_learn], None, None, reset=True)
    except DataError as error:
        raise _in_source(error, sample.numbers[to_learn]) from None
    if isinstance(rows.target, str):
        model.target_ = replace(model.target_, name=rows.target)
    # Rows whose targets encode categories must not be trained on.
    last = (to_learn if data.encoding is not None else to_validate).stop
    count = sample.total - last
    model.about_ |= {
        "rows": sample.total,
        "held_out": {
            "calibration": to_calibrate.stop,
            "validation": to_validate.stop - to_validate.start,
        },
        "encoding_learnt_from": len(data.y),
    }
    with joblib.parallel_config(backend="threading"):  # other processes cannot see a scratch file
        per_worker = count if shares is None else -(-count // len(shares.workers))
        program, scale = _shape(model, data, per_worker, sample.total)
        encode = partial(_encoded, model, scale, data.support)
        calibration, validation, seen = _held_out(
            model, scale, data.support, sample, to_calibrate, to_validate
        )
        train = partial(_trained, model, program, scale, validation, data.seed)
        remaining = rows.without(sample, last, seed)
        seeds = spawn_seeds(data.seed, model.n_networks)
        if shares is None:
            bank = train(_encode_here(remaining, count, encode, seen), count, seeds, model.n_jobs)
        else:
            banks, seen_there = shares.train(remaining, encode, train, seeds)
            seen += seen_there
            bank = Bank.concatenate(banks)[shares.order(len(seeds))]
            model.about_["shares"] = len(banks)
        support = _record_ranges(model, data, seen)
        ensemble = ensemble_of(model, bank, support, scale.target_map)
        return _calibrated(model, ensemble, *calibration, data.seed)


def _check(model: Model) -> None:
    """Raise ValueError if out-of-core fitting does not support the parameters."""
    check_parameters(model)
    if model.warm_start:
        raise ValueError("warm_start is for rows in memory and does not support RowBlocks")
    trees = getattr(model.network, "trees", "auto")
    if not isinstance(trees, str) and trees > 0:
        raise ValueError(
            f"RowBlocks do not support tree predictions: set trees of MLP to 0, got {trees}"
        )
    if model.cv is not None and not isinstance(model.cv, Integral):
        raise ValueError(
            f"RowBlocks are calibrated on rows held out at random, not by cv={model.cv!r}: set cv "
            "to an integer, or to None and conformalize on rows of your choice"
        )


def _roles(model: Model, sample: Sample) -> tuple[slice, slice, slice]:
    """Split a sample into rows to calibrate on, to validate on and to learn the encoding from."""
    drawn, total = len(sample.y), sample.total
    calibration = 0 if model.cv is None else min(int(_CALIBRATION * drawn), total // 10)
    fraction = 0.0 if model.patience is None else model.validation_fraction
    validation = min(int(_VALIDATION * drawn), int(fraction * total))
    held_out = calibration + validation
    learned = min(drawn - held_out, max(_MIN_ROWS, total // 3), (total - held_out) // 2)
    ends = (0, calibration, held_out, held_out + learned)
    return slice(*ends[:2]), slice(*ends[1:3]), slice(*ends[2:])


def _held_out(
    model: Model,
    scale: Scale,
    support: Support,
    sample: Sample,
    to_calibrate: slice,
    to_validate: slice,
) -> tuple[tuple[FloatArray, FloatArray], tuple[Float32Array, Float32Array], list[BlockSummary]]:
    """Encode the rows to calibrate and, scaled, to validate on; also return their summary."""
    part = slice(to_validate.stop)  # rows to calibrate on are the first of the sample
    X, y, numbers = np.empty((0, model.reader_.width)), sample.y[part], sample.numbers[part]
    seen = []
    if len(y):
        try:
            X, y = model.reader_.read_with_targets(model, sample.X[part], y)
        except DataError as error:
            raise _in_source(error, numbers) from None
        seen = [_summary(scale, support, numbers, X, y)]
    validation = scale(X[to_validate], y[to_validate])
    return (X[to_calibrate], y[to_calibrate]), validation, seen


def _shape(model: Model, data: TrainingRows, count: int, total: int) -> tuple[Program, Scale]:
    """Choose the networks for ``count`` of ``total`` rows, and the scale of rows, from a sample."""
    ordinary = outlier_limits(data.y, total)
    inside = (data.y >= ordinary[0]) & (data.y <= ordinary[1])
    if not inside.all() and not outlying_targets(data.X, data.y).any():  # the inputs explain them
        ordinary, inside = (-np.inf, np.inf), np.ones(len(data.y), dtype=bool)
    data = data._replace(target=np.clip(data.y, data.y[inside].min(), data.y[inside].max()))
    program = make_program(model, data.X, count)
    rows = data
    if has_choice(model, program, data.target):
        rows = data.encoded_by_fold(data.split(FOLDS, FOLDS), data.seed)
    program, target_map = run_fit(model, choose_shape(model, program, rows))
    table = make_table(program, data._replace(inputs=data.X[None]), target_map)
    return program, Scale(table, target_map, ordinary)


def _encode_here(
    rows: RowBlocks, count: int, encode: Callable[..., Any], seen: list[BlockSummary]
) -> Iterator[tuple[Float32Array, Float32Array]]:
    """Yield encoded blocks on this machine; ``seen`` collects the summary of all blocks.

    Rows beyond the ``count`` of the first pass are skipped, since there is no capacity for them.
    """
    total = 0
    for block in rows.numbered():  # it raises an error at the end if the rows have changed
        total += len(block[-1])
        if total <= count:
            encoded, summary = encode(*block)
            seen[:] = [seen[0] + summary] if seen else [summary]
            yield encoded


def _trained(
    model: Model,
    program: Program,
    scale: Scale,
    validation: tuple[Float32Array, Float32Array],
    shuffle: int,
    blocks: Iterable[tuple[Float32Array, Float32Array]],
    count: int,
    seeds: list[int],
    n_jobs: int | None,
) -> Bank:
    """Train one network per seed on at most ``count`` rows, by way of a scratch file."""
    model = copy(model)
    model.n_jobs = n_jobs
    table = scale.table
    with ShardWriter(table.inputs.shape[1], count, shuffle) as scratch:
        for block in blocks:
            scratch.write(*block)
        shards = scratch.finish(*validation, table.units, table.limits)
        settings = make_settings(
            model,
            count,
            program.batch_size,
            stops=bool(len(shards.validation)),
            shards=scratch.shards,
            smooth=traits(program.network).smooth,
        )
        plans = [
            Plan(seed, shards.train, validation=shards.validation, settings=settings)
            for seed in seeds
        ]
        bank = train_in_time(model, program, shards, plans)
        report_time(model, bank, plans, scratch.shards)
        return bank


def _calibrated(
    model: Model, ensemble: Ensemble, X: FloatArray, y: FloatArray, seed: int
) -> Ensemble:
    """Calibrate the ensemble on rows that no network was trained on."""
    support = replace(ensemble.support, atoms=())  # held-out rows give them mass
    smooth = replace(ensemble, support=support)
    if not len(y) or not ensemble.head.has_interval:
        return smooth
    fold = Fold(np.arange(0), np.arange(len(y)))
    fold_of = np.zeros(len(ensemble.bank), dtype=np.intp)
    return calibrated(model, smooth, ensemble, [fold], fold_of, X, y, seed=seed)[0]


def _encoded(
    model: Model,
    scale: Scale,
    support: Support,
    numbers: NDArray[np.uint64],
    X: ArrayLike,
    y: ArrayLike,
) -> tuple[tuple[Float32Array, Float32Array], BlockSummary]:
    """Encode a block of rows for training, and summarise it; ``numbers`` are its row numbers."""
    try:
        X, y = model.reader_.read_with_targets(model, X, y)
    except ValueError as error:
        raise _placed(error, numbers) from None
    if support.given:
        refuse_outside(y, support, numbers)
    return scale(X, y), _summary(scale, support, numbers, X, y)


def _summary(
    scale: Scale, support: Support, numbers: NDArray[np.uint64], X: FloatArray, y: FloatArray
) -> BlockSummary:
    """Summarise a block of encoded rows; ``support`` is that of a sample."""
    outside = (y < scale.ordinary[0]) | (y > scale.ordinary[1])
    outliers = numbers[outside][:NAMED].tolist()
    ends = (float(y.min()), float(y.max()))
    low, high = X.min(axis=0), X.max(axis=0)
    count = int(outside.sum())
    return BlockSummary(support.contradicted(y), ends, low, high, count, outliers)


def _record_ranges(model: Model, data: TrainingRows, seen: list[BlockSummary]) -> Support:
    """Record the ranges of all rows in the model, and return the support of the target.

    It is that of ``data``, a sample, without assumptions that other rows contradict. Warns if rows
    were left out since their targets are likely to be errors.
    """
    total = reduce(add, seen)
    model.target_ = _spanning(model.target_, *total.target)
    if model.reader_.encoder is None:
        columns = map(_spanning, model.reader_.columns, total.low, total.high)
        model.reader_ = replace(model.reader_, columns=tuple(columns))
    if total.outliers:
        count, first = total.outlier_count, total.outliers
        where = f"{count:,} rows, the first of them {', '.join(map(str, first))} (from 0)"
        note_far_targets(model, count, first, where)
    if not total.contradicted.any():
        return data.support
    return with_atoms(data.support.without(*total.contradicted), data.y)


def _in_source(error: DataError, numbers: NDArray[np.uint64]) -> DataError:
    """Return an error about rows of these numbers with the position of its row in the source."""
    row = None if error.row is None else int(numbers[error.row])
    return DataError(error.problem, column=error.column, row=row)


def _placed(error: ValueError, numbers: NDArray[np.uint64]) -> DataError:
    """Return an error in a block with its position among all rows."""
    if isinstance(error, DataError) and error.row is not None:
        return _in_source(error, numbers)
    return DataError(f"in the block of {len(numbers):,} rows from {numbers[0]:,} on: {error}")


def _spanning(column: Column, low: float, high: float) -> Column:
    """Extend the range of a numeric column to ``low`` and ``high``."""
    least, most = cast(float, column.low), cast(float, column.high)
    return replace(column, low=min(least, float(low)), high=max(most, float(high)))
