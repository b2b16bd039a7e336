"""Metrics for prediction intervals and predictive distributions.

They follow scikit-learn's conventions: ``y_true`` first, then the prediction, then options by
keyword. All take lists or arrays of any one shape and average over the rows. ``sample_weight``
gives rows unequal importance: a row of weight 2 counts as two rows, a row of weight zero as none.
Unequal shapes, NaN and infinities raise a ``ValueError`` that says where they are, except that an
interval may be open: ``y_lower`` may be -inf and ``y_upper`` inf. Bounds that cross on most rows
are rejected too, since the arguments are then most likely in the wrong order.

For point predictions and single quantiles use ``sklearn.metrics``: ``root_mean_squared_error``,
``mean_absolute_error``, ``mean_pinball_loss`` and others.
"""

from calipers.metrics._chance import (
    coverage_band,
    coverage_p_value,
    curve_band as curve_band,
    joint_confidence as joint_confidence,
    pit_band,
    shared_coverage,
)
from calipers.metrics._conditional import (
    GroupedCoverage,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
    quantile_bins as quantile_bins,
    worst_slab_coverage,
)
from calipers.metrics._distributions import crps, log_score, pit_values
from calipers.metrics._intervals import (
    coverage_rate,
    coverage_width_criterion,
    crossing_rate,
    interval_score,
    mean_width,
    normalized_mean_width,
)
from calipers.metrics._nominal_levels import CalibrationCurve, calibration_curve, calibration_error
from calipers.metrics._scorers import neg_crps, neg_interval_score

__all__ = [
    "CalibrationCurve",
    "GroupedCoverage",
    "calibration_curve",
    "calibration_error",
    "coverage_band",
    "coverage_by_group",
    "coverage_by_value",
    "coverage_by_width",
    "coverage_p_value",
    "coverage_rate",
    "coverage_width_criterion",
    "crossing_rate",
    "crps",
    "interval_score",
    "log_score",
    "mean_width",
    "neg_crps",
    "neg_interval_score",
    "normalized_mean_width",
    "pit_band",
    "pit_values",
    "shared_coverage",
    "worst_slab_coverage",
]
