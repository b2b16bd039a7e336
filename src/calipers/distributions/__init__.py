"""Split normal distributions and their mixtures: closed forms, exact fits, safe quantiles."""

from calipers.distributions._fit import fit_table
from calipers.distributions._mixture import SplitNormalMixture
from calipers.distributions._split_normal import SplitNormal

__all__ = ["SplitNormal", "SplitNormalMixture", "fit_table"]
