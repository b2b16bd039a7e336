"""IntervalRegressor: the scikit-learn estimator over an ensemble of networks. Wiring only."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from calipers import storage
from calipers._candidates import choose_shape
from calipers._checks import FloatArray
from calipers._conformal import conformal_ensemble
from calipers._fitting import networks_to_continue, read_rows, train_ensemble, without_errors
from calipers._inputs import Inputs
from calipers._large import fit_blocks
from calipers._loading import model_from_dict, model_to_dict, stored_model
from calipers._parameters import PAPER, constraints
from calipers._points import errors_of_points, head_around_points
from calipers._together import Steps, alone
from calipers._tree_inputs import Rows, add_trees, with_known_trees
from calipers.aggregation import Interval
from calipers.bank import Table, error_table
from calipers.calibration import Learned, Unsupported
from calipers.cluster import is_lazy, lazily
from calipers.crossfit import OutOfFold
from calipers.distributions import Distribution, Support
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.networks import MLP, Around
from calipers.objectives import Objective
from calipers.optimizers import Adam
from calipers.prediction import (
    Prediction,
    Query,
    checked_levels,
    frame_like,
    interval_names,
    quantile_names,
)
from calipers.preprocessing import Column, TableEncoder
from calipers.rowblocks import RowBlocks
from calipers.training import SHORTHANDS, expanded, make_program, objective_of


class IntervalRegressor(RegressorMixin, BaseEstimator):
    """Regression with a calibrated prediction interval around every point.

    An ensemble of neural networks is trained on folds of the rows. The networks that have not seen
    a row predict it, and how far these out-of-fold predictions are off corrects the predictive
    distribution, so that intervals of any coverage are honest. The defaults need no tuning;
    ``IntervalRegressor.paper()`` gives the method of the paper instead.

    Parameters
    ----------
    coverage : float, default 0.95
        Probability with which an interval is to hold the target.
    loss : str or Objective, default "density"
        What the networks are trained for: a key of ``calipers.objectives.LOSSES``, or an object
        with its own numbers such as ``QDPlus(coverage_weight=0.98)``.
    network : str, MLP or callable, default "mlp"
        The networks: ``calipers.networks.MLP(hidden_layers=..., activation=..., frequencies=...)``,
        or a factory of Equinox modules, see ``calipers.networks.Network``.
    optimizer : str or Adam, default "adam"
        How they learn: ``calipers.optimizers.Adam(learning_rate=..., schedule=..., ...)``.
    aggregation : str, default "snm"
        How members become one prediction: "snm", a mixture of split normals; "normal", one of
        normals; "sem" and "std", mean bounds widened by standard errors or deviations; "mean";
        "none" for one network.
    calibration : str, default "width"
        How distributions are corrected by rows that were held out: "map", by one map of levels for
        all rows; "width", by how wide they are first, where rows show that it matters, and then by
        such a map; or another key of ``calipers.calibration.CALIBRATIONS``.
    cv : int, scikit-learn splitter or None, default 5
        Folds for calibration. None trains every network on all rows and calibrates nothing.
    n_networks : int, default 10
        Members of the ensemble, spread evenly over the folds; two or more for each fold let
        calibration account for the pool being better than its parts.
    epochs : int, optional
        Passes over the training rows, at most; by default they grow with the data.
    batch_size : int, optional
        Rows of a step; by default 64, and more from 16,000 rows on.
    time_budget : float, optional
        Seconds that training may take. Networks train for fewer epochs if they must, each for one
        at least, and a warning says so if they come less than half the way. Compiling the first
        program of its kind, and calibration, are not counted.
    patience : int, "auto" or None, default "auto"
        Stop a network after so many epochs without a better loss on rows that it sets aside, and
        restore its best weights; "auto" waits for a fifth of all epochs, or twice as long as the
        best weights took if that is less (but for 220 steps, a fifteenth of all, and ten epochs),
        None never stops.
    validation_fraction : float, default 0.1
        Share of its rows that each network sets aside, at random, to know when to stop.
    preprocessor : TableEncoder, "auto" or None, default "auto"
        Makes numbers of tables with categories, dates and missing values; a copy of it is fitted
        with the model and saved in its folder. "auto" takes a ``TableEncoder`` where ``X`` is a
        pandas or polars frame in which ``fit`` finds text, dates or missing values, and otherwise,
        as None always does, finite numbers as they are.
    bounds : "auto", None or pair of float or None, default "auto"
        Range that the target cannot leave, such as ``(0, None)`` or ``(0, 100)``: predicted mass
        beyond an end lies on the end. "auto" takes 0 as the lower end of a target that has never
        been negative, and an end at which many rows lie as a bound; it also finds targets that
        repeat the values of a lattice (counts, grades), which predictions then keep to, as they do
        with a pair. None takes every number to be possible. ``support_`` says what was found.
    unsupported : {"inf", "raise"}, default "inf"
        What ``predict_interval`` does when the rows are too few for the coverage asked.
    warm_start : bool, default False
        Whether ``fit`` goes on from the weights and scaling of the fit before, to follow new rows.
        Calibration then takes the rows to be new: rows that an earlier fit has seen would be
        predicted by networks that know them.
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
    reader_ : calipers._inputs.Inputs
        How inputs are read.
    preprocessor_ : TableEncoder
        The fitted preprocessor, where one is used.
    inputs_ : tuple of Column
        What training saw in each column of ``X``: kind, range, categories.
    target_ : Column
        What it saw in ``y``.
    support_ : calipers.distributions.Support
        Values that ``y`` is taken to be able to take, see ``bounds``; ``str(support_)`` says it in
        words.
    out_of_fold_ : calipers.crossfit.OutOfFold
        What the networks that have not seen a training row predict for it: ``point``, and
        ``interval(coverage)``. Not part of the model folder.
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

    ensemble_: Ensemble
    reader_: Inputs
    target_: Column
    about_: dict[str, Any]

    def __init__(
        self,
        *,
        coverage: float = 0.95,
        loss: str | Objective = "density",
        network: str | MLP | Callable[..., Any] = "mlp",
        optimizer: str | Adam = "adam",
        aggregation: str = "snm",
        calibration: str = "width",
        cv: Any = 5,
        n_networks: int = 10,
        epochs: int | None = None,
        batch_size: int | None = None,
        time_budget: float | None = None,
        patience: int | str | None = "auto",
        validation_fraction: float = 0.1,
        preprocessor: TableEncoder | str | None = "auto",
        bounds: Any = "auto",
        unsupported: Unsupported = "inf",
        warm_start: bool = False,
        n_jobs: int | None = -1,
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.coverage = coverage
        self.loss = loss
        self.network = network
        self.optimizer = optimizer
        self.aggregation = aggregation
        self.calibration = calibration
        self.cv = cv
        self.n_networks = n_networks
        self.epochs = epochs
        self.batch_size = batch_size
        self.time_budget = time_budget
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.preprocessor = preprocessor
        self.bounds = bounds
        self.unsupported = unsupported
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """The method of the paper, SNM-QD+, with parameters of one's own on top.

        Five ReLU networks of 50-50 trained for QD+ on all rows, Adam with an exponential schedule,
        batches of 100, no early stopping, no calibration. The paper searches
        ``optimizer__learning_rate``, ``optimizer__decay_rate``, ``loss__coverage_weight``,
        ``loss__point_weight`` and ``epochs`` for each dataset.

        Examples
        --------
        >>> model = IntervalRegressor.paper(epochs=662, optimizer__learning_rate=0.009)
        >>> model.loss, model.optimizer.learning_rate
        ('qd+', 0.009)
        """
        usual = {
            k: v for k, v in PAPER.items() if "__" not in k or k.split("__")[0] not in parameters
        }
        return cls().set_params(**(usual | parameters))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``deep`` adds those of nested objects, also where a name stands."""
        found: dict[str, Any] = super().get_params(deep=deep)
        for name in SHORTHANDS if deep else ():
            value = found[name]
            if isinstance(value, str) and value in SHORTHANDS[name]:
                nested = expanded(name, value).get_params()
                found |= {f"{name}__{key}": own for key, own in nested.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of nested objects as ``loss__softness``.

        A name such as ``loss="qd+"`` gives way to the object that it stands for when one of the
        object's parameters is set.
        """
        for name in SHORTHANDS:
            nested = any(key.startswith(f"{name}__") for key in params)
            value = params.get(name, getattr(self, name))
            if nested and isinstance(value, str) and value in SHORTHANDS[name]:
                params[name] = expanded(name, value)
        own = any(key.startswith("preprocessor__") for key in params)
        if own and params.get("preprocessor", self.preprocessor) == "auto":
            params["preprocessor"] = TableEncoder()
        super().set_params(**params)
        return self

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train the ensemble and calibrate it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs: a pandas or polars frame of any columns, or an array of finite numbers; see
            ``preprocessor``. Or ``RowBlocks``, or an array or frame of Dask, which are read in
            blocks: rows held out then take the place of folds, see ``calipers.rowblocks``.
        y : array-like of shape (n_samples,)
            Targets, in any unit; not with ``RowBlocks``, which have their own.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight 0 is left out.
        groups : array-like of shape (n_samples,), optional
            Labels of rows that belong together, such as repeated measurements of one subject; no
            fold parts them.

        Raises
        ------
        ValueError
            If a parameter or the data break a rule; the message says which.
        calipers.bank.TrainingFailedError
            If networks keep failing.
        """
        self.ensemble_ = alone(self, self._fit_steps(X, y, sample_weight, groups))
        return self

    def _fit_steps(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Steps[Ensemble]:
        """The steps of ``fit``, which several targets go together."""
        if isinstance(X, RowBlocks) or is_lazy(X):
            return fit_blocks(self, X, y, sample_weight, groups)
        previous = networks_to_continue(self)
        trees = vars(self).get("about_", {}).get("trees", {})
        target_map = None if previous is None else self.ensemble_.target_map
        data = read_rows(self, X, y, sample_weight, groups, reset=previous is None)
        if previous is None:
            self.about_["split"] = {"seed": data.seed, "rows": data.fingerprint}
        folds = data.folds(self.cv, self.n_networks)
        given = data
        data, folds = data.encoded_by_fold(folds, data.seed)
        rows = Rows(*without_errors(self, data), folds)
        program, first = make_program(self, data.X, len(data.used)), None
        if previous is None:
            rows, first = yield from add_trees(self, program, rows, given)
        elif self.reader_.forest is not None:
            self.about_["trees"] = trees
            rows = with_known_trees(self, rows, given, trees.get("rows", ""))
        data, goal, folds = rows
        if program.in_size < data.X.shape[1]:
            program = make_program(self, data.X, len(data.used))
        if previous is None:
            goals = data._replace(y=goal)
            program, target_map = yield from choose_shape(self, program, goals, folds, first)
        else:  # more rows may ask for more frequencies and components, but these are trained
            before = previous.program
            program = replace(program, network=before.network, components=before.components)
        units = None if previous is None else previous.units
        clips = getattr(program.network, "clips_inputs", False)
        if target_map is not None:  # of an earlier fit, it may know no targets that low
            goal = np.maximum(target_map.forward(goal), target_map.low)
        table = Table.from_arrays(data.X, goal, units, robust=clips)
        rest: dict[str, Any] = {"previous": previous, "target_map": target_map}
        return (yield from train_ensemble(self, program, table, data, folds, **rest))

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
        """Add intervals to a model that predicts points, which it keeps.

        The second of two steps of learning: networks learn the interval around a point, from what
        points miss by on rows that were held out. What gives the points does not change, so nothing
        can be forgotten.

        Parameters
        ----------
        points : regressor or IntervalRegressor
            A regressor of any library with scikit-learn's methods (a Pipeline, CatBoost, LightGBM):
            copies of it are fitted in the folds of ``cv``, to see how far it is off on rows that it
            does not know, and predictions are its own points: as it is if it is fitted, and else of
            a copy fitted on all rows. Or an ``IntervalRegressor`` fitted with ``loss="mse"``, to
            each network of which one for the interval comes. For networks of PyTorch see
            ``calipers.torch.upgrade``.
        X, y, sample_weight, groups : array-like
            As in ``fit``: the very rows ``points`` was fitted on, or with ``fresh`` rows of which
            it has seen none. A regressor gets ``X`` as it is, and the weights if its ``fit`` takes
            any.
        adapt : float, default 0
            How far a point may move to fit ``y`` better, at most, in root mean squared errors of
            the points; 0 keeps them.
        fresh : bool, default False
            Says that ``points`` has seen none of these rows, which calibration must be able to
            take for granted where they are not the rows of its fit. A regressor is then taken as it
            is, and nothing is fitted again.

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
        if not adapt >= 0:
            raise ValueError(f"adapt must not be negative, got {adapt}")
        around = head_around_points(self)
        source, data, folds, seen, errors = errors_of_points(
            self, points, X, y, sample_weight, groups, fresh
        )
        if objective_of(self).scales(data.y)[0] != "identity":
            raise ValueError(
                "the points that an upgrade keeps are on the target's own scale: set "
                "loss__scale='identity'"
            )
        data, errors = without_errors(self, data, errors)
        table = error_table(seen, errors, data.weights)
        program = make_program(self, seen, len(data.used))
        point_at = cast(int, HEADS[around].point_at)
        network = Around(program.network, point_at, float(adapt))
        program = replace(program, network=network, head=around)
        steps = train_ensemble(self, program, table, data, folds, source=source)
        self.ensemble_ = alone(self, steps)
        return self

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return constraints()

    @property
    def inputs_(self) -> tuple[Column, ...]:
        """What training saw in each column of ``X``."""
        return self.reader_.columns

    @property
    def preprocessor_(self) -> TableEncoder:
        """The fitted preprocessor, where there is one."""
        if self.reader_.encoder is None:
            raise AttributeError("the model was fitted without a preprocessor")
        return self.reader_.encoder

    @property
    def support_(self) -> Support:
        """Values that the target is taken to be able to take."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.support

    @property
    def out_of_fold_(self) -> OutOfFold:
        """Predictions of the training rows by the networks that have not seen them.

        Examples
        --------
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
        >>> model.out_of_fold_.point.shape, model.out_of_fold_.interval(0.8).shape
        ((100,), (100, 2))
        """
        check_is_fitted(self, "ensemble_")
        found: OutOfFold | None = vars(self).get("_out_of_fold")
        if found is None:
            raise AttributeError(
                "there are no out-of-fold predictions: fit makes them where cv is not None, and a "
                "saved model does not keep them"
            )
        return found

    @property
    def _ensemble(self) -> Ensemble:
        if "ensemble_" not in vars(self):  # looking it up in full takes longer than a network
            check_is_fitted(self, "ensemble_")
        return replace(self.ensemble_, n_jobs=self.n_jobs, unsupported=self.unsupported)

    def read(self, X: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Inputs as the networks take them, and which values training did not see."""
        check_is_fitted(self, "ensemble_")
        return self.reader_.read_and_check(self, X)

    def query(self, X: Any, query: Query) -> Prediction:
        """Answer a query about some rows: everything that is asked, from one pass.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        query : calipers.prediction.Query
            Coverages, quantiles, variance, members, density.

        Examples
        --------
        >>> from calipers.prediction import Query
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
        >>> list(model.query(X, Query(coverages=(0.9,), quantiles=(0.5,))).columns())
        ['prediction', 'lower_0.9', 'upper_0.9', 'quantile_0.5']
        """
        return self._ensemble.predict(self.reader_.read(self, X), query)

    def query_and_check(self, X: Any, query: Query) -> tuple[Prediction, NDArray[np.bool_]]:
        """Answer a query, and tell which values training did not see, see ``outside``."""
        numbers, outside = self.read(X)
        return self._ensemble.predict(numbers, query), outside

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Point estimates: the mean of the members' points, within the bounds of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs. For an array or a frame of Dask the answer is an array of Dask, not computed
            yet.
        return_std : bool
            Whether to give the predictive standard deviation too.

        Returns
        -------
        point : array of shape (n_samples,)
        std : array of shape (n_samples,)
            Only if ``return_std``.
        """
        if is_lazy(X):
            if not return_std:
                return lazily(self, "predict", X, {})
            both = lazily(self, "predict", X, {"return_std": True}, (2,))
            return both[:, 0], both[:, 1]
        found = self.query(X, Query(coverages=(), variance=return_std))
        return found.point if found.variance is None else (found.point, np.sqrt(found.variance))

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float | Sequence[float] | None = None,
        *,
        as_frame: bool = False,
    ) -> Any:
        """Prediction intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs. For an array or a frame of Dask the answer is one of Dask, not computed yet.
        coverage : float or sequence of float, optional
            Any coverages, without a new fit; by default the one the model was fitted for.
        as_frame : bool
            Give a frame with columns such as ``lower_0.95``, of polars where ``X`` is one and
            otherwise of pandas.

        Returns
        -------
        array of shape (n_samples, 2) or (n_samples, 2, n_coverages)
            Lower and upper bounds; the third axis is there if ``coverage`` is a sequence.

        Raises
        ------
        ValueError
            If the aggregation defines no interval of another coverage.
        """
        asked = self.coverage if coverage is None else coverage
        levels = checked_levels("coverage", asked)
        names = interval_names(levels) if as_frame else None
        if is_lazy(X):
            shape = (2, len(levels)) if np.ndim(asked) else (2,)
            options = {"coverage": coverage, "as_frame": as_frame}
            return lazily(self, "predict_interval", X, options, shape, names)
        bounds = cast(FloatArray, self.query(X, Query(tuple(levels))).intervals)
        if names is not None:
            return frame_like(X, bounds.swapaxes(1, 2).reshape(len(bounds), -1), names)
        return bounds if np.ndim(asked) else bounds[:, :, 0]

    def predict_quantiles(
        self, X: ArrayLike, quantiles: float | Sequence[float], *, as_frame: bool = False
    ) -> Any:
        """Quantiles of the predictive distribution; they never cross.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs. For an array or a frame of Dask the answer is one of Dask, not computed yet.
        quantiles : float or sequence of float
            Levels between 0 and 1.
        as_frame : bool
            Give a frame with columns such as ``quantile_0.1``, of polars where ``X`` is one and
            otherwise of pandas.

        Returns
        -------
        array of shape (n_samples, n_quantiles), or (n_samples,) for a single level
        """
        levels = checked_levels("quantiles", quantiles)
        names = quantile_names(levels) if as_frame else None
        if is_lazy(X):
            shape = (len(levels),) if np.ndim(quantiles) else ()
            options = {"quantiles": quantiles, "as_frame": as_frame}
            return lazily(self, "predict_quantiles", X, options, shape, names)
        values = cast(FloatArray, self.query(X, Query((), tuple(levels))).quantiles)
        if names is not None:
            return frame_like(X, values, names)
        return values if np.ndim(quantiles) else values[:, 0]

    def predict_dist(self, X: ArrayLike) -> Distribution:
        """Predictive distributions, one per row.

        Calibrated where the model is. Its ``aleatoric_var`` and ``epistemic_var`` are those of the
        members: the variance within networks, and the variance between them.
        """
        check_is_fitted(self, "ensemble_")
        return self._ensemble.distribution(self.reader_.read(self, X))

    def predict_var(self, X: ArrayLike) -> FloatArray:
        """Variance of the predictive distribution, of shape (n_samples,)."""
        return cast(FloatArray, self.query(X, Query((), variance=True)).variance)

    def predict_members(self, X: ArrayLike) -> Interval:
        """Each member's own bounds and point: ``lower``, ``point``, ``upper``, (members, rows)."""
        check_is_fitted(self, "ensemble_")
        return self._ensemble.members(self.reader_.read(self, X))

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """Which values training did not see, of shape (n_samples, n_features), see ``inputs_``.

        Predictions deserve less trust there: numbers and dates beyond the range of training; with a
        preprocessor also unseen categories, and missing values where there were none.
        """
        return self.read(X)[1]

    def pick(self, frame: Any) -> Any:
        """Columns that the model takes, from a pandas frame with any others and in any order.

        Raises
        ------
        calipers.preprocessing.DataError
            If columns are missing, or values that the model needs.
        """
        check_is_fitted(self, "ensemble_")
        return self.reader_.pick(frame, named=hasattr(self, "feature_names_in_"))

    def conformalize(
        self,
        X: Any,
        y: Any,
        *,
        keep: bool = False,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        groups: ArrayLike | None = None,
        by: str | int | Callable[[FloatArray], ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        shifted_to: Any = None,
        half_life: float | None = None,
    ) -> Self:
        """Calibrate on rows that ``fit`` has not seen, with the guarantee of split conformal.

        If these rows and new ones are exchangeable, an interval of coverage c holds a new target
        with probability at least c, whatever the model; see ``calipers.calibration``. What is found
        stands in ``about_["conformalized"]``: ``rows``, and how many independent rows of equal
        weight they are worth, ``effective_rows``.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Held-out rows.
        keep : bool
            Whether to calibrate on top of what is there, or in its place.
        row_weight : callable, optional
            For covariate shift: a function from rows to how much more likely they are where the
            model is used than among these; it is needed again at every prediction.
        groups : array-like of shape (n_samples,), optional
            Labels of rows that belong together. If groups and a new group are exchangeable, a row
            drawn from the new group is held with the probability asked; groups then count as rows
            do otherwise (hierarchical conformal prediction).
        by : str, int or callable, optional
            For the guarantee inside each kind of row: the name or number of an input, whose
            categories or bins are kinds; ``"predicted width"``; or a function from rows, as the
            networks take them, to labels, with which a model cannot be saved. Kinds with too few
            rows for ``coverage`` have the guarantee of all rows together.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of these rows; coverage then refers to rows in proportion to them, and is
            approximate.
        shifted_to : array-like of shape (n_new, n_features), optional
            Inputs from where the model is used. The ratio of densities is estimated by a
            classifier, cross-fitted and clipped, so that the guarantee is approximate.
        half_life : float, optional
            For rows in the order of time, the latest last: after so many further rows a row counts
            half (NexCP; Barber et al., 2023). Coverage is then at least what is asked less the
            weighted mean of how far the distributions of these rows are from that of new ones.
        """
        check_is_fitted(self, "ensemble_")
        options: dict[str, Any] = {"row_weight": row_weight, "groups": groups, "by": by}
        options |= {"sample_weight": sample_weight, "shifted_to": shifted_to}
        options["half_life"] = half_life
        self.ensemble_, found = conformal_ensemble(self, X, y, keep=keep, **options)
        self.about_ = {**self.about_, "conformalized": found}
        return self

    def update(self, X: Any, y: Any, *, delay: int = 0) -> Learned:
        """Follow a stream of rows whose targets have become known, so that coverage is kept.

        Intervals of every coverage, quantiles, densities and points adapt to how the targets have
        lately come out, whatever the drift, with nothing to choose; the networks stay as they are.
        Each row is predicted before the model learns from it. ``save`` keeps what was learnt.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Rows in the order of time, each given once.
        delay : int
            How many rows are predicted between a row and its target: each of these rows counts as
            predicted by what was known so many rows before it. The coverage that is kept is then
            that of predictions as they were made. The first rows of a call have no earlier state
            than that of the model.

        Returns
        -------
        calipers.calibration.Learned
            What was predicted for each row before its target was known (``intervals(coverage)``,
            ``coverage(coverage)``), and ``alarm``: whether the rows have stopped being exchangeable
            with those of ``fit``.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (600, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.2, 600)
        >>> model = IntervalRegressor(n_networks=5, epochs=20, random_state=0).fit(X[:200], y[:200])
        >>> found = model.update(X[200:], y[200:] + 3)  # everything is 3 higher from now on
        >>> found.alarm, abs(found.coverage(0.9) - 0.9) < 0.02
        (True, True)
        >>> bool(abs(model.predict([[0.0]])[0] - 3) < 0.3)
        True
        """
        check_is_fitted(self, "ensemble_")
        X, y = self.reader_.read_with_targets(self, X, y)
        self.ensemble_, found = self._ensemble.learn(X, y, delay)
        return found

    def report(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        source: str | None = None,
    ) -> Path:
        """Write one HTML file that shows how far the intervals can be trusted.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Rows that ``fit`` has not seen, and their targets.
        path : path
            The file, replaced in one step if it exists. It needs no network and no other file.
        title, source : str, optional
            Headline, and where the rows come from.

        Returns
        -------
        Path
            The file. See ``calipers.report`` for what is in it.
        """
        from calipers import report  # the page is built on this class

        check_is_fitted(self, "ensemble_")
        return report.write(self, X, y, path, title=title, source=source)

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        coverage: float | Sequence[float] | None = None,
        *,
        dtype: str = "float64",
    ) -> Path:
        """Write the model as an ONNX file, for runtimes without Python.

        Preprocessing, scaling, networks, aggregation and calibration are in the graph; see
        ``calipers.onnx`` for its inputs and outputs.

        Parameters
        ----------
        path : path
            The file, replaced in one step if it exists.
        coverage : float or sequence of float, optional
            Coverages of the interval; by default the one the model was fitted for.
        dtype : {"float64", "float32"}
            Type of the numbers that go in.
        """
        try:
            from calipers.onnx import export  # an extra
        except ImportError as error:
            raise ImportError(
                f"to_onnx needs {error.name}: pip install 'calipers[onnx]'"
            ) from error

        if coverage is not None:
            checked_levels("coverage", coverage)
        check_is_fitted(self, "ensemble_")
        return export(
            self.ensemble_,
            path,
            coverage=coverage,
            dtype=dtype,
            inputs=[column.name for column in self.inputs_ if column.used],
            table=self.reader_.encoder,
            forest=self.reader_.forest,
            target=self.target_.name,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder: JSON and safetensors, nothing that can run code.

        A process killed at any moment leaves the model that was there before or the new one. A
        network or a loss of one's own is not stored, nor a regressor whose points are kept (see
        ``upgrade``); ``load`` takes the network and the regressor again.
        """
        check_is_fitted(self, "ensemble_")
        storage.write_model(folder, *model_to_dict(self))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        network: Callable[..., Any] | None = None,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        points: Any = None,
    ) -> Self:
        """Read a model that ``save`` wrote; it predicts the same bits.

        Parameters
        ----------
        folder : path
            Where the model is.
        network : callable, optional
            The factory of a network of one's own, for models that have one.
        row_weight : callable, optional
            The function that ``conformalize`` was given, for models that have one.
        points : regressor or Points, optional
            What gives the points of a model that was upgraded: the regressor, fitted as it was, or
            for networks of PyTorch what ``calipers.torch.load`` makes.

        Raises
        ------
        calipers.storage.ModelFileError
            If the folder holds no model, another kind of model, or a damaged one.
        """
        model, code = cls(), {"network": network, "row_weight": row_weight, "points": points}
        with stored_model(folder, cls) as (document, arrays):
            model_from_dict(model, document, arrays, **code)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        table = isinstance(self.preprocessor, TableEncoder)  # "auto" takes arrays of numbers only
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = table
        return tags
