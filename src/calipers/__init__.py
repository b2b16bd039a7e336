"""Point estimates and prediction intervals from ensembles of neural networks."""

from calipers.regressor import IntervalRegressor

__all__ = ["IntervalRegressor", "__version__"]

__version__ = "0.1.0"
