"""Translation of the study's settings to parameters of the bank and of the estimator.

This is the only module of the study that depends on their names.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from calipers import IntervalRegressor
from calipers.bank import Program, Settings
from calipers.heads import HEADS
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES
from calipers_study.settings import StudySettings

PARAMETERS = {
    "coverage": "coverage",
    "members": "n_networks",
    "hidden_layers": "network__hidden_layers",
    "batch_size": "batch_size",
    "epochs": "epochs",
    "learning_rate": "optimizer__learning_rate",
    "decay_rate": "optimizer__decay_rate",
    "decay_steps": "optimizer__decay_steps",
    "coverage_weight": "loss__coverage_weight",
    "point_weight": "loss__point_weight",
    "crossing_weight": "loss__crossing_weight",
    "softness": "loss__softness",
}
"""Parameter of ``IntervalRegressor`` for each setting of QD+."""


def program_of(settings: StudySettings, in_size: int) -> Program:
    """Return the program of a training."""
    return Program(
        DenseFactory(tuple(settings.hidden_layers)),
        LOSSES[settings.loss],
        in_size,
        settings.batch_size,
        adversarial=settings.adversarial_step > 0,
    )


def fields_of(settings: StudySettings) -> tuple[str, ...]:
    """Return the names of the fields that a network predicts."""
    return HEADS[LOSSES[settings.loss].head].fields


def training_of(settings: StudySettings, *, patience: int = 0) -> Settings:
    """Return the hyperparameters of a training; without patience it runs for all epochs."""
    return Settings(
        learning_rate=settings.learning_rate,
        decay_rate=settings.decay_rate,
        decay_steps=settings.decay_steps,
        adversarial_step=settings.adversarial_step,
        epochs=settings.epochs,
        patience=patience,
        coverage=settings.coverage,
        loss={
            name: getattr(settings, name)
            for name in LOSSES[settings.loss]().get_params()
            if hasattr(settings, name)
        },
    )


def estimator_of(settings: StudySettings) -> IntervalRegressor:
    """Return an estimator of QD+ with the settings that are not searched."""
    kept = ("coverage", "members", "hidden_layers", "batch_size", "softness")
    values = {PARAMETERS[name]: getattr(settings, name) for name in kept}
    return IntervalRegressor.paper().set_params(**values)


def with_parameters(settings: StudySettings, params: Mapping[str, Any]) -> StudySettings:
    """Return the settings with values from parameters of the estimator."""
    values = {name: params[param] for name, param in PARAMETERS.items() if param in params}
    return dataclasses.replace(settings, **values)
