"""Make the programs and plans of a bank from the parameters of a model and its rows.

The estimator, the search and the study all use it. ``parameters`` is an ``IntervalRegressor``, of
which only the parameters are read.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from calipers._arrays import FloatArray, IntArray
from calipers._checks import MAX_TARGET, warn
from calipers.aggregation import AGGREGATIONS
from calipers.bank import Bank, Plan, Program, Settings, padded, spawn_seeds
from calipers.crossfit import Fold, set_aside
from calipers.heads import HEADS
from calipers.networks import MLP, NETWORKS, Network
from calipers.objectives import LOSSES, Objective
from calipers.optimizers import OPTIMIZERS, Adam

if TYPE_CHECKING:
    from calipers.regressor import IntervalRegressor

__all__ = ["batch_size_of", "make_plans", "make_program", "make_settings"]

_EARLY_STEPS = 220  # least "auto" patience in steps, unless a fifteenth of all epochs is less
# Factors of epochs, learning rate and weight decay of smooth networks.
SMOOTH_SETTINGS = (0.5, 2.0, 5.0)

SHORTHANDS: dict[str, dict[str, Any]] = {
    "loss": LOSSES,
    "network": NETWORKS,
    "optimizer": OPTIMIZERS,
}
"""The classes that each nested parameter can be given as, by name."""


def expanded(name: str, value: object) -> Any:
    """Return a nested parameter as an object; a name gives its class with default parameters."""
    return SHORTHANDS[name][value]() if isinstance(value, str) else value


def check_parameters(model: "IntervalRegressor") -> None:
    """Raise ValueError if parameters are invalid, alone or in combination."""
    model._validate_params()
    if isinstance(model.cv, str):  # str.split passes for the method of a splitter
        raise ValueError(
            f"cv must be an integer from 2 on, a scikit-learn splitter or None, got {model.cv!r}"
        )
    check_bounds(model.bounds)
    for name in SHORTHANDS:
        nested = expanded(name, getattr(model, name))
        if isinstance(nested, BaseEstimator):
            nested._validate_params()
    if AGGREGATIONS[model.aggregation].single and model.n_networks > 1:
        raise ValueError(
            f"aggregation={model.aggregation!r} does not combine networks and needs n_networks=1, "
            f"got n_networks={model.n_networks}"
        )
    if not AGGREGATIONS[model.aggregation].gives_distribution and model.cv is not None:
        raise ValueError(
            f"aggregation={model.aggregation!r} gives no distribution to calibrate: set cv=None"
        )
    _warn_of_unused_aggregation(model)
    if isinstance(model.cv, Integral) and model.n_networks % int(model.cv):
        raise ValueError(
            f"n_networks must be a multiple of cv={model.cv}, got {model.n_networks}: every fold "
            "has the same number of networks"
        )


def _warn_of_unused_aggregation(model: "IntervalRegressor") -> None:
    """Warn if networks predict densities, whose mixture is the prediction, and not as requested."""
    head, name = HEADS[objective_of(model).head], model.aggregation
    unused = head.split_normal and AGGREGATIONS[name].gives_distribution
    if unused and name not in ("snm", head.name):
        warn(
            f"aggregation={name!r} has no effect with loss={model.loss!r}: its networks predict "
            "distributions, and the mixture of these is the prediction"
        )


def check_bounds(bounds: Any) -> None:
    """Raise ValueError if bounds are not a pair with the lower one below the upper one."""
    if bounds is None or isinstance(bounds, str):
        return
    ends = list(bounds) if isinstance(bounds, Sequence) or hasattr(bounds, "__array__") else []
    try:
        good = len(ends) == 2 and all(
            end is None or (isinstance(end, Real) and abs(float(end)) <= MAX_TARGET) for end in ends
        )
    except OverflowError:  # an integer too large for a float
        good = False
    if not good or (None not in ends and not ends[0] < ends[1]):
        raise ValueError(
            "bounds must be 'auto', None or a pair (low, high) with low below high, each None for "
            f"no bound or within +-{MAX_TARGET:g}, got {bounds!r}"
        )


def objective_of(parameters: "IntervalRegressor") -> Objective:
    """Return the loss as an object."""
    return expanded("loss", parameters.loss)


def optimizer_of(parameters: "IntervalRegressor") -> Adam:
    """Return the optimizer as an object."""
    return expanded("optimizer", parameters.optimizer)


def batch_size_of(parameters: "IntervalRegressor", rows: int) -> int:
    """Rows per step for ``rows`` training rows, at most their padded number."""
    if parameters.batch_size:
        return int(min(parameters.batch_size, padded(rows)))
    return int(np.clip(2 ** round(np.log2(max(rows, 1) / 200)), 64, 512))


def make_program(
    parameters: "IntervalRegressor", X: NDArray[np.floating[Any]], rows: int
) -> Program:
    """Return what all networks share, for inputs ``X`` with ``rows`` training rows."""
    network = expanded("network", parameters.network)
    factory: Network = network.factory(X, rows) if isinstance(network, MLP) else network
    optimizer = optimizer_of(parameters)
    return Program(
        factory,
        type(objective_of(parameters)),
        X.shape[1],
        batch_size_of(parameters, rows),
        optimizer.schedule,
        clipping=optimizer.clip_norm is not None,
        averaging=optimizer.averaging > 0,
        adversarial=optimizer.adversarial_step > 0,
        components=objective_of(parameters).candidates(rows)[0],
    )


def make_settings(
    parameters: "IntervalRegressor",
    rows: int,
    batch_size: int,
    *,
    stops: bool,
    shards: int = 1,
    smooth: bool = False,
) -> Settings:
    """Return the settings for training a network on ``rows`` rows in steps of ``batch_size``.

    ``stops`` enables early stopping, which needs validation rows. If the rows come in several
    ``shards``, an epoch of the settings is a pass over one of them. ``smooth`` is for smooth
    networks, which take larger and fewer steps.
    """
    epochs_factor, rate, decay = SMOOTH_SETTINGS if smooth else (1.0, 1.0, 1.0)
    steps = epochs_factor * 10_000 * max(1.0, rows / 10_000) ** 0.5
    fewest = 20 if shards == 1 else 0  # passes
    passes = parameters.epochs or np.clip(steps * batch_size / rows, fewest, 1000)
    epochs = max(1, int(passes * shards))
    patience = parameters.patience
    early = {}
    if isinstance(patience, str):  # "auto"
        steps_per_epoch = -(-rows // batch_size)
        early["early_patience"] = max(10, min(epochs // 15, _EARLY_STEPS // steps_per_epoch))
        patience = max(10, epochs // 5)
    else:
        patience = (patience or 0) * shards
    optimizer = optimizer_of(parameters)
    return Settings(
        learning_rate=rate * optimizer.learning_rate,
        decay_rate=optimizer.decay_rate,
        decay_steps=optimizer.decay_steps,
        weight_decay=decay * optimizer.weight_decay,
        averaging=optimizer.averaging,
        clip_norm=optimizer.clip_norm or np.inf,
        adversarial_step=optimizer.adversarial_step,
        epochs=epochs,
        patience=patience if stops else 0,
        check_every=max(1, epochs // 200),
        coverage=parameters.coverage,
        loss=objective_of(parameters).numbers(),
        **early,
    )


def make_plans(
    parameters: "IntervalRegressor",
    folds: Sequence[Fold],
    weights: FloatArray | None,
    groups: IntArray | None,
    seed: int,
    *,
    batch_size: int,
    previous: Bank | None = None,
    smooth: bool = False,
) -> list[Plan]:
    """Return one plan for each of ``folds``, which may contain a fold several times.

    ``seed`` seeds the networks and the choice of their validation rows, which keeps groups
    together. Training continues from the networks of ``previous``, if given; raises ``ValueError``
    if their number differs.
    """
    if previous is not None and len(previous) != len(folds):
        raise ValueError(
            f"warm_start continues with the {len(previous)} networks of the last fit, "
            f"got n_networks={len(folds)}"
        )
    plans = []
    for member, network_seed in enumerate(spawn_seeds(seed, len(folds))):
        train, valid = folds[member].train, folds[member].train[:0]
        if parameters.patience is not None:
            train, valid = set_aside(train, parameters.validation_fraction, groups, network_seed)
        plans.append(
            Plan(
                network_seed,
                train,
                None if weights is None else weights[train],
                valid,
                None if weights is None else weights[valid],
                make_settings(
                    parameters, len(train), batch_size, stops=valid.size > 0, smooth=smooth
                ),
                None if previous is None else previous.scaling_of(member),
                None if previous is None else previous.weights_of(member),
            )
        )
    return plans


def time_report(bank: Bank, plans: list[Plan], seconds: float) -> dict[str, Any]:
    """Return how many epochs training reached within its time budget, as plain JSON.

    Epochs are the median over the networks that ran out of time, or over all if none did.
    """
    epochs = np.array([len(history) for history in bank.histories])
    late = bank.out_of_time
    return {
        "seconds": float(seconds),
        "networks": len(bank),
        "out_of_time": int(late.sum()),
        "epochs": int(np.median(epochs[late] if late.any() else epochs)),
        "planned_epochs": int(np.median([plan.settings.epochs for plan in plans])),
    }


def time_warning(report: Mapping[str, Any] | None) -> str:
    """Return a warning if a ``time_report`` shows that training ended too early, or no text."""
    if report is None:
        return ""
    reached, planned = report["epochs"], report["planned_epochs"]
    late, networks = report["out_of_time"], report["networks"]
    if 5 * late <= networks or 2 * reached >= planned:
        return ""  # most networks had stopped early, or were near their last epoch
    return (
        f"time_budget={report['seconds']:g} ended training after {reached} of {planned} epochs "
        f"({late} of {networks} networks): intervals are calibrated, but longer training would "
        "probably make them narrower and point predictions better; all epochs would take up to "
        f"about {report['seconds'] * planned / reached:,.0f} s"
    )
