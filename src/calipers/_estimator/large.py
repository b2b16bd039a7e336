"""Out-of-core fitting, see ``RowBlocks``: two passes over the rows and a scratch file.

The first pass draws a sample: rows to calibrate and to validate on, which no network is trained on,
and rows from which the encoding, the units and the shape of the networks are learnt. The second
encodes all other rows into shards (``calipers.bank.Shards``), on a Dask cluster one set of shards
per worker (``calipers._estimator.shares``). With this many rows, held-out rows are as informative
as folds, and every network is trained on all others.

``model`` is always an ``IntervalRegressor``.
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

from calipers._checks import FloatArray
from calipers._estimator.candidates import FOLDS, choose_shape, has_choice
from calipers._estimator.fitting import ensemble_of, warn_of_infinite
from calipers._estimator.large_rows import Float32Array, Scale, Seen, encoded, learnt, spanning
from calipers._estimator.shares import WorkerShares
from calipers._estimator.together import alone, tell_time, train_in_time
from calipers._estimator.training_rows import TrainingRows, read_rows
from calipers._outliers import outlier_limits, outlying_targets
from calipers.bank import Bank, Plan, Program, ShardWriter, Table, spawn_seeds
from calipers.cluster import is_lazy
from calipers.crossfit import Fold, calibrate
from calipers.ensemble import Ensemble
from calipers.preprocessing import DataError
from calipers.rowblocks import RowBlocks, Sample
from calipers.training import check_parameters, make_program, make_settings

_SAMPLE = 170_000  # rows in memory, at most
_CALIBRATION, _VALIDATION = 0.3, 0.12  # fractions of the sample
_FEWEST = 1000  # rows to learn the encoding from, if there are that many


def fit_blocks(model: Any, X: Any, y: Any, sample_weight: Any, groups: Any) -> Ensemble:
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
    to_calibrate, to_validate, to_learn = _roles(model, sample)
    try:
        data = read_rows(model, sample.X[to_learn], sample.y[to_learn], None, None, reset=True)
    except DataError as error:  # its row is an index into the sample, not into the source
        raise DataError(error.problem, column=error.column) from None
    model.target_ = spanning(model.target_, sample.y.min(), sample.y.max())
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
        encode = partial(encoded, model, scale, data.support)
        validation = scale(*_read(model, sample, to_validate))
        train = partial(_trained, model, program, scale, validation, data.seed)
        remaining = rows.without(sample, last, seed)
        seeds = spawn_seeds(data.seed, model.n_networks)
        seen: list[Seen] = []
        if shares is None:
            bank = train(_encode_here(remaining, count, encode, seen), count, seeds, model.n_jobs)
        else:
            banks, seen = shares.train(remaining, encode, train, seeds)
            bank = Bank.concatenate(banks)[shares.order(len(seeds))]
            model.about_["shares"] = len(banks)
        ensemble = ensemble_of(model, bank, learnt(model, seen), scale.target_map)
        return _calibrated(model, ensemble, *_read(model, sample, to_calibrate), data.seed)


def _check(model: Any) -> None:
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


def _roles(model: Any, sample: Sample) -> tuple[slice, slice, slice]:
    """Split a sample into rows to calibrate on, to validate on and to learn the encoding from."""
    drawn, total = len(sample.y), sample.total
    calibration = 0 if model.cv is None else min(int(_CALIBRATION * drawn), total // 10)
    fraction = 0.0 if model.patience is None else model.validation_fraction
    validation = min(int(_VALIDATION * drawn), int(fraction * total))
    held_out = calibration + validation
    learnt = min(drawn - held_out, max(_FEWEST, total // 3), (total - held_out) // 2)
    ends = (0, calibration, held_out, held_out + learnt)
    return slice(*ends[:2]), slice(*ends[1:3]), slice(*ends[2:])


def _read(model: Any, sample: Sample, part: slice) -> tuple[FloatArray, FloatArray]:
    """Encode rows of a sample as numbers."""
    if part.start == part.stop:
        return np.empty((0, model.reader_.width)), sample.y[part]
    return model.reader_.read_with_targets(model, sample.X[part], sample.y[part])


def _shape(model: Any, data: TrainingRows, count: int, total: int) -> tuple[Program, Scale]:
    """Choose the networks for ``count`` of ``total`` rows, and the scale of rows, from a sample."""
    ordinary = outlier_limits(data.y, total)
    inside = (data.y >= ordinary[0]) & (data.y <= ordinary[1])
    if not inside.all() and not outlying_targets(data.X, data.y).any():  # the inputs explain them
        ordinary, inside = (-np.inf, np.inf), np.ones(len(data.y), dtype=bool)
    data = data._replace(y=np.clip(data.y, data.y[inside].min(), data.y[inside].max()))
    program = make_program(model, data.X, count)
    copies, folds = data, data.folds(FOLDS, FOLDS)
    if has_choice(model, program, data.y):
        copies, folds = data.encoded_by_fold(folds, data.seed)
    program, target_map = alone(model, choose_shape(model, program, copies, folds))
    target = data.y if target_map is None else target_map.forward(data.y)
    clips = getattr(program.network, "clips_inputs", False)
    table = Table.from_arrays(data.X, target, robust=clips)
    return program, Scale(table, target_map, ordinary)


def _encode_here(
    rows: RowBlocks, count: int, encode: Callable[..., Any], seen: list[Seen]
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
            smooth=getattr(program.network, "smooth", False),
        )
        plans = [
            Plan(seed, shards.train, validation=shards.validation, settings=settings)
            for seed in seeds
        ]
        bank = train_in_time(model, program, shards, plans)
        tell_time(model, bank, plans, scratch.shards)
        return bank


def _calibrated(
    model: Any, ensemble: Ensemble, X: FloatArray, y: FloatArray, seed: int
) -> Ensemble:
    """Calibrate the ensemble on rows that no network was trained on."""
    if not len(y) or not ensemble.head.has_interval:
        return ensemble
    fold = Fold(np.arange(0), np.arange(len(y)))
    fold_of = np.zeros(len(ensemble.bank), dtype=np.intp)
    calibrations, predictions = calibrate(
        ensemble, [fold], fold_of, X, y, None, model.calibration, seed=seed
    )
    warn_of_infinite(model, calibrations)
    support = ensemble.support if predictions is None else predictions.support
    return replace(ensemble, calibrations=calibrations, support=support)
