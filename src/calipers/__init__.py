"""Point estimates and prediction intervals from ensembles of neural networks."""

__version__ = "0.1.0"
