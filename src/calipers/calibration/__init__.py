r"""Calibration of predictive distributions, so that nominal levels hold.

A model predicts a distribution F(. | x) for every row. Rows it was not trained on show how accurate
its levels are: their normal scores :math:`z = \Phi^{-1}(F(y | x))` (`normal_scores`) would be
standard normal if the model were right. A `Calibration` maps nominal levels to the scores that
actually have them, and a `CalibratedMixture` is the prediction with that map applied: conformal
prediction on the probability integral transform [1]_, at all levels at once.

What is guaranteed
------------------
**Split conformal (strict).** Let the n calibration rows and the new row be exchangeable, and let
none of them have been used in training, early stopping or model selection. Then
``Calibration.from_scores(scores, strict=True)`` gives, whatever the model and the distribution,

.. math:: P(y \le Q(1 - \alpha)) \ge 1 - \alpha, \quad P(y \ge Q(\alpha)) \ge 1 - \alpha, \quad
          P(\mathrm{lower} \le y \le \mathrm{upper}) \ge 1 - \alpha,

for each supported level, that is, for tails of at least 1 / (n + 1); an interval needs
:math:`n \ge 2 / \alpha - 1` rows (split conformal prediction, [2]_ [3]_ [4]_). Coverage is
marginal: the probability is over the calibration rows and the new row together, not conditional on
x. Since the map is continuous, quantiles are one rank further out than the sharpest valid step
function, and further by up to 1% of the tail, which costs at most
:math:`2 / (n + 1) + 0.01 \alpha` of coverage. No claim is made for levels within 0.001 of one half.

**Covariate shift (weighted conformal).** The same holds with weights if the new inputs are
distributed differently from the calibration inputs, the distribution of the target given the input
is the same, and the weights are the ratio of the two input densities (up to a factor), for the
calibration rows and for every new row [5]_.

**Groups.** Let the groups, including the group of the new row, be exchangeable, and rows be
exchangeable within a group. With weights of one over the size of each group, and groups as
``units``, the same holds for a row drawn from the new group, with groups counted in place of rows
(hierarchical conformal prediction, [7]_). Without ``strict``, the supported coverage still depends
on the effective sample size (`effective_number`), and levels on the estimated correlation within
groups (``_effective.independent_number``).

**Subgroups (Mondrian).** ``CalibrationBy`` has a strict map for each subgroup with enough rows: the
same holds within the subgroup, given exchangeability there (Mondrian conformal prediction, [8]_).

**Estimated shift.** With weights from a ``DensityRatio`` nothing is proven; coverage is as accurate
as the estimated ratio.

**Cross-fitting, the default.** No row is held out for calibration; each is predicted by the
networks that were not trained on it. Coverage is then close to nominal, but not guaranteed, because
calibration rows and new rows are predicted by different networks. The related CV+ and jackknife+
have a bound of :math:`1 - 2 \alpha` (for CV+ with a term that vanishes with n) [6]_; a pooled
prediction has no such bound. `unseen_pools` corrects the main source of error, that the pool is
more accurate and wider than the networks of one fold, under assumptions that it states.
``WidthCalibration`` precedes the map of levels and evens out coverage from narrow to wide
predictions.

**Streams.** `AdaptiveCoverage` follows rows in time order, however they are distributed: over T
rows the coverage of a central interval differs from nominal by at most a constant over T, as long
as scores are bounded in units of their recent scale. Where the target has point masses, it is at
most that much below nominal: intervals contain more, because none ends in the middle of a point
mass. What is then nominal is the coverage with ties shared out (`metrics.shared_coverage`), as far
as the point masses are predicted correctly. This is a statement about the past as a whole, not
about the next row.

A calibration is a subclass of ``Calibrator``, made from ``CalibrationRows`` by ``from_rows`` and
registered in ``CALIBRATIONS`` under its ``kind``.

References
----------
.. [1] Chernozhukov, Wüthrich and Zhu, "Distributional conformal prediction", PNAS 118 (2021).
.. [2] Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", Springer (2005).
.. [3] Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, "Distribution-free predictive inference for
       regression", JASA 113 (2018).
.. [4] Romano, Patterson and Candès, "Conformalized quantile regression", NeurIPS (2019).
.. [5] Tibshirani, Barber, Candès and Ramdas, "Conformal prediction under covariate shift",
       NeurIPS (2019).
.. [6] Barber, Candès, Ramdas and Tibshirani, "Predictive inference with the jackknife+", Annals of
       Statistics 49 (2021).
.. [7] Lee, Barber and Willett, "Distribution-free inference with hierarchical data",
       arXiv:2306.06342 (2023).
.. [8] Vovk, "Conditional validity of inductive conformal predictors", ACML (2012).
"""

from calipers.calibration._by import WIDTH as WIDTH, CalibrationBy, Subgroups as Subgroups
from calipers.calibration._calibrated import (
    CalibratedMixture,
    Unsupported as Unsupported,
    normal_scores,
)
from calipers.calibration._calibrator import CalibrationRows, Calibrator
from calipers.calibration._effective import (
    RowCount as RowCount,
    effective_rows as effective_rows,
    infinite_reason as infinite_reason,
    rows_needed as rows_needed,
)
from calipers.calibration._learned import Learned, NetworkDistribution as NetworkDistribution
from calipers.calibration._level_map import LevelMap as LevelMap
from calipers.calibration._martingale import Martingale
from calipers.calibration._online import AdaptiveCoverage, lagged as lagged
from calipers.calibration._pool import UnseenPools as UnseenPools, out_of_fold, unseen_pools
from calipers.calibration._ratio import DensityRatio
from calipers.calibration._score_map import Calibration
from calipers.calibration._width import (
    WidthCalibration,
    log_width as log_width,
    pool_widths as pool_widths,
)

__all__ = [
    "CALIBRATIONS",
    "AdaptiveCoverage",
    "CalibratedMixture",
    "Calibration",
    "CalibrationBy",
    "CalibrationRows",
    "Calibrator",
    "DensityRatio",
    "Learned",
    "Martingale",
    "WidthCalibration",
    "normal_scores",
    "out_of_fold",
    "unseen_pools",
]

_KINDS = (Calibration, WidthCalibration, CalibrationBy, AdaptiveCoverage)
CALIBRATIONS: dict[str, type[Calibrator]] = {kind.kind: kind for kind in _KINDS}
"""Calibrations by the ``kind`` that is stored in model folders."""
