r"""Several targets: an interval for each, and intervals that hold all of them at once.

A model for each target says nothing of how often all intervals hold together: two of 95% hold both
targets with a probability anywhere between 90% and 95%. ``MultiTargetRegressor`` fits one
``IntervalRegressor`` for each target on the same folds, and sees from held-out rows how deep in its
distribution the worst of a row's targets lies.

With :math:`u_j` the calibrated distribution function of target j at what was observed, the central
interval of coverage c holds it if :math:`|2 u_j - 1| \le c`. A row's depth is the largest of these
over the targets, and the quantile of level c of the depths is the coverage that every interval
needs for all to hold with probability c. Targets that go together need less than independent ones,
and no model of their dependence is made.

What is guaranteed: after ``fit``, depths are of out-of-fold predictions and joint coverage is close
to nominal, as marginal coverage is. After ``conformalize`` on rows that ``fit`` has not seen it is
at least nominal, if they and new rows are exchangeable, whatever the models.
"""

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calipers import storage
from calipers._checks import FloatArray
from calipers._loading import model_from_dict, model_to_dict, stored_model
from calipers._schema import anything, array_of, arrays_under, list_of, record, refuse, within
from calipers._together import together
from calipers.crossfit import OutOfFold
from calipers.prediction import Prediction, Query, checked_levels
from calipers.preprocessing import Column
from calipers.regressor import IntervalRegressor

__all__ = ["MultiTargetRegressor"]


_MOST = 1 - 1e-12  # coverage that stands for that of an infinite interval


