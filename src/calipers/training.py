"""From the parameters of a model and its rows to what a bank trains: programs and plans.

The estimator, the search and the study all come here. Functions take the parameters as anything
that has them as attributes, such as an ``IntervalRegressor``.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from calipers._checks import FloatArray
from calipers.aggregation import AGGREGATIONS
from calipers.bank import Bank, Plan, Program, Settings, padded, spawn_seeds
from calipers.crossfit import Fold, set_aside
from calipers.networks import MLP, NETWORKS, Network
from calipers.objectives import LOSSES, Objective
from calipers.optimizers import OPTIMIZERS, Adam

_SOON = 220  # steps that are waited for at least, where they are fewer than a fifteenth of all
_FARTHEST = 1e150  # bound of a target: its square is a number still
SMOOTH = (0.5, 2.0, 5.0)  # factors of epochs, learning rate and weight decay of smooth networks

SHORTHANDS: dict[str, dict[str, Any]] = {
    "loss": LOSSES,
    "network": NETWORKS,
    "optimizer": OPTIMIZERS,
}
"""For each nested parameter, what its names stand for."""


class Parameters(Protocol):
    """What says how networks are trained; ``IntervalRegressor`` describes each."""

    coverage: float
    loss: str | Objective
    network: str | MLP | Callable[..., Any]
    optimizer: str | Adam
    epochs: int | None
    batch_size: int | None
    patience: int | str | None
    validation_fraction: float


def expanded(name: str, value: Any) -> Any:
    """The object that a nested parameter stands for; a name stands for the defaults under it."""
    return SHORTHANDS[name][value]() if isinstance(value, str) else value


def check_parameters(model: Any) -> None:
    """Refuse parameters that break a rule, alone or together."""
    model._validate_params()
    if isinstance(model.cv, str):  # which has a method split, but not a splitter's
        raise ValueError(
            "cv must be a number of folds from 2 on, a splitter of scikit-learn or None, "
            f"got {model.cv!r}"
        )
    check_bounds(model.bounds)
    for name in SHORTHANDS:
        nested = expanded(name, getattr(model, name))
        if isinstance(nested, BaseEstimator):
            nested._validate_params()
    if AGGREGATIONS[model.aggregation].single and model.n_networks > 1:
        raise ValueError(
            f"aggregation={model.aggregation!r} leaves networks as they are, which is one "
            f"prediction only for n_networks=1, got n_networks={model.n_networks}"
        )
    if not AGGREGATIONS[model.aggregation].gives_distribution and model.cv is not None:
        raise ValueError(
            f"aggregation={model.aggregation!r} gives no distribution to calibrate: set cv=None"
        )
    if isinstance(model.cv, Integral) and model.n_networks % int(model.cv):
        raise ValueError(
            f"every fold has as many networks: n_networks must be a multiple of cv={model.cv}, "
            f"got {model.n_networks}"
        )


def check_bounds(bounds: Any) -> None:
    """Refuse bounds that are not a pair with a lower end below the upper one."""
    if bounds is None or isinstance(bounds, str):
        return
    ends = list(bounds) if isinstance(bounds, Sequence) or hasattr(bounds, "__array__") else []
    try:
        good = len(ends) == 2 and all(
            end is None or (isinstance(end, Real) and abs(float(end)) <= _FARTHEST) for end in ends
        )
    except OverflowError:  # of a whole number beyond all floats
        good = False
    if not good or (None not in ends and not ends[0] < ends[1]):
        raise ValueError(
            "bounds must be 'auto', None or a pair (low, high) with low below high, in which None "
            f"stands for no bound and none is beyond +-{_FARTHEST:g}, got {bounds!r}"
        )


def objective_of(parameters: Parameters) -> Objective:
    """What networks are trained for."""
    return expanded("loss", parameters.loss)


def optimizer_of(parameters: Parameters) -> Adam:
    """How networks are trained."""
    found: Adam = expanded("optimizer", parameters.optimizer)
    return found


def batch_size_of(parameters: Parameters, rows: int) -> int:
    """Rows of a step, where ``rows`` are trained on; no more than there are, but for padding."""
    if parameters.batch_size:
        return int(min(parameters.batch_size, padded(rows)))
    return int(np.clip(2 ** round(np.log2(max(rows, 1) / 200)), 64, 512))


def make_program(parameters: Parameters, X: NDArray[np.floating[Any]], rows: int) -> Program:
    """What all networks have in common, for inputs of which ``rows`` rows are trained on."""
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
    parameters: Parameters,
    rows: int,
    batch_size: int,
    *,
    stops: bool,
    shards: int = 1,
    smooth: bool = False,
) -> Settings:
    """Numbers of the training of a network on so many rows, in steps of ``batch_size``.

    ``stops`` says that there are validation rows that tell when to stop. Where rows come in several
    ``shards``, an epoch of the settings is a pass over one of them. ``smooth`` is for networks that
    are so: they take larger steps, and fewer.
    """
    part, rate, decay = SMOOTH if smooth else (1.0, 1.0, 1.0)
    steps = part * 10_000 * max(1.0, rows / 10_000) ** 0.5
    fewest = 20 if shards == 1 else 0  # passes
    passes = parameters.epochs or np.clip(steps * batch_size / rows, fewest, 1000)
    epochs = max(1, int(passes * shards))
    given = parameters.patience
    patience = max(10, epochs // 5) if isinstance(given, str) else (given or 0) * shards
    soon = min(epochs // 15, _SOON // -(-rows // batch_size))
    early = {"early_patience": max(10, soon)} if parameters.patience == "auto" else {}
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
    parameters: Parameters,
    folds: Sequence[Fold],
    weights: FloatArray | None,
    groups: Any,
    seed: int,
    *,
    batch_size: int,
    previous: Bank | None = None,
    smooth: bool = False,
) -> list[Plan]:
    """One plan for each fold given, which may be given several times.

    The seed is that of the networks and of what they set aside, which parts no group. They go on
    from the networks ``previous``, if any, which must be as many: ``ValueError``.
    """
    if previous is not None and len(previous) != len(folds):
        raise ValueError(
            f"warm_start goes on with the {len(previous)} networks of the last fit, "
            f"got n_networks={len(folds)}"
        )
    plans = []
    for member, own in enumerate(spawn_seeds(seed, len(folds))):
        kept, aside = folds[member].train, folds[member].train[:0]
        if parameters.patience is not None:
            kept, aside = set_aside(kept, parameters.validation_fraction, groups, own)
        plans.append(
            Plan(
                own,
                kept,
                None if weights is None else weights[kept],
                aside,
                None if weights is None else weights[aside],
                make_settings(
                    parameters, len(kept), batch_size, stops=aside.size > 0, smooth=smooth
                ),
                None if previous is None else previous.scaling_of(member),
                None if previous is None else previous.weights_of(member),
            )
        )
    return plans


def time_report(bank: Bank, plans: list[Plan], seconds: float) -> dict[str, Any]:
    """How far training came in its time, as plain JSON.

    Epochs are the median of the networks that the clock ended, or of all where it ended none.
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


def out_of_time(found: Mapping[str, Any] | None) -> str:
    """A sentence on a training that its time budget ended early; empty if that matters little."""
    if found is None:
        return ""
    reached, planned = found["epochs"], found["planned_epochs"]
    late, networks = found["out_of_time"], found["networks"]
    if 5 * late <= networks or 2 * reached >= planned:
        return ""  # most networks had stopped by themselves, or were near their end
    return (
        f"time_budget={found['seconds']:g} ended training after {reached} of {planned} epochs "
        f"({late} of {networks} networks): intervals are honest, but wider, and points worse, "
        "than longer training is likely to make them; all epochs would take up to about "
        f"{found['seconds'] * planned / reached:,.0f} s"
    )
