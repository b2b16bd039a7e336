"""Baselines of the paper's related work: MC-dropout, and quantiles with certificates.

Both train one network per trial with ``calipers_study.random_training``, and validate it on a tenth
of the training rows. LUBE is a loss, in ``calipers_study.lube``.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers_study.measures import TrialPrediction
from calipers_study.random_training import (
    PaddedRows,
    dropout_output,
    hidden_layer,
    quantile_output,
    train_rows,
    with_level,
)
from calipers_study.settings import StudySettings
from calipers_study.splits import Split

Array = Any
FloatArray = NDArray[np.float64]

RATES = (0.005, 0.01, 0.05, 0.1)
"""Dropout rates, from which one is selected on the validation rows."""

_PASSES = 50  # through a network with dropout
_LEVELS = (0.025, 0.5, 0.975)


@dataclass(frozen=True, eq=False)
class Scored:
    """A baseline's interval for some rows, and its epistemic score of each."""

    prediction: TrialPrediction
    epistemic: FloatArray


def mc_dropout(
    X: FloatArray, y: FloatArray, splits: list[Split], settings: StudySettings, *, seed: int = 0
) -> list[Scored]:
    """MC-dropout (Gal and Ghahramani, 2016): passes with dropout, and constant noise.

    The dropout rate of each training is that with the best likelihood on its validation rows; the
    variance of the noise is the excess of their squared errors over the variance of the passes.
    """
    rates = [rate for rate in RATES for _ in splits]
    lanes = PaddedRows.of(X, y, [split.train for _ in RATES for split in splits])
    layers = train_rows("dropout", lanes, settings, np.array(rates), seed)
    best: dict[int, tuple[float, Scored]] = {}
    for i, rate in enumerate(rates):
        test = splits[i % len(splits)].test
        own = jax.tree.map(lambda leaf, i=i: leaf[i], layers)
        center, spread, mean, deviation = lanes.scales[i]
        count = lanes.valid_count[i]
        at, variance = _passes(own, lanes.valid_inputs[i][:count], rate, seed)
        miss = (lanes.valid_target[i][:count] - at) ** 2
        noise = max(float(miss.mean() - variance.mean()), 1e-4)
        score = float(np.mean(np.log(variance + noise) + miss / (variance + noise)))
        if i % len(splits) in best and best[i % len(splits)][0] <= score:
            continue
        at, variance = _passes(own, (X[test] - center) / spread, rate, seed)
        half = 1.959964 * np.sqrt(variance + noise) * deviation
        point = at * deviation + mean
        scored = Scored(TrialPrediction(point, point - half, point + half), variance)
        best[i % len(splits)] = (score, scored)
    return [best[i][1] for i in range(len(splits))]


def _passes(
    layers: Any, inputs: FloatArray, rate: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance over passes with dropout."""
    keys = jax.random.split(jax.random.key(seed), _PASSES)
    out = jax.vmap(lambda key: dropout_output(layers, jnp.asarray(inputs, jnp.float32), key, rate))(
        keys
    )
    values = np.asarray(out, np.float64)
    return values.mean(axis=0), values.var(axis=0)


def quantiles_with_certificates(
    X: FloatArray, y: FloatArray, splits: list[Split], settings: StudySettings, *, seed: int = 0
) -> list[Scored]:
    """Simultaneous quantile regression and orthonormal certificates (Tagasovska, Lopez-Paz 2019).

    One network takes the level as an input and is trained for all levels. Certificates are
    orthonormal directions of its last hidden layer in which training rows hardly vary. The half of
    the eigenvectors with the smallest eigenvalues minimises their loss, so that no gradient descent
    is needed. The epistemic score of a row is its mean squared projection onto them.
    """
    lanes = PaddedRows.of(X, y, [split.train for split in splits])
    layers = train_rows("quantiles", lanes, settings, np.zeros(len(splits)), seed)
    scored = []
    for i, split in enumerate(splits):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], layers)
        center, spread, mean, deviation = lanes.scales[i]
        rows = jnp.asarray((X[split.test] - center) / spread, jnp.float32)
        lower, point, upper = (
            np.asarray(quantile_output(own, rows, jnp.float32(p)), np.float64) * deviation + mean
            for p in _LEVELS
        )
        seen = lanes.inputs[i][: lanes.count[i]]
        scored.append(
            Scored(
                TrialPrediction(point, np.minimum(lower, upper), np.maximum(lower, upper)),
                _certified(own, seen, rows),
            )
        )
    return scored


def _certified(layers: Any, seen: Array, rows: Array) -> FloatArray:
    features = [
        np.asarray(
            hidden_layer(layers, with_level(jnp.asarray(x), jnp.float32(0.5)), None, 0.0),
            np.float64,
        )
        for x in (seen, rows)
    ]
    moments = features[0].T @ features[0] / len(features[0])
    directions = np.linalg.eigh(moments)[1][:, : len(moments) // 2]
    return np.asarray(((features[1] @ directions) ** 2).mean(axis=1))


BASELINES = {
    "mc-dropout": (mc_dropout, "mse"),
    "certificates": (quantiles_with_certificates, "qd+"),
}
"""The baselines by name, each with the method of the paper whose settings it uses."""
