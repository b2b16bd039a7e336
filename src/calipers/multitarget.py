r"""Several targets: an interval for each, and intervals that contain all of them at once.

Separate models do not show how often all intervals are right at once: two intervals of 95% contain
both targets with a probability anywhere between 90% and 95%. ``MultiTargetRegressor`` fits one
``IntervalRegressor`` per target on the same folds, and measures joint coverage on held-out rows.

With :math:`F_j` the calibrated distribution function of target j, its central interval contains the
observation y from the coverage :math:`\max(0, 1 - 2 F_j(y), 2 F_j(y-) - 1)` on, where
:math:`F_j(y-)` is without the probability of y itself. A row's depth is the largest of these over
the targets, and the quantile of level c of the depths is the coverage that every interval needs for
all to contain their targets with probability c. Dependent targets need less than independent ones,
and their dependence is not modelled.

Guarantees: after ``fit``, the depths are those of out-of-fold predictions, and joint coverage is
close to nominal, as marginal coverage is. After ``conformalize`` on held-out rows it is at least
nominal if they and new rows are exchangeable, whatever the models.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from calipers import storage
from calipers._arrays import FloatArray
from calipers._estimator import (
    check_size,
    checked_weights,
    finite_target,
    fit_steps,
    learn_table,
    read_together,
    run_fits,
    scaled_weights,
)
from calipers._schema import anything, array_of, arrays_under, list_of, record, refuse, within
from calipers._serialization import (
    ABSENT,
    Arrays,
    MissingCodeError,
    check_model,
    model_from_dict,
    model_to_dict,
    stored_model,
)
from calipers.cluster import is_lazy
from calipers.crossfit import OutOfFold
from calipers.distributions import given_support, refuse_outside
from calipers.prediction import Prediction, Query, checked_levels
from calipers.preprocessing import (
    Column,
    DataError,
    OnUnread,
    UnreadCells,
    is_frame,
    refuse_same_names,
    warn_unread,
)
from calipers.regressor import IntervalRegressor
from calipers.training import check_parameters

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MultiTargetRegressor"]


_MAX_COVERAGE = 1 - 1e-12  # coverage that stands for an infinite interval
# Added to depths, whose own intervals end at the target or, where it has mass, just before it.
_MARGIN = 1e-9


class MultiTargetRegressor(RegressorMixin, BaseEstimator):
    """Calibrated intervals for several targets, with marginal or joint coverage.

    Parameters
    ----------
    estimator : IntervalRegressor, optional
        The estimator that is cloned for each target; ``IntervalRegressor()`` by default.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (300, 1))
    >>> Y = np.column_stack([X[:, 0], X[:, 0] ** 2]) + rng.normal(0, 0.2, (300, 2))
    >>> model = MultiTargetRegressor(IntervalRegressor(n_networks=5, epochs=20, random_state=0))
    >>> model.fit(X, Y).predict(X).shape
    (300, 2)
    >>> lower, upper = model.predict_interval(X)[0, 1]
    >>> wider = model.predict_interval(X, joint=True)[0, 1]
    >>> bool(wider[0] < lower < upper < wider[1])
    True
    """

    #: One for each target, usable alone, as for reports, servers and ONNX files.
    models_: list[IntervalRegressor]
    #: Depths of held-out rows, ascending; None without held-out rows.
    depths_: FloatArray | None

    def __init__(self, estimator: IntervalRegressor | None = None) -> None:
        self.estimator = estimator

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a model to each target, on the same folds; their networks train in one bank.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, as ``IntervalRegressor.fit`` takes them.
        y : array-like of shape (n_samples, n_targets)
            Targets, named after the columns if it is a frame.
        sample_weight, groups : array-like of shape (n_samples,), optional
            As in ``IntervalRegressor.fit``.

        Raises
        ------
        calipers.preprocessing.DataError
            If a target cannot be read, or lies outside the bounds that were given; it is named.
        """
        estimator = IntervalRegressor() if self.estimator is None else self.estimator
        if not isinstance(estimator, IntervalRegressor):
            raise TypeError(
                f"estimator must be an IntervalRegressor, got {type(estimator).__name__}"
            )
        if estimator.warm_start:
            raise ValueError("warm_start is not supported for several targets: set it to False")
        seed = int(check_random_state(estimator.random_state).randint(2**31))  # the same folds
        targets = _finite(_targets(y), X)
        _check_targets(estimator, X, targets, sample_weight)
        if is_frame(X):  # what is learned of the inputs does not depend on the target
            weights = None if sample_weight is None else scaled_weights(X, sample_weight)
            X = cast(Any, learn_table(estimator.preprocessor, X, weights) or X)
        models = [clone(estimator).set_params(random_state=seed) for _ in targets]
        fits = [
            fit_steps(model, X, target, sample_weight, groups)
            for model, target in zip(models, targets, strict=True)
        ]
        for model, ensemble in zip(models, run_fits(models, fits), strict=True):
            model.ensemble_ = ensemble
        self.models_ = models
        self.depths_ = _out_of_fold_depths(
            [getattr(model, "out_of_fold_", None) for model in models]
        )
        return self

    def conformalize(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate joint coverage on held-out rows, with a finite-sample guarantee.

        If they and new rows are exchangeable, joint intervals of coverage c contain all targets of
        a new row with probability at least c. Intervals of single targets change only if these rows
        contradict what ``bounds="auto"`` assumes about the values of a target: as in
        ``IntervalRegressor.conformalize``, the assumption is dropped.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples, n_targets)
            Rows that ``fit`` has not seen.

        Raises
        ------
        calipers.preprocessing.DataError
            If a target cannot be read, or lies outside the bounds that were given; it is named.
        """
        check_is_fitted(self, "models_")
        targets = _finite(self._in_order(y, _targets(y)), X)
        ensembles, depths = [], []
        for model, target in zip(self.models_, targets, strict=True):
            with _naming(model.target_.name):
                name = f"the target {model.target_.name!r}"
                ensemble = model._ensemble.admitting(target.to_numpy(), sample=True, name=name)
            numbers, values = model.reader_.read_with_targets(model, X, target)
            found = ensemble.predict(numbers, Query((), at=values))
            ensembles.append(ensemble)
            depths.append(_depth(found.cdf_below, cast(FloatArray, found.cdf)))
        for model, ensemble in zip(self.models_, ensembles, strict=True):
            model.ensemble_ = ensemble
        self.depths_ = _depths(depths)
        return self

    def _in_order(self, y: Any, targets: list[Any]) -> list[Any]:
        """Targets in the order of the models: by name in a frame, else by position."""
        if len(targets) != len(self.models_):
            raise ValueError(
                f"y has {len(targets)} targets, but the model was fitted to {len(self.models_)}"
            )
        if not hasattr(y, "columns"):
            return targets
        by_name = {target.name: target for target in targets}
        if set(by_name) != set(self.target_names_):
            raise ValueError(
                f"y has the targets {', '.join(by_name)}, but the model was fitted to "
                f"{', '.join(self.target_names_)}"
            )
        return [by_name[name] for name in self.target_names_]

    @property
    def target_names_(self) -> list[str]:
        """Names of the targets."""
        check_is_fitted(self, "models_")
        return [model.target_.name for model in self.models_]

    @property
    def inputs_(self) -> tuple[Column, ...]:
        """Kind, range and categories of each column of ``X`` in training."""
        check_is_fitted(self, "models_")
        return self.models_[0].inputs_

    @property
    def coverage(self) -> float:
        """Default coverage of the intervals."""
        check_is_fitted(self, "models_")
        return self.models_[0].coverage

    def single_coverages(self, coverage: float | Sequence[float]) -> list[float]:
        """Marginal coverages of the intervals that jointly have these coverages.

        Raises ``ValueError`` if there were no held-out rows to estimate them from.
        """
        check_is_fitted(self, "models_")
        if self.depths_ is None:
            raise ValueError(
                "joint coverage is estimated from held-out rows, and there were none: set cv, or "
                "conformalize on rows that fit has not seen"
            )
        rows, levels = len(self.depths_), []
        for level in checked_levels("coverage", coverage):
            rank = int(np.ceil(level * (rows + 1)))
            levels.append(1.0 if rank > rows else float(self.depths_[rank - 1]) + _MARGIN)
        return [min(level, _MAX_COVERAGE) for level in levels]

    def query_and_check(
        self,
        X: ArrayLike,
        query: Query,
        *,
        joint: bool = False,
        on_unread: OnUnread | None = None,
    ) -> tuple[dict[str, Prediction], NDArray[np.bool_]]:
        """Return the prediction of each target, by name, and the mask of values that were not seen.

        With ``joint``, coverages are those of all targets together. ``on_unread`` takes the place
        of a warning of cells that cannot be read.
        """
        requested = (self.coverage,) if query.coverages is None else query.coverages
        levels = tuple(self.single_coverages(requested)) if joint and requested else requested
        query = replace(query, coverages=levels)
        found, outside = self._query(X, query, on_unread)
        predictions = {
            name: replace(prediction, coverages=np.array(requested))
            for name, prediction in zip(self.target_names_, found, strict=True)
        }
        return predictions, outside

    def _query(
        self, X: ArrayLike, query: Query, on_unread: OnUnread | None = None
    ) -> tuple[list[Prediction], NDArray[np.bool_]]:
        """Return the prediction of each target, and the mask of values that were not seen."""
        check_is_fitted(self, "models_")
        unread: list[UnreadCells] = []
        inputs, outside = read_together(self.models_, X, on_unread or unread.append)
        warn_unread(unread)
        pairs = zip(self.models_, inputs, strict=True)
        return [model._ensemble.predict(numbers, query) for model, numbers in pairs], outside

    def predict(self, X: ArrayLike) -> FloatArray:
        """Point predictions, of shape (n_samples, n_targets)."""
        check_is_fitted(self, "models_")
        if is_lazy(X):
            return np.column_stack([model.predict(X) for model in self.models_])
        return np.column_stack([found.point for found in self._query(X, Query(()))[0]])

    def predict_interval(
        self, X: ArrayLike, coverage: float | Sequence[float] | None = None, *, joint: bool = False
    ) -> FloatArray:
        """Prediction intervals of every target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float or sequence of float, optional
            Coverages; by default the one the models were fitted for.
        joint : bool
            Whether ``coverage`` refers to all targets together instead of each alone.

        Returns
        -------
        array of shape (n_samples, n_targets, 2) or (n_samples, n_targets, 2, n_coverages)
            Lower and upper bounds; with the last axis if ``coverage`` is a sequence.
        """
        check_is_fitted(self, "models_")
        requested: Any = self.coverage if coverage is None else coverage
        levels = (
            self.single_coverages(requested) if joint else checked_levels("coverage", requested)
        )
        if is_lazy(X):
            parts = [model.predict_interval(X, levels) for model in self.models_]
        else:
            parts = [found.intervals for found in self._query(X, Query(tuple(levels)))[0]]
        bounds = np.stack(parts, axis=1)
        return bounds if np.ndim(requested) else bounds[..., 0]

    def pick(self, frame: "pd.DataFrame") -> "pd.DataFrame | NDArray[Any]":
        """Select the model's inputs from a pandas frame with other columns, in any order."""
        check_is_fitted(self, "models_")
        return self.models_[0].pick(frame)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the models to one folder, see ``IntervalRegressor.save``."""
        check_is_fitted(self, "models_")
        documents: list[Any] = []
        arrays: Arrays = {}
        for i, model in enumerate(self.models_):
            document, model_arrays = model_to_dict(model)
            documents.append(document)
            arrays |= {f"{i}.{name}": array for name, array in model_arrays.items()}
        if self.depths_ is not None:
            arrays["depths"] = self.depths_
        storage.write_model(
            folder, {"estimator": type(self).__name__, "targets": documents}, arrays
        )

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        network: Callable[..., Any] | None = None,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        points: object = None,
    ) -> Self:
        """Load a model that ``save`` wrote.

        Parameters
        ----------
        folder : path
            The model folder.
        network, row_weight, points : optional
            As in ``IntervalRegressor.load``, for each target whose model has one.

        Raises
        ------
        calipers.storage.ModelFileError
            If the folder contains no model, another kind of model, or a damaged one.
        """
        model = cls()
        with stored_model(folder, cls) as (document, arrays):
            code = {"network": network, "row_weight": row_weight, "points": points}
            _from_dict(model, document, arrays, **code)
        return model

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def models_of(model: IntervalRegressor | MultiTargetRegressor) -> list[IntervalRegressor]:
    """Return the model of each target; a model of one target is its own."""
    return model.models_ if isinstance(model, MultiTargetRegressor) else [model]


def stored_targets(
    document: Mapping[str, Any], arrays: Arrays
) -> list[tuple[dict[str, Any], Arrays]]:
    """Return the document and the arrays of each target's model in those of a folder."""
    _DOCUMENT(document, "document")
    return [(own, arrays_under(arrays, f"{i}.")) for i, own in enumerate(document["targets"])]


