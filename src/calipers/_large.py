"""Fitting to rows that are more than memory, see ``RowBlocks``: two readings and a scratch file.

The first reading draws a sample: rows to calibrate and to validate on, which no network trains on,
and rows from which the encoding, the units and the shape of the networks are learnt. The second
encodes all other rows into shards (``calipers.bank.Shards``), on a cluster of Dask those of each
worker (``calipers._shares``). Where rows are many, those held out tell as much as folds would, and
every network learns from all others.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import joblib
import numpy as np
from sklearn.utils import check_random_state

from calipers._candidates import FOLDS, choose_shape, has_choice
from calipers._checks import FloatArray
from calipers._fitting import (
    TrainingRows,
    ensemble_of,
    read_rows,
    warn_of_infinite,
)
from calipers._large_rows import Float32Array, Scale, Seen, encoded, learnt, spanning
from calipers._outliers import far_targets, farthest
from calipers._shares import WorkerShares
from calipers._together import alone, tell_time, train_in_time
from calipers.bank import Bank, Plan, Program, ShardWriter, Table, spawn_seeds
from calipers.cluster import is_lazy
from calipers.crossfit import Fold, calibrate
from calipers.ensemble import Ensemble
from calipers.preprocessing import DataError
from calipers.rowblocks import RowBlocks, Sample
from calipers.training import check_parameters, make_program, make_settings

_SAMPLE = 170_000  # rows in memory, at most
_CALIBRATION, _VALIDATION = 0.3, 0.12  # shares of them
_FEWEST = 1000  # rows from which to learn the encoding, if there are so many


def fit_blocks(model: Any, X: Any, y: Any, sample_weight: Any, groups: Any) -> Ensemble:
    """Train and calibrate an ensemble on rows that are read in blocks."""
    _check(model)
    if sample_weight is not None or groups is not None:
        raise ValueError("rows in blocks have neither sample_weight nor groups")
    if isinstance(X, RowBlocks) and y is not None:
        raise ValueError("RowBlocks have their own targets: RowBlocks(source, target)")
    rows = X if isinstance(X, RowBlocks) else RowBlocks(X, y)
    seed = int(check_random_state(model.random_state).randint(2**31))
    shares = WorkerShares.of(rows, model.n_networks) if is_lazy(rows.source) else None
    sample = (rows if shares is None else shares).sample(_SAMPLE, seed)
    to_calibrate, to_validate, to_learn = _roles(model, sample)
    try:
        data = read_rows(model, sample.X[to_learn], sample.y[to_learn], None, None, reset=True)
    except DataError as error:  # whose row is one of the sample, not of the source
        raise DataError(error.problem, column=error.column) from None
    model.target_ = spanning(model.target_, sample.y.min(), sample.y.max())
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
        own = count if shares is None else -(-count // len(shares.workers))
        program, scale = _shape(model, data, own, sample.total)
        encode = partial(encoded, model, scale, data.support)
        validation = scale(*_read(model, sample, to_validate))
        work = partial(_trained, model, program, scale, validation, data.seed)
        rest, seeds = rows.without(sample, last, seed), spawn_seeds(data.seed, model.n_networks)
        seen: list[Seen] = []
        if shares is None:
            bank = work(_here(rest, count, encode, seen), count, seeds, model.n_jobs)
        else:
            banks, seen = shares.train(rest, encode, work, seeds)
            bank = Bank.concatenate(banks)[shares.order(len(seeds))]
            model.about_["shares"] = len(banks)
        ensemble = ensemble_of(model, bank, learnt(model, seen), scale.target_map)
        return _calibrated(model, ensemble, *_read(model, sample, to_calibrate), data.seed)


def _check(model: Any) -> None:
    """Refuse parameters that rows in blocks cannot be fitted by."""
    check_parameters(model)
    if model.warm_start:
        raise ValueError("warm_start goes on with rows in memory, not with RowBlocks")
    trees = getattr(model.network, "trees", "auto")
    if not isinstance(trees, str) and trees > 0:
        raise ValueError(f"RowBlocks have no points of trees: set trees of MLP to 0, got {trees}")
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
    ends = (0, calibration, held_out, held_out + learnt)
    return slice(*ends[:2]), slice(*ends[1:3]), slice(*ends[2:])


def _read(model: Any, sample: Sample, part: slice) -> tuple[FloatArray, FloatArray]:
    """Rows of a sample as numbers."""
    if part.start == part.stop:
        return np.empty((0, model.reader_.width)), sample.y[part]
    return model.reader_.read_with_targets(model, sample.X[part], sample.y[part])


def _shape(model: Any, data: TrainingRows, count: int, every: int) -> tuple[Program, Scale]:
    """What networks are, and the scale of their rows, by a sample of them."""
    ordinary = farthest(data.y, every)
    inside = (data.y >= ordinary[0]) & (data.y <= ordinary[1])
    if not inside.all() and not far_targets(data.X, data.y).any():  # inputs tell of them
        ordinary, inside = (-np.inf, np.inf), np.ones(len(data.y), dtype=bool)
    data = data._replace(y=np.clip(data.y, data.y[inside].min(), data.y[inside].max()))
    program = make_program(model, data.X, count)
    copies, folds = data, data.folds(FOLDS, FOLDS)
    if has_choice(model, program, data.y):
        copies, folds = data.encoded_by_fold(folds, data.seed)
    program, target_map = alone(model, choose_shape(model, program, copies, folds))
    goal = data.y if target_map is None else target_map.forward(data.y)
    clips = getattr(program.network, "clips_inputs", False)
    table = Table.from_arrays(data.X, goal, robust=clips)
    return program, Scale(table, target_map, ordinary)


def _here(
    rows: RowBlocks, count: int, encode: Callable[..., Any], seen: list[Seen]
) -> Iterator[tuple[Float32Array, Float32Array]]:
    """Encoded blocks of this machine; what is seen on the way goes into a list."""
    for block in _counted(rows, count):
        encoded, own = encode(*block)
        seen[:] = [seen[0] + own] if seen else [own]
        yield encoded


def _counted(rows: RowBlocks, count: int) -> Iterator[Any]:
    """Blocks of as many rows as a first reading has counted; for more there is no room."""
    found = 0
    for block in rows.numbered():  # which refuses others at the end
        found += len(block[-1])
        if found <= count:
            yield block


def _trained(
    model: Any,
    program: Program,
    scale: Scale,
    validation: tuple[Float32Array, Float32Array],
    shuffle: int,
    blocks: Iterable[tuple[Float32Array, Float32Array]],
    count: int,
    seeds: list[int],
    n_jobs: int | None,
) -> Bank:
    """Networks of these seeds, trained on at most so many rows by way of a scratch file."""
    model = copy(model)
    model.n_jobs = n_jobs
    table = scale.table
    with ShardWriter(table.inputs.shape[1], count, shuffle) as scratch:
        for block in blocks:
            scratch.write(*block)
        shards = scratch.finish(*validation, table.units, table.limits)
        stops, parts = bool(len(shards.validation)), scratch.shards
        smooth = getattr(program.network, "smooth", False)
        rest: dict[str, Any] = {"stops": stops, "shards": parts, "smooth": smooth}
        settings = make_settings(model, count, program.batch_size, **rest)
        plans = [
            Plan(own, shards.train, validation=shards.validation, settings=settings)
            for own in seeds
        ]
        bank = train_in_time(model, program, shards, plans)
        tell_time(model, bank, plans, parts)
        return bank


def _calibrated(
    model: Any, ensemble: Ensemble, X: FloatArray, y: FloatArray, seed: int
) -> Ensemble:
    """The ensemble corrected by rows that no network has seen."""
    if not len(y) or not ensemble.head.has_interval:
        return ensemble
    fold = Fold(np.arange(0), np.arange(len(y)))
    networks = np.zeros(len(ensemble.bank), dtype=np.intp)
    found, kept = calibrate(ensemble, [fold], networks, X, y, None, model.calibration, seed=seed)
    warn_of_infinite(model, found)
    support = ensemble.support if kept is None else kept.support
    return replace(ensemble, calibrations=found, support=support)
