"""A block of rows with calibrated distributions, on which all their methods are built.

A calibrated distribution is a chain: a value has a score in the members' mixture, and each
calibration turns a score into a level on the normal scale, which is the score for the next one.
"""

from typing import NamedTuple

import numpy as np

from calipers._checks import FloatArray, IntArray
from calipers.calibration._protocol import LevelMap
from calipers.distributions import Members, mixture_logpdf, mixture_scores, mixture_values


class MixtureRows(NamedTuple):
    """Mixtures of a block of rows and the calibrations applied to them."""

    members: Members  # the uncalibrated mixtures
    calibrations: tuple[LevelMap, ...]  # the innermost first
    row_weights: tuple[FloatArray, ...]  # weights of the rows, shape (n,), for each calibration

    def take(self, rows: IntArray) -> "MixtureRows":
        """The subset ``rows``."""
        return self._replace(
            members=self.members.take(rows),
            row_weights=tuple(weight[rows] for weight in self.row_weights),
        )

    def levels(self, x: FloatArray) -> FloatArray:
        """Levels of `x` on the normal scale; Phi of them is the calibrated cdf."""
        v = mixture_scores(x, self.members)
        for calibration, weight in zip(self.calibrations, self.row_weights, strict=True):
            v = calibration.from_score(v, weight)
        return v

    def values(self, v: FloatArray) -> FloatArray:
        """Quantiles at levels on the normal scale: the inverse of `levels`."""
        pairs = zip(reversed(self.calibrations), reversed(self.row_weights), strict=True)
        for calibration, weight in pairs:
            v = calibration.to_score(v, weight)
        return mixture_values(v, self.members)

    def logpdf(self, x: FloatArray) -> FloatArray:
        """Log density: that of the mixture plus the logarithm of each map's derivative."""
        density, z = mixture_logpdf(x, self.members), mixture_scores(x, self.members)
        for calibration, weight in zip(self.calibrations, self.row_weights, strict=True):
            pieces = calibration.pieces_of_score(z, weight)
            v = pieces.v + (z - pieces.z) / pieces.rate
            density = density + 0.5 * (z - v) * (z + v) - np.log(pieces.rate)
            z = v
        return density
