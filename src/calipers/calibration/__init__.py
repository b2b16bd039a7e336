r"""Calibration: predictive distributions whose levels are what they say.

A model predicts a distribution F(. | x) for every row. Rows that it was not trained on show what
its levels are worth: their normal scores :math:`z = \Phi^{-1}(F(y | x))` (`normal_scores`) would be
standard normal if it were right. A `Calibration` is the map from nominal levels to those scores
that really have them, and a `CalibratedMixture` is the prediction with that map applied: conformal
prediction on the probability integral transform [1]_, at every level at once.

What is guaranteed
------------------
**Rows held out, strict.** Let the n calibration rows and the new row be exchangeable and none of
them have had a part in training, early stopping or the choice of the model. Then
``Calibration.from_scores(scores, strict=True)`` gives, whatever the model and the distribution,

.. math:: P(y \le Q(1 - \alpha)) \ge 1 - \alpha, \quad P(y \ge Q(\alpha)) \ge 1 - \alpha, \quad
          P(\mathrm{lower} \le y \le \mathrm{upper}) \ge 1 - \alpha,

for every single level that is supported: tails of at least 1 / (n + 1), as many as
:math:`n \ge 2 / \alpha - 1` rows for an interval (split conformal prediction, [2]_ [3]_ [4]_). The
probability is over calibration rows and new row together: it is a statement about averages, not
about each x. Since the map is continuous, quantiles are one rank further out than the sharpest
valid step function, and by up to 1% of the tail, which costs at most
:math:`2 / (n + 1) + 0.01 \alpha` of coverage. No claim is made of levels
within 0.001 of one half.

**Covariate shift.** The same with weights, if the new inputs have another distribution than the
calibration inputs, the target given the input has the same, and the weights are the ratio of the
two densities of the inputs (up to a factor), for the calibration rows and for every new row [5]_.

**Groups.** Let groups of rows and the group of the new row be exchangeable, and rows within a
group. With weights of one over the size of each group, and groups as units, the same holds for a
row drawn from the new group, with groups in place of rows (hierarchical conformal prediction,
[7]_). Without ``strict``, too, support counts what rows are worth (`effective_number`); levels then
depend on what rows of a group have in common (``_effective.independent_number``), estimated.

**Kinds of rows.** ``CalibrationBy`` has a strict map for each kind with enough rows: the same holds
inside the kind, given exchangeability there (Mondrian conformal prediction, [8]_).

**Estimated shift.** With a ``DensityRatio`` for weights nothing is proven; coverage is as close as
the ratio is.

**Cross-fitting, the default.** No row is held out; each is predicted by the networks that
have not seen it. Coverage is then close to nominal, not guaranteed: calibration rows are predicted
by other networks than new rows are. For the related CV+ and jackknife+ there is a bound of
:math:`1 - 2 \alpha` (for CV+ with a term that vanishes with n) [6]_, and none of this kind for a
pooled prediction. `unseen_pools` corrects the foremost reason to be off, that the pool is better
and wider than the networks of one fold, under assumptions that it states. ``WidthCalibration``
comes before the map of levels, so that coverage is more even from narrow to wide predictions.

**Streams.** `AdaptiveCoverage` follows rows in time order, whatever they do: over T rows the
coverage of a central interval differs from nominal by at most a constant over T, as long as scores
are bounded in units of their recent scale. Where targets have values of their own mass it is at
least that, and nominal over intervals that are no single value as far as these values are predicted
right. That is a statement about the past as a whole, not about the next row.

A calibration is any class with the methods of ``ScoreCalibrator``, put into ``CALIBRATIONS`` under
its ``kind``; ensembles apply, store and export it through these.

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

from typing import Any

from calipers.calibration._by import CalibrationBy
from calipers.calibration._calibrated import CalibratedMixture, Unsupported as Unsupported
from calipers.calibration._effective import (
    effective_number as effective_number,
    rows_needed as rows_needed,
    worth as worth,
)
from calipers.calibration._folds import out_of_fold
from calipers.calibration._learned import Learned, NetworkDistribution as NetworkDistribution
from calipers.calibration._martingale import Martingale
from calipers.calibration._online import AdaptiveCoverage
from calipers.calibration._pool import UnseenPools as UnseenPools, unseen_pools
from calipers.calibration._protocol import Calibrator, LevelMap as LevelMap, ScoreCalibrator
from calipers.calibration._ratio import DensityRatio
from calipers.calibration._row_kinds import (
    WIDTH as WIDTH,
    RowKinds as RowKinds,
    log_width as log_width,
)
from calipers.calibration._score_map import Calibration
from calipers.calibration._scores import normal_scores
from calipers.calibration._width import WidthCalibration, evened as evened

__all__ = [
    "CALIBRATIONS",
    "AdaptiveCoverage",
    "CalibratedMixture",
    "Calibration",
    "CalibrationBy",
    "Calibrator",
    "DensityRatio",
    "Learned",
    "Martingale",
    "ScoreCalibrator",
    "WidthCalibration",
    "normal_scores",
    "out_of_fold",
    "unseen_pools",
]

_KINDS = (Calibration, WidthCalibration, CalibrationBy, AdaptiveCoverage)
CALIBRATIONS: dict[str, Any] = {kind.kind: kind for kind in _KINDS}
"""Calibrations by kind, as model folders name them."""
