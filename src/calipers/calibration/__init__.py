"""Calibration."""

from calipers.calibration._calibration import Calibration
from calipers.calibration._mixture import CalibratedMixture
from calipers.calibration._scores import normal_scores

__all__ = ["CalibratedMixture", "Calibration", "normal_scores"]
