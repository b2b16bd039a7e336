"""What a fitted model answers: points, intervals, quantiles, distributions; and its folder."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from calipers import storage
from calipers.aggregation import Interval
from calipers.bank import Points
from calipers.calibration import Calibration, normal_scores
from calipers.cluster import is_lazy, lazily
from calipers.ensemble import Distribution, Ensemble
from calipers.inputs import InputReader
from calipers.packing import CUSTOM, pack_ensemble, unpack_ensemble

FloatArray = NDArray[np.float64]


class IntervalPredictor(RegressorMixin, InputReader):
    """Answers of a model whose ``fit`` has made an ``ensemble_``."""

    ensemble_: Ensemble
    coverage: float
    n_jobs: int | None
    unsupported: str

    @property
    def _ensemble(self) -> Ensemble:
        check_is_fitted(self, "ensemble_")
        return replace(self.ensemble_, n_jobs=self.n_jobs, unsupported=self.unsupported)

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Point estimates: the mean of the members' points.

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
        X = self._checked(X)
        point = self._ensemble.point(X)
        return (point, np.sqrt(self._ensemble.variance(X))) if return_std else point

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
            Give a pandas frame with columns such as ``lower_0.95``.

        Returns
        -------
        array of shape (n_samples, 2) or (n_samples, 2, n_coverages)
            Lower and upper bounds; the third axis is there if ``coverage`` is a sequence.

        Raises
        ------
        ValueError
            If the aggregation defines no interval of another coverage.
        """
        levels = _levels("coverage", self.coverage if coverage is None else coverage)
        names = [f"{side}_{level:g}" for level in levels for side in ("lower", "upper")]
        if is_lazy(X):
            shape = (2,) if coverage is None or np.isscalar(coverage) else (2, len(levels))
            options = {"coverage": coverage, "as_frame": as_frame}
            columns = names if as_frame else None
            return lazily(self, "predict_interval", X, options, shape, columns)
        checked = self._checked(X)
        bounds = self._ensemble.interval(checked, levels)
        if as_frame:
            return _frame(bounds.swapaxes(1, 2).reshape(len(checked), -1), names, X)
        return bounds[:, :, 0] if coverage is None or np.isscalar(coverage) else bounds

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
            Give a pandas frame with columns such as ``quantile_0.1``.

        Returns
        -------
        array of shape (n_samples, n_quantiles), or (n_samples,) for a single level
        """
        levels = _levels("quantiles", quantiles)
        names = [f"quantile_{level:g}" for level in levels]
        if is_lazy(X):
            shape = (len(levels),) if np.ndim(quantiles) else ()
            options = {"quantiles": quantiles, "as_frame": as_frame}
            columns = names if as_frame else None
            return lazily(self, "predict_quantiles", X, options, shape, columns)
        values = self._ensemble.quantiles(self._checked(X), levels)
        if as_frame:
            return _frame(values, names, X)
        return values if np.ndim(quantiles) else values[:, 0]

    def predict_dist(self, X: ArrayLike) -> Distribution:
        """Predictive distributions, one per row.

        Calibrated where the model is. Its ``aleatoric_var`` and ``epistemic_var`` are those of the
        members: how much of the uncertainty is noise, and how much is their disagreement.
        """
        return self._ensemble.distribution(self._checked(X))

    def predict_var(self, X: ArrayLike) -> FloatArray:
        """Variance of the predictive distribution, of shape (n_samples,)."""
        return self._ensemble.variance(self._checked(X))

    def predict_members(self, X: ArrayLike) -> Interval:
        """Each member's own bounds and point: ``lower``, ``point``, ``upper``, (members, rows)."""
        return self._ensemble.members(self._checked(X))

    def conformalize(
        self,
        X: Any,
        y: Any,
        *,
        keep: bool = False,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
    ) -> Self:
        """Calibrate on rows that ``fit`` has not seen, with the guarantee of split conformal.

        If these rows and new ones are exchangeable, an interval of coverage c holds a new target
        with probability at least c, whatever the model; see ``calipers.calibration``.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Held-out rows.
        keep : bool
            Whether to calibrate on top of what is there, or in its place.
        row_weight : callable, optional
            For covariate shift: a function from rows to how much more likely they are where the
            model is used than among these; it is needed again at every prediction.

        Returns
        -------
        self
        """
        check_is_fitted(self, "ensemble_")
        X, y = self._checked_pair(X, y)
        base = self._ensemble
        if not keep:
            base = replace(base, calibrations=(), row_weight=None)
        weights = None if row_weight is None else row_weight(X)
        scores = normal_scores(base.distribution(X), y)
        found = Calibration.from_scores(scores, weights, strict=True)
        calibrations = (*base.calibrations, found)
        self.ensemble_ = replace(base, calibrations=calibrations, row_weight=row_weight)
        return self

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

        Returns
        -------
        Path
            The file.
        """
        try:
            from calipers.onnx import export  # an extra
        except ImportError as error:
            raise ImportError(
                f"to_onnx needs {error.name}: pip install 'calipers[onnx]'"
            ) from error

        if coverage is not None:
            _levels("coverage", coverage)
        check_is_fitted(self, "ensemble_")
        return export(
            self.ensemble_,
            path,
            coverage=coverage,
            dtype=dtype,
            inputs=[column.name for column in self.inputs_ if column.used],
            table=getattr(self, "preprocessor_", None),
            target=self.target_.name,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder: JSON and safetensors, nothing that can run code.

        A process killed at any moment leaves the model that was there before or the new one. A
        network or a loss of one's own is not stored; ``load`` takes the network again.
        """
        check_is_fitted(self, "ensemble_")
        ensemble, arrays = pack_ensemble(self.ensemble_)
        document: dict[str, Any] = {
            "estimator": type(self).__name__,
            "parameters": {k: _plain(v) for k, v in self.get_params(deep=False).items()},
            "inputs": self._inputs_document(),
            "ensemble": ensemble,
        }
        storage.write_model(folder, document, arrays)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        network: Callable[..., Any] | None = None,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        points: Points | None = None,
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
        points : Points, optional
            What gives the points of a model that was upgraded; ``calipers.torch.load`` makes it.

        Raises
        ------
        calipers.storage.ModelFileError
            If the folder holds no model, another kind of model, or a damaged one.
        """
        document, arrays = storage.read_model(folder)
        if document.get("estimator") != cls.__name__:
            raise storage.ModelFileError(
                f"{os.fspath(folder)} holds a model of {document.get('estimator')!r}, "
                f"not of {cls.__name__}"
            )
        model = cls(**_restored(document["parameters"], network))
        model.ensemble_ = unpack_ensemble(
            document["ensemble"], arrays, network=network, row_weight=row_weight, points=points
        )
        model._restore_inputs(document["inputs"])
        return model


def _plain(value: Any) -> Any:
    """A parameter as JSON; objects of the user's own become a mark."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else CUSTOM


def _restored(parameters: Mapping[str, Any], network: Any) -> dict[str, Any]:
    """Parameters as the constructor takes them; what was not stored has its default."""
    known = {name: value for name, value in parameters.items() if value != CUSTOM}
    if network is not None:
        known["network"] = network
    return {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}


def _levels(name: str, given: float | Sequence[float]) -> FloatArray:
    levels = np.atleast_1d(np.asarray(given, dtype=np.float64))
    wrong = levels[~((levels > 0) & (levels < 1))]
    if levels.ndim != 1 or wrong.size:
        raise ValueError(f"{name} must lie between 0 and 1, got {given!r}")
    return levels


def _frame(values: FloatArray, columns: list[str], X: Any) -> Any:
    import pandas as pd  # an import of its own weight, paid by those who ask for frames

    return pd.DataFrame(values, columns=columns, index=getattr(X, "index", None))
