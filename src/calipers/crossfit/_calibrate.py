"""Calibration by out-of-fold predictions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray, IntArray
from calipers.calibration import (
    CALIBRATIONS,
    Calibration,
    CalibrationRows,
    Calibrator,
    log_width,
    normal_scores,
    out_of_fold,
    pool_widths,
    unseen_pools,
)
from calipers.crossfit._folds import Fold, leave_rows_out
from calipers.crossfit._out_of_fold import OutOfFold
from calipers.distributions import SplitNormalMixture, match_atoms, mean_of
from calipers.ensemble import Ensemble


def calibrate(
    ensemble: Ensemble,
    folds: Sequence[Fold],
    fold_of: IntArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None,
    kind: str = "width",
    groups: NDArray[Any] | None = None,
    seed: int = 0,
    surplus: FloatArray | None = None,
) -> tuple[tuple[Calibrator, ...], OutOfFold | None]:
    """Calibrate by each row's score under the networks that were not trained on it.

    Returns the calibrations and the out-of-fold predictions that they are based on, whose support
    is that of the ensemble, with its atoms matched to them. If no row was held out, the calibration
    supports no coverage, and there are no predictions.

    ``fold_of`` is the fold of each network, ``kind`` a key of ``CALIBRATIONS``. ``X`` has shape
    (rows, inputs), or (folds, rows, inputs) if each fold has its own inputs. For the coverage that
    is supported, the rows of a group count as one, as do several scores of a row. ``seed`` draws
    the scores of targets with positive probability, see ``latent_targets``. ``surplus`` of shape
    (folds, rows) is a variance by which the error of the last input of a held-out row exceeds that
    of a new row.
    """
    held_out = [fold.held_out for fold in folds]
    rows = np.concatenate(held_out)
    if not rows.size:
        return (Calibration.without_rows(),), None
    row_folds = np.repeat(np.arange(len(folds)), [len(part) for part in held_out])
    X = np.broadcast_to(X, (len(folds), *X.shape[-2:]))
    inputs = X[row_folds, rows]
    mixture = ensemble.mixture(inputs)
    if len(mixture.components) != len(fold_of) * mixture.per_network:
        raise ValueError(
            f"aggregation={ensemble.aggregation!r} merges the networks, so that those of a fold "
            "cannot be told apart: set cv=None, and conformalize on held-out rows"
        )
    dist = out_of_fold(mixture, fold_of, row_folds)
    row_weights = None if weights is None else weights[rows]
    matched = _with_matched_atoms(ensemble, dist, y[rows], row_weights)
    target = matched.latent_targets(dist, y[rows], np.random.default_rng(seed))
    once, first = np.unique(rows, return_index=True)
    plain = groups is None and row_weights is None
    of_inputs = np.zeros(len(rows)) if surplus is None else surplus[row_folds, rows]
    of_points = partial(_in_points, ensemble, inputs, of_inputs, fold_of, row_folds)
    parts = (mixture, dist, target, folds, fold_of, row_folds)
    scores, log_widths = _scores(*parts, surplus=of_points, plain=plain, n_jobs=ensemble.n_jobs)
    unit = rows if groups is None else groups[rows]
    learned = CALIBRATIONS[kind].from_rows(
        CalibrationRows(scores, dist, inputs, unit, row_weights, log_widths=log_widths)
    )
    dist, point = dist[first], np.full(len(y), np.nan)
    point[once] = ensemble.within_bounds(mean_of(dist, ensemble.target_map))
    predictions = OutOfFold(
        point,
        ensemble.coverage,
        once,
        dist,
        target[first],
        None if row_weights is None else row_weights[first],
        matched.support,
        ensemble.target_map,
    )
    return learned, predictions


def _in_points(
    ensemble: Ensemble, X: FloatArray, variance: FloatArray, fold_of: IntArray, row_folds: IntArray
) -> FloatArray:
    """Variance of the out-of-fold points due to an error of this variance in the last input."""
    if not variance.any():
        return variance
    step = np.zeros_like(X)
    step[:, -1] = np.sqrt(variance)
    above, below = (
        out_of_fold(ensemble.mixture(moved), fold_of, row_folds).mean
        for moved in (X + step, X - step)
    )
    return np.square((above - below) / 2)


def _with_matched_atoms(
    ensemble: Ensemble, dist: SplitNormalMixture, y: FloatArray, weights: FloatArray | None
) -> Ensemble:
    """Return the ensemble with the atoms of its support matched to held-out predictions."""
    if ensemble.support.is_line:
        return ensemble
    support = match_atoms(ensemble.support, ensemble.on_own_scale(dist), y, weights)
    return replace(ensemble, support=support)


def _scores(
    mixture: SplitNormalMixture,
    dist: SplitNormalMixture,
    target: FloatArray,
    folds: Sequence[Fold],
    fold_of: IntArray,
    row_folds: IntArray,
    *,
    surplus: Callable[[], FloatArray],
    plain: bool,
    n_jobs: int | None,
) -> tuple[FloatArray, Callable[[], FloatArray] | None]:
    """Return normal scores of held-out targets, and a function that returns their log widths.

    Where there are enough folds, each row has scores by pools of networks that were not trained on
    it; ``surplus`` returns that of ``unseen_pools``. The function is None if calibration cannot
    depend on widths; ``plain`` says that rows have neither groups nor weights.
    """
    # Pools need, for each row, other folds that were trained on it: a single fold has none, and if
    # folds leave rows out, some other folds were not trained on the row.
    if len(fold_of) >= 2 * len(folds) > 2 and not leave_rows_out(folds):
        with joblib.parallel_config("threading", n_jobs=n_jobs):
            pools = unseen_pools(mixture, target, fold_of, row_folds, surplus())
        log_widths = partial(pool_widths, pools, mixture, fold_of, row_folds)
        return pools.scores.reshape(-1, len(target)), log_widths
    scores = normal_scores(dist, target)
    return scores, partial(log_width, dist) if len(folds) == 1 and plain else None
