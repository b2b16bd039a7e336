"""IntervalRegressor: the scikit-learn estimator over the bank of networks. Wiring only."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import PredefinedSplit
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils._param_validation import Interval as Within
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from calipers.aggregation import AGGREGATORS
from calipers.bank import (
    SCHEDULES,
    Bank,
    BankPoints,
    Plan,
    Points,
    Program,
    Table,
    Upgraded,
    around_zero,
    error_table,
    train,
)
from calipers.crossfit import Fold, calibrate, make_folds, unseen_points
from calipers.ensemble import DISTRIBUTIONS, Ensemble
from calipers.networks import ACTIVATIONS, Around
from calipers.objectives import LOSSES, Objective
from calipers.predictor import IntervalPredictor
from calipers.preprocessing import TableEncoder
from calipers.progress import progress
from calipers.recipe import Recipe

FloatArray = NDArray[np.float64]

EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a weight equals repeated rows within a batch, but not in which rows meet in a batch"
    ),
}
"""Checks of ``sklearn.utils.estimator_checks`` that do not hold, each with its reason."""

_PAPER = {
    "loss": "qd+",
    "cv": None,
    "n_networks": 5,
    "hidden_layers": (50, 50),
    "activation": "relu",
    "waves": 0,
    "batch_size": 100,
    "learning_rate": 0.005,
    "schedule": "exponential",
    "weight_decay": 0.0,
    "averaging": 0.0,
    "clip_norm": None,
    "point_weight": 0.3,
    "patience": None,
}
_UNKNOWN_ROWS = (
    "these are not the rows that points was fitted on in folds, so calibration could take rows "
    "that it knows for new ones: pass those rows, or say fresh=True if it has seen none of these, "
    "or set cv=None and conformalize on rows that it has not seen"
)
_TRAINING = 0.9  # part of a time budget; the rest is for calibration
_POSITIVE = Within(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Within(Real, 0, None, closed="left")
_COUNT = Within(Integral, 1, None, closed="left")


class IntervalRegressor(Recipe, IntervalPredictor):
    """Regression with a calibrated prediction interval around every point.

    An ensemble of neural networks is trained on folds of the rows. Each row is judged by the
    networks that have not seen it, and those judgements correct the predictive distribution, so
    that intervals of any coverage are honest. The defaults need no tuning;
    ``IntervalRegressor.paper()`` gives the method of the paper instead.

    Parameters
    ----------
    coverage : float, default 0.95
        Probability with which an interval is to hold the target.
    preprocessor : TableEncoder, optional
        Makes numbers of tables with categories, dates and missing values; a copy of it is fitted
        with the model and saved in its folder. Without one, inputs are finite numbers.
    loss : str or Objective, default "density"
        What the networks are trained for: a key of ``calipers.objectives.LOSSES``, or an
        ``Objective`` of one's own.
    aggregation : str, default "snm"
        How members become one prediction: "snm", a mixture of split normals; "normal", one of
        normals; "sem" and "std", mean bounds widened by standard errors or deviations; "mean";
        "none" for one network.
    cv : int, scikit-learn splitter or None, default 5
        Folds for calibration. None trains every network on all rows and calibrates nothing.
    n_networks : int, default 10
        Members of the ensemble, spread evenly over the folds; two or more for each fold let
        calibration account for the pool being better than its parts.
    hidden_layers : sequence of int, default (128, 128, 128)
        Units of each hidden layer.
    activation : str, default "silu"
        A key of ``calipers.networks.ACTIVATIONS``.
    waves : int, default 8
        Periodic embeddings of each input with more than two values, fewer where rows are few or
        inputs many; 0 for a plain network.
    network : callable, optional
        Factory of Equinox modules in place of the three before: a hashable
        ``network(in_size, out_size, *, key)``, see ``calipers.networks.Network``.
    epochs : int, optional
        Passes over the training rows, at most; by default they grow with the data.
    time_budget : float, optional
        Seconds that ``fit`` may take. Networks train for fewer epochs if they must, each for one
        at least, also where compiling the first program of its kind takes longer than that.
    batch_size : int, optional
        Rows of a step; by default 64, and more from 16,000 rows on.
    learning_rate : float, default 0.003
        Adam's rate at the first step.
    schedule : str, default "cosine"
        How the rate falls: "exponential", "cosine" or "constant".
    decay_rate, decay_steps : float, default 1 and 50
        Factor of the exponential schedule and the steps after which it applies.
    weight_decay : float, default 0.01
        Decoupled decay of the weights.
    averaging : float, default 0.995
        Share of the running average of the weights that one step leaves; 0 for no average.
    clip_norm : float or None, default 1
        Largest norm of a gradient; None for no bound.
    adversarial_step : float, default 0
        Length of adversarial steps in standardised inputs; 0 for no adversarial examples.
    coverage_weight : float, optional
        Importance of coverage against width: lambda_1 of "qd+", lambda of "qd". The default
        depends on the loss.
    point_weight : float, optional
        Importance of the point estimate: lambda_2 of "qd+", the share of squared error in
        "interval score", the share of the CRPS in "density". The default depends on the loss: 0.95
        for "density", 0.65 for others.
    crossing_weight : float, default 10
        Penalty on a point outside its bounds, xi of "qd+".
    softness : float, default 160
        Steepness of the soft capture of "qd+" and "qd".
    patience : int, "auto" or None, default "auto"
        Stop a network after so many epochs without a better loss on rows that it sets aside, and
        restore its best weights; "auto" waits for a fifth of all epochs, None never stops.
    validation_fraction : float, default 0.1
        Share of its rows that each network sets aside, at random, to know when to stop.
    unsupported : {"inf", "raise"}, default "inf"
        What ``predict_interval`` does when the rows are too few for the coverage asked.
    retries : int, default 9
        How often a network that fails is trained anew.
    warm_start : bool, default False
        Whether ``fit`` goes on from the weights and scaling of the fit before, to follow new rows.
        Calibration then takes the rows to be new: rows that an earlier fit has seen would be
        judged by networks that know them.
    n_jobs : int, optional, default -1
        Threads, or workers of an enclosing ``joblib.parallel_config``; -1 for all.
    random_state : int, RandomState or None
        Seeds everything; the same number gives the same bits on one type of processor, whatever
        ``n_jobs``.
    verbose : int, default 1
        0 shows no progress bar; otherwise one appears on terminals and in notebooks.

    Attributes
    ----------
    ensemble_ : calipers.ensemble.Ensemble
        The trained networks (``ensemble_.bank``, with their seeds, histories and failed attempts)
        and the calibration.
    preprocessor_ : TableEncoder
        The fitted preprocessor, where there is one.
    inputs_ : tuple of Column
        What training saw in each column of ``X``: kind, range, categories.
    target_ : Column
        What it saw in ``y``.
    about_ : dict
        When, on how many rows and with which versions the model was fitted; plain JSON, saved
        along, to which entries of one's own may be added.
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
    >>> model = IntervalRegressor(n_networks=5, epochs=50, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval([[1.0]])[0]
    >>> bool(lower < 1 < upper)
    True
    >>> model.predict_interval([[1.0], [0.0]], coverage=[0.5, 0.8]).shape
    (2, 2, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "coverage": [Within(Real, 0, 1, closed="neither")],
        "preprocessor": [TableEncoder, None],
        "loss": [StrOptions(set(LOSSES)), Objective],
        "aggregation": [StrOptions(set(AGGREGATORS))],
        "cv": [Within(Integral, 2, None, closed="left"), HasMethods(["split"]), None],
        "n_networks": [_COUNT],
        "hidden_layers": ["array-like"],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "waves": [Within(Integral, 0, None, closed="left")],
        "network": [callable, None],
        "epochs": [_COUNT, None],
        "time_budget": [_POSITIVE, None],
        "batch_size": [_COUNT, None],
        "learning_rate": [_POSITIVE],
        "schedule": [StrOptions(set(SCHEDULES))],
        "decay_rate": [_POSITIVE],
        "decay_steps": [_POSITIVE],
        "weight_decay": [_NOT_NEGATIVE],
        "averaging": [Within(Real, 0, 1, closed="left")],
        "clip_norm": [_POSITIVE, None],
        "adversarial_step": [_NOT_NEGATIVE],
        "coverage_weight": [_NOT_NEGATIVE, None],
        "point_weight": [Within(Real, 0, 1, closed="both"), None],
        "crossing_weight": [_NOT_NEGATIVE],
        "softness": [_POSITIVE],
        "patience": [_COUNT, StrOptions({"auto"}), None],
        "validation_fraction": [Within(Real, 0, 1, closed="neither")],
        "unsupported": [StrOptions({"inf", "raise"})],
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
        preprocessor: TableEncoder | None = None,
        loss: str | Objective = "density",
        aggregation: str = "snm",
        cv: Any = 5,
        n_networks: int = 10,
        hidden_layers: Sequence[int] = (128, 128, 128),
        activation: str = "silu",
        waves: int = 8,
        network: Callable[..., Any] | None = None,
        epochs: int | None = None,
        time_budget: float | None = None,
        batch_size: int | None = None,
        learning_rate: float = 0.003,
        schedule: str = "cosine",
        decay_rate: float = 1.0,
        decay_steps: float = 50,
        weight_decay: float = 0.01,
        averaging: float = 0.995,
        clip_norm: float | None = 1.0,
        adversarial_step: float = 0.0,
        coverage_weight: float | None = None,
        point_weight: float | None = None,
        crossing_weight: float = 10.0,
        softness: float = 160.0,
        patience: int | str | None = "auto",
        validation_fraction: float = 0.1,
        unsupported: str = "inf",
        retries: int = 9,
        warm_start: bool = False,
        n_jobs: int | None = -1,
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.coverage = coverage
        self.preprocessor = preprocessor
        self.loss = loss
        self.aggregation = aggregation
        self.cv = cv
        self.n_networks = n_networks
        self.hidden_layers = hidden_layers
        self.activation = activation
        self.waves = waves
        self.network = network
        self.epochs = epochs
        self.time_budget = time_budget
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.decay_rate = decay_rate
        self.decay_steps = decay_steps
        self.weight_decay = weight_decay
        self.averaging = averaging
        self.clip_norm = clip_norm
        self.adversarial_step = adversarial_step
        self.coverage_weight = coverage_weight
        self.point_weight = point_weight
        self.crossing_weight = crossing_weight
        self.softness = softness
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.unsupported = unsupported
        self.retries = retries
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """The method of the paper, SNM-QD+, with parameters of one's own on top.

        Five ReLU networks of 50-50 trained for QD+ on all rows, Adam with an exponential schedule,
        batches of 100, no early stopping, no calibration. The paper searches ``learning_rate``,
        ``decay_rate``, ``coverage_weight``, ``point_weight`` and ``epochs`` for each dataset.

        Examples
        --------
        >>> IntervalRegressor.paper(epochs=662, learning_rate=0.009).loss
        'qd+'
        """
        return cls(**(_PAPER | parameters))

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train the ensemble and calibrate it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs: finite numbers, also as a pandas or polars frame; with a ``preprocessor`` a
            table of any columns.
        y : array-like of shape (n_samples,)
            Targets, in any unit.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight 0 is left out.
        groups : array-like of shape (n_samples,), optional
            Labels of rows that belong together, such as repeated measurements of one subject; no
            fold parts them.

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
        began = time.time()
        self._validate_params()
        self._check_combination()
        before = vars(self).get("ensemble_")
        previous = before.bank if self.warm_start and before is not None else None
        if isinstance(previous, Upgraded):
            raise ValueError(
                "an upgraded model cannot go on from where it is: set warm_start=False"
            )
        self.__dict__.pop("ensemble_", None)  # an interrupted fit must not leave half of two
        X, y, weights, labels = self._data(X, y, sample_weight, groups, previous is None)
        table = Table.from_arrays(X, y, None if previous is None else previous.units)
        seed = int(check_random_state(self.random_state).randint(2**31))
        if previous is None:
            self.about_["split"] = {"seed": seed, "rows": _fingerprint(X, y, weights, labels)}
        rows = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
        folds = make_folds(self.cv, rows, X, y, labels, self.n_networks, seed)
        fold_of = np.arange(self.n_networks) % len(folds)
        batch_size = self._batch_size(len(rows))
        chosen = [folds[i] for i in fold_of]
        plans = self._plans(chosen, batch_size, weights, labels, seed, previous)
        program = self._program(X, len(rows))
        if previous is not None:  # more rows may ask for more waves, but these are trained
            program = replace(program, network=self.network or previous.program.network)
        bank = self._trained(program, table, plans, began)
        self.ensemble_ = self._calibrated(bank, folds, fold_of, X, y, weights)
        return self

    def upgrade(
        self,
        points: Any,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        adapt: float = 0.0,
        fresh: bool = False,
    ) -> Self:
        """Add intervals to networks that were trained for points, which they keep.

        The second of two steps of learning. To each network of ``points`` comes one that learns
        the interval around its point, from what points miss by on rows that their network has not
        seen. The networks of ``points`` do not change, so nothing can be forgotten.

        Parameters
        ----------
        points : IntervalRegressor
            Fitted with ``loss="mse"``; left as it is. For networks of PyTorch see
            ``calipers.torch.upgrade``.
        X, y, sample_weight, groups : array-like
            As in ``fit``: the very rows ``points`` was fitted on, whose folds are used again, or
            rows of which it has seen none.
        adapt : float, default 0
            How far a point may move to fit ``y`` better, at most, in root mean squared errors of
            the points; 0 keeps them.
        fresh : bool, default False
            Says that ``points`` has seen none of these rows, which calibration must be able to
            take for granted where they are not the rows of its fit.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If calibration could not be honest, or a parameter breaks a rule.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (300, 1))
        >>> y = X[:, 0] ** 2 + rng.normal(0, 0.2, 300)
        >>> settings = {"n_networks": 5, "epochs": 30, "random_state": 0}
        >>> points = IntervalRegressor(loss="mse", **settings).fit(X, y)
        >>> model = IntervalRegressor(**settings).upgrade(points, X, y)
        >>> bool(np.allclose(model.predict(X), points.predict(X), atol=1e-5))
        True
        >>> lower, upper = model.predict_interval([[1.0]])[0]
        >>> bool(lower < 1 < upper)
        True
        """
        began = time.time()
        self._validate_params()
        self._check_combination()
        if not adapt >= 0:
            raise ValueError(f"adapt must not be negative, got {adapt}")
        objective = self._objective.around_point
        self.__dict__.pop("ensemble_", None)
        split, source = self._take_points(points)
        X, y, weights, labels = self._data(X, y, sample_weight, groups, split is None)
        rows = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
        seed = int(check_random_state(self.random_state).randint(2**31))
        folds = make_folds(self.cv, rows, X, y, labels, self.n_networks, seed)
        known, seen = source(X)
        given = None
        if split is None and points.held_out is not None:
            cv = PredefinedSplit(points.held_out[rows])
            given = make_folds(cv, rows, X, y, labels, self.n_networks, seed)
        elif split and split["rows"] == _fingerprint(X, y, weights, labels):
            given = make_folds(points.cv, rows, X, y, labels, len(known), split["seed"])
        elif not fresh and self.cv is not None:
            raise ValueError(_UNKNOWN_ROWS)
        if given is not None:
            folds = folds if self.cv is None else given
            known = unseen_points(known, given, np.arange(len(known)) % len(given))
        table = error_table(seen, y - np.atleast_2d(known).mean(axis=0), weights)
        fold_of = np.arange(self.n_networks) % len(folds)
        batch_size = self._batch_size(len(rows))
        plans = self._plans([folds[i] for i in fold_of], batch_size, weights, labels, seed)
        program = self._program(seen, len(rows))
        around = Around(program.network, cast(int, objective.output.point_at), float(adapt))
        program = replace(program, network=around, objective=objective)
        heads = self._trained(program, table, [around_zero(plan, table) for plan in plans], began)
        bank = Upgraded(source, heads)
        self.ensemble_ = self._calibrated(bank, folds, fold_of, X, y, weights)
        return self

    def _take_points(self, points: Any) -> tuple[dict[str, Any] | None, BankPoints | Points]:
        """How the rows of a model of points were split, None if it is none of ours; its points.

        Its reading of the inputs becomes one's own.
        """
        if not isinstance(points, IntervalRegressor):
            return None, points
        check_is_fitted(points, "ensemble_")
        bank = points.ensemble_.bank
        if not isinstance(bank, Bank) or bank.program.objective.head != "point":
            raise ValueError(
                "points must be a model fitted for points alone, IntervalRegressor(loss='mse'), "
                f"got one with loss={points.loss!r}"
            )
        if len(bank) != self.n_networks:
            raise ValueError(
                f"every network of points gets an interval: n_networks must be {len(bank)}, "
                f"got {self.n_networks}"
            )
        for name in ("preprocessor_", "inputs_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(points, name):
                setattr(self, name, getattr(points, name))
        known = points.cv is not None
        return points.about_.get("split", {}) if known else {}, BankPoints(bank)

    def _trained(self, program: Program, table: Table, plans: Sequence[Plan], began: float) -> Bank:
        total = sum(plan.settings.epochs for plan in plans)
        with progress("training", total, visible=bool(self.verbose)) as report:
            return train(
                program,
                table,
                plans,
                n_jobs=self.n_jobs,
                retries=self.retries,
                report=report,
                deadline=began + _TRAINING * (self.time_budget or math.inf),
            )

    def _calibrated(
        self,
        bank: Bank | Upgraded,
        folds: Sequence[Fold],
        fold_of: Any,
        X: FloatArray,
        y: FloatArray,
        weights: FloatArray | None,
    ) -> Ensemble:
        ensemble = Ensemble(bank, self.coverage, self.aggregation, n_jobs=self.n_jobs)
        if self.cv is None or self._objective.head == "point":
            return ensemble
        found = calibrate(ensemble, folds, fold_of, X, y, weights)
        return replace(ensemble, calibrations=() if found is None else (found,))

    def _check_combination(self) -> None:
        if self.aggregation == "none" and self.n_networks > 1:
            raise ValueError(
                "aggregation='none' leaves networks as they are, which is one prediction only for "
                f"n_networks=1, got n_networks={self.n_networks}"
            )
        if self.aggregation not in DISTRIBUTIONS and self.cv is not None:
            raise ValueError(
                f"aggregation={self.aggregation!r} gives no distribution to calibrate: set cv=None"
            )
        if isinstance(self.cv, Integral) and self.n_networks % int(self.cv):
            raise ValueError(
                f"every fold has as many networks: n_networks must be a multiple of cv={self.cv}, "
                f"got {self.n_networks}"
            )

    def _data(self, X: Any, y: Any, sample_weight: Any, groups: Any, reset: bool) -> Any:
        """Inputs, targets, weights and group numbers, checked."""
        shape: tuple[int, ...] = getattr(y, "shape", ())
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y holds several targets (shape {shape}), and a model predicts one: fit one "
                "model per target, for instance by sklearn.multioutput.MultiOutputRegressor"
            )
        weights = None if sample_weight is None else _weights(X, sample_weight)
        X, y = self._learn_inputs(X, y, weights, reset)
        if groups is None:
            return X, np.asarray(y, np.float64), weights, None
        groups = column_or_1d(groups)
        check_consistent_length(X, groups)
        return X, np.asarray(y, np.float64), weights, np.unique(groups, return_inverse=True)[1]


def _weights(X: Any, sample_weight: ArrayLike) -> FloatArray | None:
    """Weights with mean 1 over the rows that count; None where all are equal."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    return weights / weights[weights > 0].mean()


def _fingerprint(X: FloatArray, y: FloatArray, weights: FloatArray | None, labels: Any) -> str:
    """Name of exactly these rows, for what was once done with them."""
    digest = hashlib.sha256()
    for part in (X, y, None if weights is None else weights > 0, labels):
        digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
