"""IntervalRegressor, the scikit-learn estimator: it only wires the other modules together."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from calipers import storage
from calipers._arrays import FloatArray
from calipers._constraints import PAPER, constraints
from calipers._estimator import (
    Inputs,
    checked_target,
    conformal_ensemble,
    fit_steps,
    run_fit,
    upgrade_rows,
)
from calipers._serialization import model_from_dict, model_to_dict, stored_model
from calipers.aggregation import Interval
from calipers.calibration import Learned, Unsupported
from calipers.cluster import is_lazy, lazily
from calipers.crossfit import OutOfFold
from calipers.distributions import Bounds, Distribution, Support
from calipers.ensemble import Ensemble
from calipers.networks import MLP
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
from calipers.preprocessing import Column, OnUnread, TableEncoder, UnreadCells, warn_unread
from calipers.rowblocks import RowBlocks
from calipers.training import SHORTHANDS, expanded

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IntervalRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalRegressor(RegressorMixin, BaseEstimator):
    """Regression with calibrated prediction intervals.

    An ensemble of neural networks is trained on folds of the rows. Each row is then predicted by
    the networks that were not trained on it, and the errors of these out-of-fold predictions
    calibrate the predictive distribution, for intervals of any coverage. The defaults need no
    tuning; ``IntervalRegressor.paper()`` gives the method of the paper instead.

    Parameters
    ----------
    coverage : float, default 0.95
        Nominal coverage: the probability that an interval contains the target.
    loss : str or Objective, default "density"
        The training loss: a key of ``calipers.objectives.LOSSES``, or an object with parameters,
        such as ``QDPlus(coverage_weight=0.98)``.
    network : str, MLP or callable, default "mlp"
        The network: ``calipers.networks.MLP(hidden_layers=..., activation=..., frequencies=...)``,
        or a factory of Equinox modules, see ``calipers.networks.Network``.
    optimizer : str or Adam, default "adam"
        The optimizer: ``calipers.optimizers.Adam(learning_rate=..., schedule=..., ...)``.
    aggregation : str, default "snm"
        How the members are combined: "snm", a mixture of split normals; "normal", a mixture of
        normals; "sem" and "std", mean bounds widened by standard errors or standard deviations;
        "mean"; "none" for a single network. "snm" and "normal" are for losses that train bounds:
        networks that predict distributions, as by default, are combined as the mixture of these.
    calibration : str, default "width"
        How held-out rows correct the predictive distributions: "map", by one map of quantile levels
        for all rows; "width", first by a factor that depends on their width, where the rows show
        that it matters, and then by such a map; or another key of
        ``calipers.calibration.CALIBRATIONS``.
    cv : int, scikit-learn splitter or None, default 5
        Folds for calibration. None trains every network on all rows and does not calibrate.
    n_networks : int, default 10
        Members of the ensemble, distributed evenly over the folds. With at least two per fold,
        calibration accounts for the whole ensemble being better than the members of one fold.
    epochs : int, optional
        Maximum number of passes over the training rows; by default it depends on the data size.
    batch_size : int, optional
        Rows per optimizer step; by default 64, and more from 16,000 rows on.
    time_budget : float, optional
        Maximum training time in seconds. When it is exceeded, networks train for fewer epochs, at
        least one, with a warning if they reach less than half of the planned epochs. Compiling the
        first program of its kind, and calibration, are not counted.
    patience : int, "auto" or None, default "auto"
        Early stopping: stop a network after this many epochs without a better validation loss, and
        restore its best weights. "auto" is a fifth of all epochs, or as many as the best weights
        took if that is less; but at least ten epochs, and at least 220 steps or a fifteenth of all
        epochs, whichever is less. None disables early stopping.
    validation_fraction : float, default 0.1
        Fraction of its training rows that each network sets aside, at random, for early stopping.
    preprocessor : TableEncoder, "auto" or None, default "auto"
        Encodes tables with categories, dates and missing values as numbers; a copy of it is fitted
        with the model and saved in its folder. "auto" uses a ``TableEncoder`` if ``X`` is a pandas
        or polars frame in which ``fit`` finds text, dates or missing values. Otherwise, and with
        None, the inputs must be finite numbers and are used unchanged.
    bounds : "auto", None or pair of float or None, default "auto"
        Range of the target, such as ``(0, None)`` or ``(0, 100)``: probability mass predicted
        beyond a bound is moved to it. "auto" uses 0 as the lower bound of a target that is never
        negative, and any end of the observed range that many rows share. "auto" and a pair also
        detect targets on a lattice (counts, grades), to whose values predictions are then
        restricted. None allows every number. ``support_`` says what was found.
    unsupported : {"inf", "raise"}, default "inf"
        What ``predict_interval`` does if there are too few rows for the requested coverage.
    warm_start : bool, default False
        Whether ``fit`` continues from the weights and scaling of the previous fit, to follow new
        rows. The rows must then be new for calibration to be valid: rows of an earlier fit would be
        predicted by networks that were trained on them. With ``bounds="auto"``, what was found
        before about the values of the target stays, as far as the new rows do not contradict it.
    n_jobs : int, optional, default -1
        Threads, or workers of an enclosing ``joblib.parallel_config``; -1 for all.
    random_state : int, RandomState or None
        Seed of all randomness; the same number gives the same bits on one type of processor,
        whatever ``n_jobs`` is.
    verbose : int, default 1
        0 hides the progress bar, which is otherwise shown on terminals and in notebooks.

    Attributes
    ----------
    ensemble_ : calipers.ensemble.Ensemble
        The trained networks (``ensemble_.bank``, with their seeds, histories and failed attempts)
        and the calibration.
    reader_ : calipers._estimator.inputs.Inputs
        Converts inputs to the numbers that the networks take.
    target_ : Column
        Kind and range of ``y``, as ``inputs_`` of ``X``.
    about_ : dict
        When, on how many rows and with which versions the model was fitted; plain JSON, saved with
        the model. You may add entries of your own.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : array of str
        Names of the inputs, if ``X`` had any.

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

    coverage: float = 0.95
    loss: str | Objective = "density"
    network: str | MLP | Callable[..., Any] = "mlp"
    optimizer: str | Adam = "adam"
    aggregation: str = "snm"
    calibration: str = "width"
    cv: Any = 5
    n_networks: int = 10
    epochs: int | None = None
    batch_size: int | None = None
    time_budget: float | None = None
    patience: int | str | None = "auto"
    validation_fraction: float = 0.1
    preprocessor: TableEncoder | str | None = "auto"
    bounds: Bounds = "auto"
    unsupported: Unsupported = "inf"
    warm_start: bool = False
    n_jobs: int | None = -1
    random_state: int | np.random.RandomState | None = None
    verbose: int = 1

    ensemble_: Ensemble = field(init=False)
    reader_: Inputs = field(init=False)
    target_: Column = field(init=False)
    about_: dict[str, Any] = field(init=False)

    @classmethod
    def paper(cls, **parameters: object) -> Self:
        """Return an estimator for the method of the paper, SNM-QD+, with ``parameters`` changed.

        Five ReLU networks with two hidden layers of 50 units are trained with QD+ on all rows, by
        Adam with an exponential schedule in batches of 100, without early stopping or calibration.
        The paper tunes ``optimizer__learning_rate``, ``optimizer__decay_rate``,
        ``loss__coverage_weight``, ``loss__point_weight`` and ``epochs`` for each dataset.

        Examples
        --------
        >>> model = IntervalRegressor.paper(epochs=662, optimizer__learning_rate=0.009)
        >>> model.loss, model.optimizer.learning_rate
        ('qd+', 0.009)
        """
        defaults = {
            k: v for k, v in PAPER.items() if "__" not in k or k.split("__")[0] not in parameters
        }
        return cls().set_params(**(defaults | parameters))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; ``deep`` adds those of nested objects, also of objects by name."""
        params: dict[str, Any] = super().get_params(deep=deep)
        for name in SHORTHANDS if deep else ():
            value = params[name]
            if isinstance(value, str) and value in SHORTHANDS[name]:
                nested = expanded(name, value).get_params()
                params |= {f"{name}__{key}": value for key, value in nested.items()}
        return params

    def set_params(self, **params: object) -> Self:
        """Set parameters, those of nested objects as ``loss__softness``.

        Setting a parameter of an object that is given by name, such as ``loss="qd+"``, replaces the
        name by the object.
        """
        for name in SHORTHANDS:
            nested = any(key.startswith(f"{name}__") for key in params)
            value = params.get(name, getattr(self, name))
            if nested and isinstance(value, str) and value in SHORTHANDS[name]:
                params[name] = expanded(name, value)
        nested = any(key.startswith("preprocessor__") for key in params)
        if nested and params.get("preprocessor", self.preprocessor) == "auto":
            params["preprocessor"] = TableEncoder()
        super().set_params(**params)
        return self

    def fit(
        self,
        X: ArrayLike | RowBlocks,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train the ensemble and calibrate it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs: a pandas or polars frame with any columns, or an array of finite numbers; see
            ``preprocessor``. Or ``RowBlocks``, or a Dask array or frame, which are read out of
            core: held-out rows then take the place of folds, see ``calipers.rowblocks``.
        y : array-like of shape (n_samples,)
            Targets, in any unit; None with ``RowBlocks``, which contain them.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; rows of weight 0 are ignored.
        groups : array-like of shape (n_samples,), optional
            Labels of rows that belong together, such as repeated measurements of one subject; all
            rows of a group are in the same fold.

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; the message says how.
        calipers.bank.TrainingFailedError
            If too many networks fail to train, even after retries.
        """
        self.ensemble_ = run_fit(self, fit_steps(self, X, y, sample_weight, groups))
        return self

    def upgrade(
        self,
        points: object,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        adapt: float = 0.0,
        fresh: bool = False,
    ) -> Self:
        """Add intervals to a regressor whose point predictions are kept.

        This is the second stage of two-stage learning: networks learn the interval around a point
        prediction, from the errors of the regressor on held-out rows. The regressor itself does not
        change.

        Parameters
        ----------
        points : regressor or IntervalRegressor
            A regressor with scikit-learn's methods, from any library (a Pipeline, CatBoost,
            LightGBM): copies of it are fitted on the folds of ``cv``, for its errors on rows that
            it was not trained on. Point predictions are those of the regressor itself if it is
            fitted, and otherwise those of a copy fitted on all rows. Or an ``IntervalRegressor``
            fitted with ``loss="mse"``, each of whose networks gets a second one for the interval.
            For PyTorch networks see ``calipers.torch.upgrade``.
        X, y, sample_weight, groups : array-like
            As in ``fit``: exactly the rows that ``points`` was fitted on, or with ``fresh`` rows of
            which it has seen none. A regressor gets ``X`` unchanged, and the weights if its ``fit``
            takes any.
        adapt : float, default 0
            Largest change of a point prediction, to fit ``y`` better, in units of the regressor's
            root mean squared error; 0 keeps the predictions.
        fresh : bool, default False
            States that ``points`` was trained on none of these rows, which calibration cannot
            check if they are not the rows of its fit. A regressor is then used unchanged, and
            nothing is fitted again.

        Raises
        ------
        ValueError
            If calibration could not be valid, or a parameter is invalid.

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
        steps = upgrade_rows(self, points, X, y, sample_weight, groups, adapt=adapt, fresh=fresh)
        self.ensemble_ = run_fit(self, steps)
        return self

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return constraints()

    @property
    def inputs_(self) -> tuple[Column, ...]:
        """Kind, range and categories of each column of ``X`` in training."""
        return self.reader_.columns

    @property
    def preprocessor_(self) -> TableEncoder:
        """The fitted preprocessor, if there is one."""
        if self.reader_.encoder is None:
            raise AttributeError("the model was fitted without a preprocessor")
        return self.reader_.encoder

    @property
    def support_(self) -> Support:
        """Values that the target can take, see ``bounds``; ``str(support_)`` describes them."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.support

    @property
    def out_of_fold_(self) -> OutOfFold:
        """Predictions for the training rows by networks that were not trained on them.

        They have ``point`` and ``interval(coverage)``, and are not saved with the model.

        Examples
        --------
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
        >>> model.out_of_fold_.point.shape, model.out_of_fold_.interval(0.8).shape
        ((100,), (100, 2))
        """
        check_is_fitted(self, "ensemble_")
        predictions: OutOfFold | None = vars(self).get("_out_of_fold")
        if predictions is None:
            raise AttributeError(
                "there are no out-of-fold predictions: fit makes them unless cv is None, and they "
                "are not saved with a model"
            )
        return predictions

    @property
    def _ensemble(self) -> Ensemble:
        if "ensemble_" not in vars(self):  # the full check takes longer than a small network
            check_is_fitted(self, "ensemble_")
        return replace(self.ensemble_, n_jobs=self.n_jobs, unsupported=self.unsupported)

    def read(
        self, X: ArrayLike, on_unread: OnUnread | None = None
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return inputs as the networks take them, and which values were not seen in training.

        Up to a tenth of a column's numbers, booleans or dates may be cells that cannot be read.
        They are missing, and in the mask; by default, a warning says so.
        """
        check_is_fitted(self, "ensemble_")
        found: list[UnreadCells] = []
        result = self.reader_.read_and_check(self, X, on_unread or found.append)
        warn_unread(found)
        return result

    def _numbers(self, X: ArrayLike) -> FloatArray:
        """Inputs of new rows as the networks take them; warns of cells that cannot be read."""
        found: list[UnreadCells] = []
        numbers = self.reader_.read(self, X, found.append)
        warn_unread(found)
        return numbers

    def query(self, X: ArrayLike, query: Query) -> Prediction:
        """Answer a query about some rows from one pass through the networks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        query : calipers.prediction.Query
            What to predict: intervals, quantiles, variance, members, density.

        Examples
        --------
        >>> from calipers.prediction import Query
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
        >>> list(model.query(X, Query(coverages=(0.9,), quantiles=(0.5,))).columns())
        ['prediction', 'lower_0.9', 'upper_0.9', 'quantile_0.5']
        """
        return self._ensemble.predict(self._numbers(X), query)

    def query_and_check(
        self, X: ArrayLike, query: Query, *, on_unread: OnUnread | None = None
    ) -> tuple[Prediction, NDArray[np.bool_]]:
        """Return the prediction for a query and the mask of values not seen in training.

        ``on_unread`` takes the place of a warning of cells that cannot be read.
        """
        numbers, outside = self.read(X, on_unread)
        return self._ensemble.predict(numbers, query), outside

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Point predictions: the mean of the members' predictions, clipped to the target's bounds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs. A Dask array or frame gives a lazy Dask array.
        return_std : bool
            Whether to return the predictive standard deviation as well.

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
        prediction = self.query(X, Query(coverages=(), variance=return_std))
        point, variance = prediction.point, prediction.variance
        return point if variance is None else (point, np.sqrt(variance))

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
            Inputs. A Dask array or frame gives a lazy Dask array or frame.
        coverage : float or sequence of float, optional
            Any coverages, without a new fit; by default the one the model was fitted for.
        as_frame : bool
            Return a frame with columns such as ``lower_0.95``: a polars frame if ``X`` is one,
            otherwise a pandas frame.

        Returns
        -------
        array of shape (n_samples, 2) or (n_samples, 2, n_coverages)
            Lower and upper bounds; with the third axis if ``coverage`` is a sequence.

        Raises
        ------
        ValueError
            If the aggregation gives no intervals of other coverages.
        """
        requested = self.coverage if coverage is None else coverage
        levels = checked_levels("coverage", requested)
        names = interval_names(levels) if as_frame else None
        if is_lazy(X):
            shape = (2, len(levels)) if np.ndim(requested) else (2,)
            options = {"coverage": coverage, "as_frame": as_frame}
            return lazily(self, "predict_interval", X, options, shape, names)
        bounds = cast(FloatArray, self.query(X, Query(tuple(levels))).intervals)
        if names is not None:
            return frame_like(X, bounds.swapaxes(1, 2).reshape(len(bounds), -1), names)
        return bounds if np.ndim(requested) else bounds[:, :, 0]

    def predict_quantiles(
        self, X: ArrayLike, quantiles: float | Sequence[float], *, as_frame: bool = False
    ) -> Any:
        """Quantiles of the predictive distribution; they never cross.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs. A Dask array or frame gives a lazy Dask array or frame.
        quantiles : float or sequence of float
            Levels between 0 and 1.
        as_frame : bool
            Return a frame with columns such as ``quantile_0.1``: a polars frame if ``X`` is one,
            otherwise a pandas frame.

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
        """Predictive distributions, one per row, calibrated if the model is.

        ``aleatoric_var`` and ``epistemic_var`` of the result are those of the members before
        calibration: the variance within networks, and the variance between them.
        """
        return self._ensemble.distribution(self._numbers(X))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the point predictions, as scikit-learn defines it."""
        return float(super().score(X, checked_target(X, y), sample_weight))

    def predict_var(self, X: ArrayLike) -> FloatArray:
        """Variance of the predictive distribution, of shape (n_samples,)."""
        return cast(FloatArray, self.query(X, Query((), variance=True)).variance)

    def predict_members(self, X: ArrayLike) -> Interval:
        """Each member's ``lower``, ``point`` and ``upper``, of shape (n_members, n_samples)."""
        return self._ensemble.members(self._numbers(X))

    def outside(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Mask of values not seen in training, of shape (n_samples, n_features), see ``inputs_``.

        They are numbers and dates outside the range of training; with a preprocessor also unseen
        categories, missing values in columns that had none, and cells that cannot be read.
        Predictions for such rows deserve less trust.
        """
        check_is_fitted(self, "ensemble_")
        return self.reader_.outside(self, X)

    def pick(self, frame: "pd.DataFrame") -> "pd.DataFrame | NDArray[Any]":
        """Select the model's inputs from a pandas frame with other columns, in any order.

        Raises
        ------
        calipers.preprocessing.DataError
            If a column is missing, or a value that the model needs.
        """
        check_is_fitted(self, "ensemble_")
        return self.reader_.pick(frame, named=hasattr(self, "feature_names_in_"))

    def conformalize(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        keep: bool = False,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        groups: ArrayLike | None = None,
        by: str | int | Callable[[FloatArray], ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        shifted_to: ArrayLike | None = None,
        half_life: float | None = None,
    ) -> Self:
        """Calibrate on held-out rows, with the guarantee of split conformal prediction.

        If these rows and new ones are exchangeable, an interval of coverage c contains a new target
        with probability at least c, whatever the model; see ``calipers.calibration``.
        ``about_["conformalized"]`` records ``rows``, and ``effective_rows``: the number of
        independent rows of equal weight that they are worth. What ``bounds="auto"`` assumed and
        these rows contradict is dropped with a warning.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Rows that ``fit`` has not seen.
        keep : bool
            Whether to calibrate on top of the existing calibration instead of replacing it.
        row_weight : callable, optional
            For covariate shift: a function from rows to the likelihood ratio of the deployment
            distribution to that of these rows; it is needed again at every prediction.
        groups : array-like of shape (n_samples,), optional
            Labels of rows that belong together. If the groups and a new one are exchangeable, the
            guarantee holds for a row drawn from the new group; groups then take the role of rows
            (hierarchical conformal prediction).
        by : str, int or callable, optional
            For the guarantee within each subgroup of rows: the name or number of an input, whose
            categories or bins are the subgroups; ``"predicted width"``; or a function from rows, as
            the networks take them, to labels, with which a model cannot be saved. Subgroups with
            too few rows for ``coverage`` have the guarantee of all rows together.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of these rows, those of weight 0 are ignored; coverage then refers to rows in
            proportion to them, and is approximate.
        shifted_to : array-like of shape (n_new, n_features), optional
            Inputs from the deployment distribution. The density ratio is estimated by a
            classifier, cross-fitted and clipped, so that the guarantee is approximate.
        half_life : float, optional
            For rows in time order, the latest last: the number of later rows after which a row's
            weight is halved (NexCP; Barber et al., 2023). Coverage is then at least the nominal one
            minus the weighted mean distance of the rows' distributions from that of new rows.
        """
        check_is_fitted(self, "ensemble_")
        self.ensemble_, summary = conformal_ensemble(
            self,
            X,
            y,
            keep=keep,
            row_weight=row_weight,
            groups=groups,
            by=by,
            sample_weight=sample_weight,
            shifted_to=shifted_to,
            half_life=half_life,
        )
        self.about_ = {**self.about_, "conformalized": summary}
        return self

    def update(self, X: ArrayLike, y: ArrayLike, *, delay: int = 0) -> Learned:
        """Learn online from a stream of labelled rows, so that coverage is kept under drift.

        Intervals of every coverage, quantiles, densities and point predictions adapt to the recent
        targets, whatever the drift, with nothing to tune; the networks do not change. Each row is
        predicted before the model learns from it. So a target that ``support_`` excludes is a miss,
        and rows predicted later may have such values in their intervals, as a warning says.
        ``save`` keeps what was learned.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Rows in time order, each given once.
        delay : int
            Number of rows that are predicted between a row and the arrival of its target: each row
            counts as predicted by the model as it was that many rows earlier. The coverage that is
            kept is then that of predictions as they were made. The first rows of a call have no
            earlier state than that of the model.

        Returns
        -------
        calipers.calibration.Learned
            What was predicted for each row before its target was known (``intervals(coverage)``,
            ``coverage(coverage)``), and ``alarm``: whether the rows are no longer exchangeable with
            those of ``fit``.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (600, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.2, 600)
        >>> model = IntervalRegressor(n_networks=5, epochs=20, random_state=0).fit(X[:200], y[:200])
        >>> learned = model.update(X[200:], y[200:] + 3)  # everything is 3 higher from now on
        >>> learned.alarm, abs(learned.coverage(0.9) - 0.9) < 0.02
        (True, True)
        >>> bool(abs(model.predict([[0.0]])[0] - 3) < 0.3)
        True
        """
        check_is_fitted(self, "ensemble_")
        X, y = self.reader_.read_with_targets(self, X, y)
        self.ensemble_, learned = self._ensemble.learn(X, y, delay)
        return learned

    def report(
        self,
        X: ArrayLike,
        y: ArrayLike,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        source: str | None = None,
    ) -> Path:
        """Write an HTML file that shows how far the intervals can be trusted.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Rows that ``fit`` has not seen, and their targets.
        path : path
            The file, replaced atomically if it exists. It is self-contained.
        title, source : str, optional
            Headline, and where the rows come from.

        Returns
        -------
        Path
            The file. See ``calipers.report`` for its contents.
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

        The graph contains preprocessing, scaling, networks, aggregation and calibration; see
        ``calipers.onnx`` for its inputs and outputs.

        Parameters
        ----------
        path : path
            The file, replaced atomically if it exists.
        coverage : float or sequence of float, optional
            Coverages of the intervals; by default the one the model was fitted for.
        dtype : {"float64", "float32"}
            Type of the inputs.
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
            self._ensemble,
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

        The save is atomic: a process killed at any moment leaves the old model or the new one. A
        custom network or loss is not stored, nor a regressor that was upgraded (see ``upgrade``);
        ``load`` takes the network and the regressor again.
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
        points: object = None,
    ) -> Self:
        """Load a model that ``save`` wrote; its predictions are bit-identical.

        Parameters
        ----------
        folder : path
            The model folder.
        network : callable, optional
            The factory of the custom network, for models that have one.
        row_weight : callable, optional
            The function that was given to ``conformalize``, for models that have one.
        points : regressor or Points, optional
            The fitted regressor of an upgraded model; for PyTorch networks, the result of
            ``calipers.torch.load``.

        Raises
        ------
        calipers.storage.ModelFileError
            If the folder contains no model, another kind of model, or a damaged one.
        """
        model = cls()
        with stored_model(folder, cls) as (document, arrays):
            code = {"network": network, "row_weight": row_weight, "points": points}
            model_from_dict(model, document, arrays, **code)
        return model

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        table = isinstance(self.preprocessor, TableEncoder)  # "auto" accepts numeric arrays only
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = table
        return tags
