"""Split normal distributions and their mixtures: closed forms, exact fits, safe quantiles."""

from calipers.distributions._split_normal import SplitNormal

__all__ = ["SplitNormal"]
