"""A skpro regressor, which also works with sktime.

``pip install 'calipers[skpro]'``. skpro's metrics, pipelines, tuning and benchmarks, and sktime's
reductions to tabular regression, accept a `ProbaIntervalRegressor` like any of their own.
"""

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from calipers._arrays import FloatArray
from calipers.distributions import Distribution, SplitNormal, SplitNormalMixture
from calipers.networks import MLP
from calipers.objectives import LOSSES
from calipers.optimizers import Adam
from calipers.regressor import IntervalRegressor

__all__ = ["PredictiveDistribution", "ProbaIntervalRegressor"]


_LEVELS, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_LEVELS, _WEIGHTS = (_LEVELS + 1) / 2, _WEIGHTS / 2  # from [-1, 1] to [0, 1]


class PredictiveDistribution(BaseDistribution):
    """The result of ``IntervalRegressor.predict_dist`` as a skpro distribution.

    Parameters
    ----------
    dist : SplitNormalMixture or CalibratedMixture
        Distributions of n rows.
    index : pandas.Index, optional
        Labels of the rows; without it, one row is a scalar distribution.
    columns : pandas.Index, optional
        Name of the target.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers.distributions import SplitNormal, SplitNormalMixture
    >>> from calipers.skpro import PredictiveDistribution
    >>> normal = SplitNormalMixture(SplitNormal(np.zeros((1, 2)), 1.0, 1.0))
    >>> PredictiveDistribution(normal, index=["a", "b"], columns=["y"]).cdf(0.0)
         y
    a  0.5
    b  0.5
    """

    _tags = {  # noqa: RUF012 (skpro's way)
        "authors": ["The calipers developers"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf", "energy"],
        "capabilities:approx": ["pdfnorm"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
        "broadcast_init": "off",
    }

    def __init__(
        self, dist: Distribution, index: ArrayLike | None = None, columns: ArrayLike | None = None
    ) -> None:
        self.dist = dist
        if index is not None and columns is None:
            columns = pd.RangeIndex(1)
        super().__init__(index=index, columns=columns)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        if np.isscalar(rowidx) and np.isscalar(colidx):
            return self._iat(rowidx, colidx)
        rows = np.arange(len(self.index))
        rows = rows if rowidx is None else np.atleast_1d(rows[rowidx])
        columns = self.columns if colidx is None else self.columns[np.atleast_1d(colidx)]
        return PredictiveDistribution(self.dist[rows], self.index[rows], columns)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "PredictiveDistribution":
        return PredictiveDistribution(self.dist[np.array([rowidx])])

    def _shaped(self, values: FloatArray) -> FloatArray:
        """Reshape one value per row to the shape of this distribution."""
        return np.reshape(values, self.shape)

    def _mean(self) -> FloatArray:
        return self._shaped(self.dist.mean)

    def _var(self) -> FloatArray:
        return self._shaped(self.dist.var)

    def _pdf(self, x: ArrayLike) -> FloatArray:
        return self._shaped(self.dist.pdf(np.ravel(x)))

    def _log_pdf(self, x: ArrayLike) -> FloatArray:
        return self._shaped(self.dist.logpdf(np.ravel(x)))

    def _cdf(self, x: ArrayLike) -> FloatArray:
        return self._shaped(self.dist.cdf(np.ravel(x)))

    def _ppf(self, p: ArrayLike) -> FloatArray:
        return self._shaped(self.dist.ppf(np.ravel(p)))

    def _spread(self) -> FloatArray:
        """Mean absolute difference of two draws, 2 times the integral of Q(u) (2u - 1) over u."""
        total = np.zeros(len(self.dist))
        for level, weight in zip(_LEVELS, _WEIGHTS, strict=True):
            total += 2 * weight * (2 * level - 1) * self.dist.ppf(level)
        return total

    def _energy_self(self) -> FloatArray:
        return self._shaped(self._spread())

    def _energy_x(self, x: ArrayLike) -> FloatArray:
        # So that skpro's CRPS, energy(x) - energy() / 2, is exactly the closed form.
        return self._shaped(self.dist.crps(np.ravel(x)) + self._spread() / 2)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters for skpro's own tests: three rows, and one."""
        rows = SplitNormal([[0.0, 1.0, 2.0], [1.0, 1.0, 3.0]], 1.0, [[2.0], [0.5]])
        one = SplitNormal([[0.5], [0.0]], 1.0, 2.0)
        return [
            {"dist": SplitNormalMixture(rows), "index": pd.Index([1, 2, 5]), "columns": ["y"]},
            {"dist": SplitNormalMixture(one)},
        ]


class ProbaIntervalRegressor(BaseProbaRegressor):
    """`IntervalRegressor` with skpro's interface.

    Parameters
    ----------
    estimator : IntervalRegressor, optional
        The estimator, which is cloned before fitting; ``IntervalRegressor()`` by default.

    Attributes
    ----------
    estimator_ : IntervalRegressor
        The fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from calipers import IntervalRegressor
    >>> from calipers.skpro import ProbaIntervalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"x": rng.uniform(-2, 2, 200)})
    >>> y = (X**2 + rng.normal(0, 0.2, (200, 1))).rename(columns={"x": "y"})
    >>> small = IntervalRegressor(n_networks=2, cv=2, epochs=20, random_state=0)
    >>> model = ProbaIntervalRegressor(small).fit(X, y)
    >>> model.predict_interval(X.iloc[:3], coverage=0.9).columns.tolist()
    [('y', 0.9, 'lower'), ('y', 0.9, 'upper')]
    >>> model.predict_proba(X.iloc[:3]).shape
    (3, 1)
    """

    _tags = {  # noqa: RUF012 (skpro's way)
        "authors": ["The calipers developers"],
        "capability:missing": True,
        "capability:multioutput": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: IntervalRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        from sklearn.base import clone

        estimator = IntervalRegressor() if self.estimator is None else clone(self.estimator)
        self.estimator_ = estimator.fit(_named(X), y.iloc[:, 0])
        return self

    def _target(self) -> Any:
        """Name of the target, as skpro keeps it."""
        return self._get_columns(method="predict")

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            self.estimator_.predict(_named(X)), index=X.index, columns=self._target()
        )

    def _predict_proba(self, X: pd.DataFrame) -> PredictiveDistribution:
        dist = self.estimator_.predict_dist(_named(X))
        return PredictiveDistribution(dist, index=X.index, columns=self._target())

    def _predict_interval(self, X: pd.DataFrame, coverage: list[float]) -> pd.DataFrame:
        bounds = self.estimator_.predict_interval(_named(X), coverage=coverage)
        names = [self._target(), coverage, ["lower", "upper"]]
        # From (rows, bounds, coverages) to columns: lower and upper bound of each coverage.
        values = np.moveaxis(bounds, 2, 1).reshape(len(X), -1)
        return pd.DataFrame(values, index=X.index, columns=pd.MultiIndex.from_product(names))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters for skpro's own tests: small networks, with and without calibration."""
        small: dict[str, Any] = {
            "n_networks": 2,
            "epochs": 5,
            "random_state": 0,
            "verbose": 0,
            "network": MLP(hidden_layers=(8,), frequencies=0),
            "optimizer": Adam(),
            "loss": LOSSES["density"](),
        }
        return [{"estimator": IntervalRegressor(cv=cv, **small)} for cv in (2, None)]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with column names as text, which scikit-learn requires."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
