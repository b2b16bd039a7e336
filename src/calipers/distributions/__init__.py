"""Split normal distributions, their mixtures, and transformed or rounded versions of these.

The functions are for code that builds on mixtures, such as calibration and exports. They work on
one block of rows, values of shape (n,) and their `Members`, and do not validate their arguments.
"""

from calipers.distributions._distribution import (
    DerivedDistribution as DerivedDistribution,
    Distribution,
)
from calipers.distributions._exact_fit import scale_table as scale_table
from calipers.distributions._formulas import Members as Members
from calipers.distributions._grid import mixture_values_on_grid as mixture_values_on_grid
from calipers.distributions._learn_support import (
    Bounds,
    given_support as given_support,
    latent_targets as latent_targets,
    learn_support,
    match_atoms as match_atoms,
    refuse_outside as refuse_outside,
    with_atoms as with_atoms,
)
from calipers.distributions._mixture import SplitNormalMixture
from calipers.distributions._mixture_formulas import mixture_logpdf as mixture_logpdf
from calipers.distributions._normal_scores import (
    mixture_scores as mixture_scores,
    mixture_values as mixture_values,
)
from calipers.distributions._observed import (
    MAX_ATOMS as MAX_ATOMS,
    ObservedDistribution,
    atoms as atoms,
    mean_density as mean_density,
)
from calipers.distributions._quantile_sums import (
    SUM_SCORES as SUM_SCORES,
    summed_crps as summed_crps,
    summed_moments as summed_moments,
)
from calipers.distributions._split_normal import SplitNormal
from calipers.distributions._support import Support, support_runs as support_runs
from calipers.distributions._target_scale import (
    mean_of as mean_of,
    on_target_scale as on_target_scale,
)
from calipers.distributions._transformed import (
    HALF_NORMAL as HALF_NORMAL,
    TARGET_MAPS as TARGET_MAPS,
    TargetMap,
    TransformedMixture,
)

__all__ = [
    "Bounds",
    "Distribution",
    "ObservedDistribution",
    "SplitNormal",
    "SplitNormalMixture",
    "Support",
    "TargetMap",
    "TransformedMixture",
    "learn_support",
]
