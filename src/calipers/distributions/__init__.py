"""Split normal distributions and their mixtures: closed forms, exact fits, safe quantiles.

The functions are for code that builds on mixtures, such as calibration and exports: they work on
one block of rows, values of shape (n,), parameters of shape (members, n) and weights of shape
(members, 1) or (members, n), and check nothing.
"""

from calipers.distributions._fit import scale_table
from calipers.distributions._grid import mixture_values_on_grid
from calipers.distributions._mixture import SplitNormalMixture
from calipers.distributions._mixture_formulas import logpdf as mixture_logpdf
from calipers.distributions._mixture_formulas import take_weights
from calipers.distributions._scores import mixture_scores, mixture_values
from calipers.distributions._split_normal import SplitNormal
from calipers.distributions._transformed import KINDS, TargetMap, TransformedMixture

__all__ = [
    "KINDS",
    "SplitNormal",
    "SplitNormalMixture",
    "TargetMap",
    "TransformedMixture",
    "mixture_logpdf",
    "mixture_scores",
    "mixture_values",
    "mixture_values_on_grid",
    "scale_table",
    "take_weights",
]
