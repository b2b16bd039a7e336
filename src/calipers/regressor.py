"""IntervalRegressor: the scikit-learn estimator over the bank of networks. Wiring only."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval as Within
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, validate_data

from calipers.aggregation import AGGREGATORS
from calipers.bank import SCHEDULES, Bank, Plan, Program, Settings, Table, spawn_seeds, train
from calipers.ensemble import Ensemble
from calipers.networks import ACTIVATIONS, MLP
from calipers.objectives import LOSSES, LossSettings, Objective
from calipers.predictor import FLOATS, IntervalPredictor
from calipers.progress import progress

FloatArray = NDArray[np.float64]

EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a weight equals repeated rows within a batch, but not in which rows meet in a batch"
    ),
}
"""Checks of ``sklearn.utils.estimator_checks`` that do not hold, each with its reason."""

_POSITIVE = Within(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Within(Real, 0, None, closed="left")
_COUNT = Within(Integral, 1, None, closed="left")


class IntervalRegressor(IntervalPredictor):
    """Regression with a prediction interval around every point, from an ensemble of networks.

    Parameters
    ----------
    coverage : float, default 0.95
        Probability with which an interval is to hold the target.
    loss : str or Objective, default "qd+"
        What the networks are trained for: a key of ``calipers.objectives.LOSSES``, or an
        ``Objective`` of one's own.
    aggregation : str, default "snm"
        How members become one prediction: "snm", a mixture of split normals; "sem" and "std",
        mean bounds widened by standard errors or deviations; "mean"; "none" for one network.
    n_networks : int, default 5
        Members of the ensemble.
    hidden_layers : sequence of int, default (50, 50)
        Units of each hidden layer.
    activation : str, default "relu"
        A key of ``calipers.networks.ACTIVATIONS``.
    network : callable, optional
        Factory of Equinox modules in place of ``hidden_layers`` and ``activation``: a hashable
        ``network(in_size, out_size, *, key)``, see ``calipers.networks.Network``.
    epochs : int, optional
        Passes over the training rows; by default as many as make about 5,000 steps, within 20 to
        1,000.
    batch_size : int, default 100
        Rows of a step.
    learning_rate : float, default 0.005
        Adam's rate at the first step.
    schedule : str, default "cosine"
        How the rate falls: "exponential", "cosine" or "constant".
    decay_rate, decay_steps : float, default 1 and 50
        Factor of the exponential schedule and the steps after which it applies.
    weight_decay : float, default 0
        Decoupled decay of the weights.
    clip_norm : float, optional
        Largest norm of a gradient.
    adversarial_step : float, default 0
        Length of adversarial steps in standardised inputs; 0 for no adversarial examples.
    coverage_weight : float, optional
        Importance of coverage against width: lambda_1 of "qd+", lambda of "qd". The default
        depends on the loss.
    point_weight : float, default 0.3
        Importance of the point estimate, lambda_2.
    crossing_weight : float, default 10
        Penalty on a point outside its bounds, xi.
    softness : float, default 160
        Steepness of the soft capture of "qd+" and "qd".
    patience : int, optional
        Stop a network after so many epochs without a better loss on its validation rows, and
        restore its best weights. No early stopping by default.
    validation_fraction : float, default 0.1
        Share of the rows that each network sets aside, at random, when there is ``patience``.
    retries : int, default 9
        How often a network that fails is trained anew.
    warm_start : bool, default False
        Whether ``fit`` goes on from the weights and scaling of the fit before, to follow new rows.
    n_jobs : int, optional, default -1
        Threads, or workers of an enclosing ``joblib.parallel_config``; -1 for all.
    random_state : int, RandomState or None
        Seeds everything; the same number gives the same bits on one type of processor, whatever
        ``n_jobs``.
    verbose : int, default 1
        0 shows no progress bar; otherwise one appears on terminals and in notebooks.

    Attributes
    ----------
    bank_ : calipers.bank.Bank
        The trained networks, with their seeds, histories and failed attempts.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : array of str
        Names of the inputs, where ``X`` had any.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (300, 1))
    >>> y = X[:, 0] ** 2 + rng.normal(0, 0.2, 300)
    >>> model = IntervalRegressor(random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval([[1.0]])[0]
    >>> bool(lower < 1 < upper)
    True
    >>> model.predict_interval([[1.0], [0.0]], coverage=[0.5, 0.8]).shape
    (2, 2, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "coverage": [Within(Real, 0, 1, closed="neither")],
        "loss": [StrOptions(set(LOSSES)), Objective],
        "aggregation": [StrOptions(set(AGGREGATORS))],
        "n_networks": [_COUNT],
        "hidden_layers": ["array-like"],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "network": [callable, None],
        "epochs": [_COUNT, None],
        "batch_size": [_COUNT],
        "learning_rate": [_POSITIVE],
        "schedule": [StrOptions(set(SCHEDULES))],
        "decay_rate": [_POSITIVE],
        "decay_steps": [_POSITIVE],
        "weight_decay": [_NOT_NEGATIVE],
        "clip_norm": [_POSITIVE, None],
        "adversarial_step": [_NOT_NEGATIVE],
        "coverage_weight": [_NOT_NEGATIVE, None],
        "point_weight": [Within(Real, 0, 1, closed="both")],
        "crossing_weight": [_NOT_NEGATIVE],
        "softness": [_POSITIVE],
        "patience": [_COUNT, None],
        "validation_fraction": [Within(Real, 0, 1, closed="neither")],
        "retries": [Within(Integral, 0, None, closed="left")],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        coverage: float = 0.95,
        loss: str | Objective = "qd+",
        aggregation: str = "snm",
        n_networks: int = 5,
        hidden_layers: Sequence[int] = (50, 50),
        activation: str = "relu",
        network: Callable[..., Any] | None = None,
        epochs: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.005,
        schedule: str = "cosine",
        decay_rate: float = 1.0,
        decay_steps: float = 50,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        adversarial_step: float = 0.0,
        coverage_weight: float | None = None,
        point_weight: float = 0.3,
        crossing_weight: float = 10.0,
        softness: float = 160.0,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        retries: int = 9,
        warm_start: bool = False,
        n_jobs: int | None = -1,
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.coverage = coverage
        self.loss = loss
        self.aggregation = aggregation
        self.n_networks = n_networks
        self.hidden_layers = hidden_layers
        self.activation = activation
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.decay_rate = decay_rate
        self.decay_steps = decay_steps
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.adversarial_step = adversarial_step
        self.coverage_weight = coverage_weight
        self.point_weight = point_weight
        self.crossing_weight = crossing_weight
        self.softness = softness
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.retries = retries
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the ensemble.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs: finite numbers, also as a pandas or polars frame.
        y : array-like of shape (n_samples,)
            Targets, in any unit.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight 0 is left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data break a rule; the message says which.
        calipers.bank.TrainingFailedError
            If networks keep failing, see ``retries``.
        """
        self._validate_params()
        self._check_combination()
        before = vars(self).pop("ensemble_", None)  # an interrupted fit must not leave half of two
        previous = before.bank if self.warm_start and before is not None else None
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(
                f"y holds several targets (shape {np.shape(y)}), and a model predicts one: fit one "
                "model per target, for instance by sklearn.multioutput.MultiOutputRegressor"
            )
        X, y = validate_data(self, X, y, reset=previous is None, dtype=FLOATS, y_numeric=True)
        if previous is not None and len(previous) != self.n_networks:
            raise ValueError(
                f"warm_start goes on with the {len(previous)} networks of the last fit, "
                f"got n_networks={self.n_networks}"
            )
        weights = None if sample_weight is None else _weights(X, sample_weight)
        units = None if previous is None else previous.units
        table = Table.from_arrays(X, np.asarray(y, np.float64), units)
        plans = self._plans(table, weights, previous)
        total = sum(plan.settings.epochs for plan in plans)
        with progress("training", total, visible=bool(self.verbose)) as report:
            bank = train(
                self._program(X.shape[1]),
                table,
                plans,
                n_jobs=self.n_jobs,
                retries=self.retries,
                report=report,
            )
        self.ensemble_ = Ensemble(bank, self.coverage, self.aggregation)
        return self

    def _check_combination(self) -> None:
        if self.aggregation == "none" and self.n_networks > 1:
            raise ValueError(
                "aggregation='none' leaves networks as they are, which is one prediction only for "
                f"n_networks=1, got n_networks={self.n_networks}"
            )

    @property
    def _objective(self) -> Objective:
        return LOSSES[self.loss] if isinstance(self.loss, str) else self.loss

    def _program(self, in_size: int) -> Program:
        return Program(
            self.network or MLP(tuple(int(n) for n in self.hidden_layers), self.activation),
            self._objective,
            in_size,
            self.batch_size,
            self.schedule,
            clipping=self.clip_norm is not None,
            adversarial=self.adversarial_step > 0,
        )

    def _settings(self, rows: int) -> Settings:
        coverage_weight = self.coverage_weight
        if coverage_weight is None:
            coverage_weight = self._objective.coverage_weight
        return Settings(
            learning_rate=self.learning_rate,
            decay_rate=self.decay_rate,
            decay_steps=self.decay_steps,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm or np.inf,
            adversarial_step=self.adversarial_step,
            epochs=self.epochs or int(np.clip(5000 * self.batch_size / rows, 20, 1000)),
            patience=self.patience or 0,
            loss=LossSettings(
                coverage=self.coverage,
                coverage_weight=coverage_weight,
                point_weight=self.point_weight,
                crossing_weight=self.crossing_weight,
                softness=self.softness,
            ),
        )

    def _plans(self, table: Table, weights: FloatArray | None, previous: Bank | None) -> list[Plan]:
        """One plan per member; each sets rows of its own aside if it is to stop early."""
        rows = np.arange(table.rows) if weights is None else np.flatnonzero(weights)
        scaling = table.scaling(rows, _picked(weights, rows))
        entropy = int(check_random_state(self.random_state).randint(2**31))
        plans = []
        for member, seed in enumerate(spawn_seeds(entropy, self.n_networks)):
            kept, held_out = rows, rows[:0]
            if self.patience:
                order = np.random.default_rng(seed).permutation(rows)
                count = int(np.ceil(self.validation_fraction * len(rows)))
                held_out, kept = np.sort(order[:count]), np.sort(order[count:])
            plans.append(
                Plan(
                    seed,
                    kept,
                    _picked(weights, kept),
                    held_out,
                    _picked(weights, held_out),
                    self._settings(len(kept)),
                    scaling if previous is None else previous.scaling_of(member),
                    None if previous is None else previous.weights_of(member),
                )
            )
        return plans


def _weights(X: FloatArray, sample_weight: ArrayLike) -> FloatArray | None:
    """Weights with mean 1 over the rows that count; None where all are equal."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    return weights / weights[weights > 0].mean()


def _picked(weights: FloatArray | None, rows: Any) -> FloatArray | None:
    return None if weights is None else weights[rows]