_TARGET = record({"ensemble": record({"row_weight": anything}, rest=anything)}, rest=anything)
_DOCUMENT = record({"estimator": anything, "targets": list_of(_TARGET, least=2)})


def check_targets(document: Mapping[str, Any], arrays: Arrays) -> None:
    """Validate as ``load`` does, as far as possible without the user's code."""
    try:
        _from_dict(MultiTargetRegressor(), document, arrays, points=ABSENT)
    except MissingCodeError:  # of one target: the others are checked all the same
        for stored in stored_targets(document, arrays):
            check_model(IntervalRegressor(), *stored)


def _from_dict(
    model: MultiTargetRegressor, document: Mapping[str, Any], arrays: Arrays, **code: Any
) -> None:
    """Restore the state that ``save`` wrote in a newly constructed model."""
    model.depths_ = None
    if "depths" in arrays:
        model.depths_ = array_of(arrays, "depths", "f", arrays["depths"].shape[:1])
        within("depths", model.depths_, 0.0, 1.0)
        if (np.diff(model.depths_) < 0).any():
            refuse("array 'depths'", "in ascending order", "another")
    model.models_ = []
    for own, own_arrays in stored_targets(document, arrays):
        weights = {} if own["ensemble"]["row_weight"] else {"row_weight": None}
        model.models_.append(IntervalRegressor())
        model_from_dict(model.models_[-1], own, own_arrays, **code | weights)
    known = tuple(f"{i}." for i in range(len(model.models_)))
    extra = sorted(name for name in arrays if name != "depths" and not name.startswith(known))
    if extra:
        refuse("the weights", "those of the targets", extra[0])
    # Notes differ: a category may be target-encoded for one target, and not for another.
    inputs = [tuple(replace(c, note="") for c in m.inputs_) for m in model.models_]
    shared = {(own, m.coverage) for own, m in zip(inputs, model.models_, strict=True)}
    if len(shared) > 1 or len(set(model.target_names_)) < len(model.models_):
        refuse("targets", "different, of the same inputs and coverage", model.target_names_)
    model.estimator = clone(model.models_[0])


