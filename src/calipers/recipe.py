"""From the parameters of a model and its rows to what a bank trains."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.bank import Bank, Plan, Program, Settings, spawn_seeds
from calipers.crossfit import Fold, set_aside
from calipers.networks import MLP, EmbeddedMLP, Network
from calipers.objectives import LOSSES, LossSettings, Objective

FloatArray = NDArray[np.float64]

_ROWS_PER_WAVE = 3  # of one input: few rows cannot tell which of many waves matter
_ROWS_PER_INPUT = 100  # from which on waves start at full amplitude
_MOST_WAVES = 512  # of all inputs together, which bounds the cost of wide tables


class Recipe:
    """What ``IntervalRegressor`` trains, and how; its parameters are described there."""

    coverage: float
    loss: str | Objective
    n_networks: int
    hidden_layers: Sequence[int]
    activation: str
    waves: int
    network: Callable[..., Any] | None
    epochs: int | None
    batch_size: int | None
    learning_rate: float
    schedule: str
    decay_rate: float
    decay_steps: float
    weight_decay: float
    averaging: float
    clip_norm: float | None
    adversarial_step: float
    coverage_weight: float | None
    point_weight: float | None
    crossing_weight: float
    softness: float
    patience: int | str | None
    validation_fraction: float

    @property
    def _objective(self) -> Objective:
        return LOSSES[self.loss] if isinstance(self.loss, str) else self.loss

    def _batch_size(self, rows: int) -> int:
        return self.batch_size or int(np.clip(2 ** round(np.log2(max(rows, 1) / 200)), 64, 512))

    def _program(self, X: NDArray[np.floating[Any]], rows: int) -> Program:
        return Program(
            self.network or self._default_network(X, rows),
            self._objective,
            X.shape[1],
            self._batch_size(rows),
            self.schedule,
            clipping=self.clip_norm is not None,
            averaging=self.averaging > 0,
            adversarial=self.adversarial_step > 0,
        )

    def _default_network(self, X: NDArray[np.floating[Any]], rows: int) -> Network:
        hidden = tuple(int(units) for units in self.hidden_layers)
        if not self.waves:
            return MLP(hidden, self.activation)
        inputs = X.shape[1]
        waves = min(self.waves, rows // (_ROWS_PER_WAVE * inputs), _MOST_WAVES // inputs)
        more = ~np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0)  # than two values
        # In powers of two, since a network of another amplitude is another program to compile.
        amplitude = 2.0 ** min(0, round(np.log2(rows / (_ROWS_PER_INPUT * inputs))))
        columns = tuple(np.flatnonzero(more).tolist())
        return EmbeddedMLP(hidden, self.activation, waves, columns, amplitude=amplitude)

    def _settings(self, rows: int, batch_size: int, *, stops: bool) -> Settings:
        steps = 10_000 * max(1.0, rows / 10_000) ** 0.5
        epochs = self.epochs or int(np.clip(steps * batch_size / rows, 20, 1000))
        patience = max(10, epochs // 5) if self.patience == "auto" else self.patience
        return Settings(
            learning_rate=self.learning_rate,
            decay_rate=self.decay_rate,
            decay_steps=self.decay_steps,
            weight_decay=self.weight_decay,
            averaging=self.averaging,
            clip_norm=self.clip_norm or np.inf,
            adversarial_step=self.adversarial_step,
            epochs=epochs,
            patience=patience if stops else 0,
            check_every=max(1, epochs // 200),
            loss=LossSettings(
                coverage=self.coverage,
                coverage_weight=_given(self.coverage_weight, self._objective.coverage_weight),
                point_weight=_given(self.point_weight, self._objective.point_weight),
                crossing_weight=self.crossing_weight,
                softness=self.softness,
            ),
        )

    def _plans(
        self,
        folds: Sequence[Fold],
        batch_size: int,
        weights: FloatArray | None,
        groups: Any,
        seed: int | Sequence[int],
        previous: Bank | None = None,
    ) -> list[Plan]:
        """One plan per member, given the fold of each."""
        if previous is not None and len(previous) != self.n_networks:
            raise ValueError(
                f"warm_start goes on with the {len(previous)} networks of the last fit, "
                f"got n_networks={self.n_networks}"
            )
        plans = []
        for member, own in enumerate(spawn_seeds(seed, self.n_networks)):
            kept, aside = folds[member].train, folds[member].train[:0]
            if self.patience is not None:
                kept, aside = set_aside(kept, self.validation_fraction, groups, own)
            plans.append(
                Plan(
                    own,
                    kept,
                    _picked(weights, kept),
                    aside,
                    _picked(weights, aside),
                    self._settings(len(kept), batch_size, stops=aside.size > 0),
                    None if previous is None else previous.scaling_of(member),
                    None if previous is None else previous.weights_of(member),
                )
            )
        return plans


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _picked(weights: FloatArray | None, rows: Any) -> FloatArray | None:
    return None if weights is None else weights[rows]