class MultiTargetRegressor(RegressorMixin, BaseEstimator):
    """Calibrated intervals for several targets, one by one or all at once.

    Parameters
    ----------
    estimator : IntervalRegressor, optional
        What is fitted to each target; one with its defaults by default.

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

    #: One for each target, usable alone: reports, servers and ONNX files are made of these.
    models_: list[IntervalRegressor]
    #: How deep in their distributions held-out rows lie, ascending; None where there are none.
    depths_: FloatArray | None

    def __init__(self, estimator: IntervalRegressor | None = None) -> None:
        self.estimator = estimator

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a model to each target, on the same folds; their networks train in one bank.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, as ``IntervalRegressor.fit`` takes them.
        y : array-like of shape (n_samples, n_targets)
            Targets; the columns of a frame give them their names.
        sample_weight, groups : array-like of shape (n_samples,), optional
            As in ``IntervalRegressor.fit``.
        """
        estimator = IntervalRegressor() if self.estimator is None else self.estimator
        if not isinstance(estimator, IntervalRegressor):
            raise TypeError(
                f"estimator must be an IntervalRegressor, got {type(estimator).__name__}"
            )
        if estimator.warm_start:
            raise ValueError("several targets cannot be fitted further: set warm_start=False")
        seed = int(check_random_state(estimator.random_state).randint(2**31))  # the same folds
        targets = _targets(y)
        models = [clone(estimator).set_params(random_state=seed) for _ in targets]
        fits = [
            model._fit_steps(X, target, sample_weight, groups)
            for model, target in zip(models, targets, strict=True)
        ]
        for model, ensemble in zip(models, together(models, fits), strict=True):
            model.ensemble_ = ensemble
        self.models_ = models
        found = [vars(model).get("_out_of_fold") for model in self.models_]
        self.depths_ = _out_of_fold_depths(found)
        return self

    def conformalize(self, X: Any, y: Any) -> Self:
        """Set joint coverage by rows that ``fit`` has not seen, with a finite-sample guarantee.

        If they and new rows are exchangeable, joint intervals of coverage c hold all targets of a
        new row with probability at least c. Intervals of single targets stay as they are.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples, n_targets)
            Held-out rows.
        """
        check_is_fitted(self, "models_")
        pairs = zip(self.models_, self._checked(y), strict=True)
        levels = [model.predict_dist(X).cdf(np.asarray(target, float)) for model, target in pairs]
        self.depths_ = _depths(levels)
        return self

    def _checked(self, y: Any) -> list[Any]:
        targets = _targets(y)
        if len(targets) != len(self.models_):
            raise ValueError(
                f"y has {len(targets)} targets, and the model was fitted to {len(self.models_)}"
            )
        return targets

    @property
    def target_names_(self) -> list[str]:
        """Names of the targets."""
        check_is_fitted(self, "models_")
        return [model.target_.name for model in self.models_]

    @property
    def inputs_(self) -> tuple[Column, ...]:
        """What training saw in each column of ``X``."""
        check_is_fitted(self, "models_")
        return self.models_[0].inputs_

    @property
    def coverage(self) -> float:
        """Coverage of the intervals where none is asked."""
        check_is_fitted(self, "models_")
        return self.models_[0].coverage

    def single_coverages(self, coverage: float | Sequence[float]) -> list[float]:
        """Coverages that the interval of each target needs for all to hold with these coverages.

        Raises ``ValueError`` if there were no held-out rows to see it from.
        """
        check_is_fitted(self, "models_")
        if self.depths_ is None:
            raise ValueError(
                "joint coverage is known from held-out rows, and there were none: set cv, or "
                "conformalize on rows that fit has not seen"
            )
        rows, found = len(self.depths_), []
        for level in checked_levels("coverage", coverage):
            place = int(np.ceil(level * (rows + 1)))
            found.append(_MOST if place > rows else float(self.depths_[place - 1]))
        return [min(max(level, 1 - _MOST), _MOST) for level in found]

    def query_and_check(
        self, X: Any, query: Query, *, joint: bool = False
    ) -> tuple[dict[str, Prediction], NDArray[np.bool_]]:
        """Answer a query for each target, by name; and tell which values training did not see.

        With ``joint``, the intervals of all targets are to hold together.
        """
        check_is_fitted(self, "models_")
        asked = (self.coverage,) if query.coverages is None else query.coverages
        levels = tuple(self.single_coverages(asked)) if joint and asked else asked
        own = Query(**{**vars(query), "coverages": levels})
        outside = self.models_[0].outside(X)
        found = {}
        for name, model in zip(self.target_names_, self.models_, strict=True):
            answer = model.query(X, own)
            found[name] = Prediction(**{**vars(answer), "coverages": np.array(asked)})
        return found, outside

    def predict(self, X: Any) -> FloatArray:
        """Point estimates, of shape (n_samples, n_targets)."""
        check_is_fitted(self, "models_")
        return np.column_stack([model.predict(X) for model in self.models_])

    def predict_interval(
        self, X: Any, coverage: float | Sequence[float] | None = None, *, joint: bool = False
    ) -> FloatArray:
        """Prediction intervals of every target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float or sequence of float, optional
            Coverages; by default the one the models were fitted for.
        joint : bool
            Whether a coverage is that of all targets together, or of each alone.

        Returns
        -------
        array of shape (n_samples, n_targets, 2) or (n_samples, n_targets, 2, n_coverages)
            Lower and upper bounds; the last axis is there if ``coverage`` is a sequence.
        """
        check_is_fitted(self, "models_")
        asked: Any = self.coverage if coverage is None else coverage
        levels = self.single_coverages(asked) if joint else list(np.atleast_1d(asked))
        bounds = np.stack([m.predict_interval(X, levels) for m in self.models_], axis=1)
        return bounds if np.ndim(asked) else bounds[..., 0]

    def pick(self, frame: Any) -> Any:
        """Columns that the model takes, from a pandas frame with any others and in any order."""
        check_is_fitted(self, "models_")
        return self.models_[0].pick(frame)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the models to one folder, see ``IntervalRegressor.save``."""
        check_is_fitted(self, "models_")
        documents: list[Any] = []
        arrays: dict[str, NDArray[Any]] = {}
        for i, model in enumerate(self.models_):
            document, own = model_to_dict(model)
            documents.append(document)
            arrays |= {f"{i}.{name}": array for name, array in own.items()}
        if self.depths_ is not None:
            arrays["depths"] = self.depths_
        storage.write_model(
            folder, {"estimator": type(self).__name__, "targets": documents}, arrays
        )

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote.

        Raises
        ------
        calipers.storage.ModelFileError
            If the folder holds no model, another kind of model, or a damaged one.
        """
        with stored_model(folder, cls) as (document, arrays):
            return cls()._from_document(document, arrays)

    def _from_document(self, document: dict[str, Any], arrays: dict[str, Any]) -> Self:
        record({"estimator": anything, "targets": list_of(anything, least=2)})(document, "document")
        rest = dict(arrays)
        self.depths_ = None
        if "depths" in rest:
            self.depths_ = array_of(rest, "depths", "f", rest["depths"].shape[:1])
            within("depths", rest.pop("depths"), 0.0, 1.0)
            if (np.diff(self.depths_) < 0).any():
                refuse("array 'depths'", "in ascending order", "another")
        self.models_ = []
        for i, own in enumerate(document["targets"]):
            parts = arrays_under(rest, f"{i}.")
            rest = {name: array for name, array in rest.items() if not name.startswith(f"{i}.")}
            self.models_.append(IntervalRegressor())
            model_from_dict(self.models_[-1], own, parts)
        if rest:
            refuse("the weights", "those of the targets", sorted(rest)[0])
        if len({(m.inputs_, m.coverage) for m in self.models_}) > 1 or len(
            set(self.target_names_)
        ) < len(self.models_):
            refuse("targets", "different, of the same inputs and coverage", self.target_names_)
        self.estimator = clone(self.models_[0])
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def _targets(y: Any) -> list[Any]:
    """Columns of the targets, with their names."""
    import pandas as pd

    if hasattr(y, "columns"):
        frame = pd.DataFrame({str(name): np.asarray(y[name]) for name in y.columns})
    else:
        values = np.asarray(y)
        if values.ndim != 2:
            raise ValueError(f"y must have a column for each target, got shape {values.shape}")
        frame = pd.DataFrame(values, columns=[f"y{i}" for i in range(values.shape[1])])
    if frame.shape[1] < 2:
        raise ValueError(
            f"y must hold two targets or more, got {frame.shape[1]}: IntervalRegressor is for one"
        )
    return [frame[name] for name in frame]


def _out_of_fold_depths(found: Sequence[OutOfFold | None]) -> FloatArray | None:
    """Depths of the rows that networks have not seen; None where there are none."""
    levels = []
    for known in found:
        if known is None or known.dist is None or known.target is None:
            return None
        levels.append(known.levels)
    return _depths(levels)


def _depths(levels: Sequence[FloatArray]) -> FloatArray:
    """The smallest coverage whose intervals hold all targets, of each row; ascending.

    >>> _depths([np.array([0.5, 0.25, 0.9]), np.array([0.4, 0.5, 0.5])]).round(2)
    array([0.2, 0.5, 0.8])
    """
    depth: FloatArray = np.max([np.abs(2 * np.asarray(u) - 1) for u in levels], axis=0)
    return np.sort(np.clip(depth, 0.0, 1.0))