def _targets(y: Any) -> list[Any]:
    """Columns of the targets, with their names."""
    import pandas as pd

    if hasattr(y, "columns"):
        refuse_same_names("y has more than one target", [str(name) for name in y.columns])
        frame = pd.DataFrame({str(name): np.asarray(y[name]) for name in y.columns})
    else:
        values = np.asarray(y)
        if values.ndim != 2:
            raise ValueError(f"y must have one column per target, got shape {values.shape}")
        frame = pd.DataFrame(values, columns=[f"y{i}" for i in range(values.shape[1])])
    if frame.shape[1] < 2:
        raise ValueError(
            f"y must have at least two targets, got {frame.shape[1]}: use IntervalRegressor for one"
        )
    return [frame[name] for name in frame]


def _finite(targets: Sequence[Any], X: Any) -> list[Any]:
    """Targets as finite numbers; text is read as columns of one table with the inputs ``X``."""
    import pandas as pd

    table, found = pd.concat(targets, axis=1), []
    for target in targets:
        with _naming(target.name):
            found.append(pd.Series(finite_target(target, X, table), name=target.name))
    return found


def _check_targets(
    estimator: IntervalRegressor,
    X: ArrayLike,
    targets: Sequence[Any],
    sample_weight: ArrayLike | None,
) -> None:
    """Refuse targets that ``fit`` cannot take, before anything is learned from the others."""
    check_parameters(estimator)
    used: Any = slice(None)
    if sample_weight is not None:
        check_consistent_length(X, targets[0])
        used = np.flatnonzero(checked_weights(sample_weight, X))
    for target in targets:
        values = target.to_numpy()
        with _naming(target.name):
            check_size(values)
            numbers = np.arange(len(values))[used]
            refuse_outside(values[used], given_support(estimator.bounds), numbers)


