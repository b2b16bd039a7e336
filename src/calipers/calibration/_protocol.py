"""What a calibration must be able to do to be part of an ensemble."""

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
        """Scores of the knots between which the map is straight, in ascending order."""

    @property
    def total_weight(self) -> float:
        """Sum of their weights."""

    @property
    def mean_weight(self) -> float:
        """Weight of a new row where none is given."""

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level, both on the normal scale."""

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score: the inverse of ``to_score``."""

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> "Pieces":
        """Straight pieces of the map on which scores lie."""

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether the calibration rows are enough for the level ``p``."""


class Calibrator(Protocol):
    """A correction of predictive distributions, learnt from rows that were held out."""

    kind: ClassVar[str]  #: Key in ``CALIBRATIONS``.

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""

    @property
    def strict(self) -> bool:
        """Whether the guarantee of split conformal prediction holds."""

    @property
    def row_weight(self) -> Callable[[FloatArray], FloatArray] | None:
        """Function that gives weights of new rows, or None; code, and not stored.

        ``load`` puts it back where it is a field of a dataclass.
        """

    def calibrated(
        self,
        dist: "SplitNormalMixture | CalibratedMixture",
        X: FloatArray,
        unsupported: "Unsupported" = "inf",
    ) -> "CalibratedMixture":
        """Correct the distributions that were predicted for the rows ``X``, by a ``LevelMap``."""

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether the calibration rows are enough for the level ``p``."""

    def fixed_scores(self, v: FloatArray) -> FloatArray:
        """Scores of levels on the normal scale, the same for every row, as exports need them.

        Raises ValueError where they are not.
        """

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Give all there is to store, as plain arrays."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what ``to_arrays`` gave."""


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

        ``units`` is given where rows belong together or were scored several times.
        """
