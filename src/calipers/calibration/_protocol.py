"""What a calibration must be able to do to be part of an ensemble."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers.calibration._mixture import CalibratedMixture, Unsupported
from calipers.distributions import SplitNormalMixture

FloatArray = NDArray[np.float64]


class Calibrator(Protocol):
    """A correction of predictive distributions, learnt from rows that were held out.

    Attributes
    ----------
    kind : str
        Key in ``CALIBRATIONS``.
    """

    kind: ClassVar[str]

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""

    @property
    def strict(self) -> bool:
        """Whether the guarantee of split conformal prediction holds."""

    @property
    def row_weight(self) -> Callable[[FloatArray], FloatArray] | None:
        """Function that gives weights of new rows, or None; it is not stored."""

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether the calibration rows are enough for the level ``p``."""

    def rows_needed(self, coverage: float) -> int:
        """Count the rows that an interval of this coverage takes."""

    def fixed_scores(self, v: FloatArray) -> FloatArray:
        """Scores of levels on the normal scale, the same for every row, as exports need them."""

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Give all there is to store, as plain arrays."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what ``to_arrays`` gave."""
