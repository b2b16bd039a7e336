"""Protocols that a calibration must implement to be part of an ensemble."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers.distributions import SplitNormalMixture

if TYPE_CHECKING:
    from calipers.calibration._calibrated import CalibratedMixture, Unsupported
    from calipers.calibration._score_map import Pieces


class LevelMap(Protocol):
    """A map between nominal levels and scores, which a ``CalibratedMixture`` applies."""

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots between which the map is linear, in ascending order."""

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the calibration rows."""

    @property
    def mean_weight(self) -> float:
        """Weight of a new row where none is given."""

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level, both on the normal scale."""

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score: the inverse of ``to_score``."""

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> "Pieces":
        """Linear pieces of the map on which the scores ``z`` lie."""

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether there are enough calibration rows for the level ``p``."""


class Calibrator(Protocol):
    """A correction of predictive distributions, learned from held-out rows."""

    kind: ClassVar[str]  #: Key in ``CALIBRATIONS``.

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""

    @property
    def strict(self) -> bool:
        """Whether the guarantee of split conformal prediction holds."""

    @property
    def row_weight(self) -> Callable[[FloatArray], FloatArray] | None:
        """Function that returns the weights of new rows, or None.

        A function is not stored; ``load`` takes it again and sets it as a dataclass field.
        """

    def calibrated(
        self,
        dist: "SplitNormalMixture | CalibratedMixture",
        X: FloatArray,
        unsupported: "Unsupported" = "inf",
    ) -> "CalibratedMixture":
        """Correct the distributions that were predicted for the rows ``X``, by a ``LevelMap``."""

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether there are enough calibration rows for the level ``p``."""

    def fixed_scores(self, v: FloatArray) -> FloatArray:
        """Scores of levels on the normal scale, the same for every row, for exports.

        Raises ValueError if scores depend on the row.
        """

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """State to store, as plain arrays."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Restore a calibration from ``to_arrays``."""


class ScoreCalibrator(Calibrator, Protocol):
    """A calibration that ``fit`` and ``conformalize`` learn from scores."""

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        weights: ArrayLike | None = None,
        strict: bool = False,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        units: ArrayLike | None = None,
    ) -> Self:
        """Learn from the normal scores of calibration rows, see ``Calibration.from_scores``.

        ``units`` is given where rows belong to groups or were scored several times.
        """
