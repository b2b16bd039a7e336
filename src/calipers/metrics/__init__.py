"""Measures of points, intervals and predictive distributions against what was observed.

All take lists or arrays, prediction first and ``target`` last, and average over the rows, of any
shape as long as it is one. ``weight`` gives rows unequal importance; a row of weight zero is as
good as absent. Unequal shapes, NaN and infinities are refused, except that an interval may be open:
``lower`` may be -inf and ``upper`` inf.
"""

from calipers.metrics._calibration import CalibrationCurve, calibration_curve, calibration_error
from calipers.metrics._chance import coverage_band, coverage_p_value
from calipers.metrics._conditional import (
    GroupedCoverage,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
)
from calipers.metrics._distributions import crps, log_score, pit_values
from calipers.metrics._integrity import crossing_rate, point_inside_rate
from calipers.metrics._intervals import (
    coverage_rate,
    coverage_width_criterion,
    interval_score,
    mean_width,
    normalized_mean_width,
)
from calipers.metrics._points import (
    mean_absolute_error,
    mean_squared_error,
    pinball_loss,
    root_mean_squared_error,
)

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
    "mean_absolute_error",
    "mean_squared_error",
    "mean_width",
    "normalized_mean_width",
    "pinball_loss",
    "pit_values",
    "point_inside_rate",
    "root_mean_squared_error",
]