@contextmanager
def _naming(target: str) -> Iterator[None]:
    """Name one of several targets in errors about its values."""
    try:
        yield
    except DataError as error:
        raise DataError(error.problem, column=target, row=error.row) from None
    except ValueError as error:
        raise DataError(str(error), column=target) from None


def _out_of_fold_depths(predictions: Sequence[OutOfFold | None]) -> FloatArray | None:
    """Depths of the out-of-fold predictions; None if a target has none."""
    depths = []
    for prediction in predictions:
        if prediction is None or prediction.dist is None or prediction.target is None:
            return None
        depths.append(_depth(*prediction.levels))
    return _depths(depths)


def _depth(below: FloatArray | None, at: FloatArray) -> FloatArray:
    """The smallest coverage of a central interval that contains a target, for each row.

    ``at`` is the distribution function at the target, ``below`` the same without its own mass.

    >>> _depth(np.array([0.0, 0.3, 0.7]), np.array([0.2, 0.6, 1.0])).round(2)
    array([0.6, 0. , 0.4])
    """
    upper = 2 * (at if below is None else below) - 1
    return np.maximum(np.maximum(1 - 2 * at, upper), 0.0)


def _depths(of_targets: Sequence[FloatArray]) -> FloatArray:
    """The smallest coverage at which a row's intervals contain all its targets, ascending.

    >>> _depths([np.array([0.0, 0.5, 0.8]), np.array([0.2, 0.1, 0.0])])
    array([0.2, 0.5, 0.8])
    """
    return np.sort(np.max(of_targets, axis=0))
