"""The shape of what networks predict: choices that ``fit`` makes by out-of-fold scores.

How many components, and on which scale of the target, where the loss leaves that open. Candidates
train for a part of the epochs, one network for each fold, are calibrated as the model will be, and
score the rows that were held out, in the target's own unit. What is less simple has to earn it: it
is taken where it is better by a margin.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers._fitting import TrainingRows
from calipers.bank import Program, Table, train
from calipers.crossfit import Fold, OutOfFold, calibrate
from calipers.distributions import TargetMap
from calipers.ensemble import Ensemble
from calipers.training import make_plans, objective_of

FloatArray = NDArray[np.float64]

EPOCHS = 0.06  # of all that a network trains for
MARGIN, ERRORS = 0.02, 1.0  # by which a candidate must be better than the simplest, see ``decide``
FOLDS = 5
_MEASURED = 2000  # rows
_TAIL_ROWS = 4  # beyond each bound of the interval that is measured, at least
_LEVELS = np.arange(1, 20) / 20  # of the quantiles that stand for the whole distribution


class Shape(NamedTuple):
    """What networks predict: so many components, on a scale of the target."""

    components: int
    scale: str

    def __str__(self) -> str:
        return f"{self.components}, {self.scale}"


class Losses(NamedTuple):
    """Interval score, pinball loss of quantiles and squared error of rows, and their weights."""

    interval: FloatArray
    pinball: FloatArray
    squared: FloatArray
    weights: FloatArray

    @property
    def means(self) -> tuple[float, float, float]:
        """Mean of each, the smaller the better."""
        own = self.weights
        interval, pinball, squared = (float(np.average(part, weights=own)) for part in self[:3])
        return interval, pinball, squared

    @property
    def score(self) -> float:
        """One number, in the target's unit: their geometric mean, squared errors by their root."""
        interval, pinball, squared = self.means
        return float((interval * pinball * squared**0.5) ** (1 / 3))

    def gain_over(self, other: "Losses") -> tuple[float, float]:
        """By how much the score is lower than another's of the same rows, and its standard error.

        Both in parts of the score, to first order in what each row has of it.
        """
        parts = [(a / a.mean(), b / b.mean()) for a, b in zip(self[:3], other[:3], strict=True)]
        weights = (1 / 3, 1 / 3, 1 / 6)
        each = sum(w * (b - a) for w, (a, b) in zip(weights, parts, strict=True))
        error = float(np.std(each) / np.sqrt(len(each)))
        return 1 - self.score / other.score, error


def choose_shape(
    model: Any, program: Program, data: TrainingRows, folds: list[Fold]
) -> tuple[Program, TargetMap | None]:
    """How many components the rows ask for, and on which scale.

    Parameters
    ----------
    model : IntervalRegressor
        Its loss says what there is to choose from. With a ``time_budget`` the first is taken.
    program : Program
        What the networks will train by, with the first of the candidates.
    data : TrainingRows
        The rows.
    folds : list of Fold
        The folds that the networks will train in, which are the candidates' too.

    Returns
    -------
    program : Program
        With the number of components; ``model.about_["shapes"]`` has the scores, where there was a
        choice.
    target_map : TargetMap or None
        The scale; None for the target's own.
    """
    objective, y = objective_of(model), data.y[data.used]
    counts, scales = objective.candidates(len(y)), objective.scales(y)
    shapes = [Shape(count, scale) for scale in scales for count in counts]
    best = shapes[0]
    if len(shapes) > 1 and model.time_budget is None:
        if not any(fold.held_out.size for fold in folds):
            folds = data.folds(FOLDS, FOLDS)
        parallel = joblib.Parallel(n_jobs=model.n_jobs, require="sharedmem")
        found = parallel(joblib.delayed(trial)(model, program, s, data, folds) for s in shapes)
        each = dict(zip(shapes, found, strict=True))
        best = decide({shape: losses.gain_over(each[best]) for shape, losses in each.items()})
        model.about_["shapes"] = {str(shape): losses.score for shape, losses in each.items()}
    return replace(program, components=best.components), map_of(best, data)


def decide(
    gains: Mapping[Shape, tuple[float, float]], margin: float = MARGIN, errors: float = ERRORS
) -> Shape:
    """The shape that gains most over the first, by more than chance and a margin, or the first.

    Parameters
    ----------
    gains : mapping of Shape to pair of float
        What each gains over the first, which is the simplest, and its standard error.
    margin : float
        What a gain must be, in parts of the score, beside ...
    errors : float
        ... so many standard errors.

    Examples
    --------
    >>> one, three = Shape(1, "identity"), Shape(3, "identity")
    >>> [str(decide({one: (0.0, 0.0), three: (gain, 0.01)}, 0.02, 1.0)) for gain in (0.025, 0.05)]
    ['1, identity', '3, identity']
    """
    first = next(iter(gains))
    good = [s for s, (gain, error) in gains.items() if gain > margin + errors * error]
    return max(good, key=lambda shape: gains[shape][0], default=first)


def map_of(shape: Shape, data: TrainingRows) -> TargetMap | None:
    """The map to a scale, from the rows that are used."""
    return None if shape.scale == "identity" else TargetMap.learn(shape.scale, data.y[data.used])


def trial(
    model: Any,
    program: Program,
    shape: Shape,
    data: TrainingRows,
    folds: list[Fold],
    epochs: float | None = None,
) -> Losses:
    """Losses of the rows that were held out of a short training."""
    program, target_map = replace(program, components=shape.components), map_of(shape, data)
    y = data.y if target_map is None else target_map.forward(data.y)
    plans = [
        replace(plan, settings=_shorter(plan.settings, EPOCHS if epochs is None else epochs))
        for plan in make_plans(
            model, folds, data.weights, data.groups, data.seed, batch_size=program.batch_size
        )
    ]
    robust = getattr(program.network, "clips_inputs", False)
    bank = train(program, Table.from_arrays(data.X, y, robust=robust), plans, n_jobs=1)
    ensemble = Ensemble(bank, model.coverage, "snm", support=data.support, target_map=target_map)
    rest = (np.arange(len(folds)), data.X, data.y, data.weights, "map")
    found = calibrate(ensemble, folds, *rest, seed=data.seed)[1]
    assert found is not None  # noqa: S101 - folds hold rows out
    return losses_of(found, data.y, data.weights)


def losses_of(found: OutOfFold, y: FloatArray, weights: FloatArray | None = None) -> Losses:
    """Losses of rows by the networks that have not seen them."""
    some = np.unique(np.linspace(0, len(found.rows) - 1, _MEASURED).astype(int))
    rows = found.rows[some]
    tail = max((1 - found.coverage) / 2, _TAIL_ROWS / len(found.rows))
    levels = np.array([tail, 1 - tail, *_LEVELS])[:, None]
    off = y[rows] - found.calibrated[some].ppf(levels)
    pinball = np.maximum(levels * off, (levels - 1) * off)
    return Losses(
        pinball[:2].sum(axis=0) / tail,
        pinball[2:].mean(axis=0),
        (y[rows] - found.point[rows]) ** 2,
        np.ones(len(rows)) if weights is None else weights[rows],
    )


def _shorter(settings: Any, part: float) -> Any:
    """Settings for a part of the epochs."""
    epochs = max(1, int(np.ceil(part * settings.epochs)))
    return settings._replace(epochs=epochs, check_every=max(1, epochs // 200))
