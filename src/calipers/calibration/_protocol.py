"""What a class must provide to be a calibration of an ensemble."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers._schema import refuse
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._level_map import LevelMap
from calipers.calibration._ratio import DensityRatio
from calipers.distributions import SplitNormalMixture

_LAST = 40.0  # normal score beyond which probabilities are 0 in double precision


class Calibrator(Protocol):
    """A correction of predictive distributions, learned from held-out rows.

    A subclass must have a ``kind``, ``n_rows``, a ``level_map``, ``to_arrays`` and ``from_arrays``.
    The other methods follow from these where one map serves all rows. Where the map depends on the
    row, ``local`` says on what.
    """

    kind: ClassVar[str]  #: Key in ``CALIBRATIONS``.
    in_fit: ClassVar[bool] = True  #: Whether it may be the ``calibration`` of an estimator.
    #: What it corrects scores by before levels are mapped, such as the predicted width; empty if it
    #: maps levels. ``conformalize`` replaces maps of levels, but no such correction.
    corrects_by: ClassVar[str] = ""
    strict: bool = False  #: Whether the guarantee of split conformal prediction holds.
    #: Function that returns the weights of new rows. It is not stored; ``load`` takes it again.
    row_weight: Callable[[FloatArray], FloatArray] | None = None

    if TYPE_CHECKING:  # at run time they would be taken for the defaults of a dataclass's fields

        @property
        def n_rows(self) -> int:
            """Number of calibration rows."""

        @property
        def level_map(self) -> LevelMap:
            """The map between levels and scores."""

    def local(self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray) -> Any:
        """What the ``level_map`` of each row depends on, see ``LevelMap``; None if nothing."""
        del dist, X

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""
        local = self.local(dist, X)
        return CalibratedMixture(dist, self.level_map, unsupported=unsupported, local=local)

    def supports(self, p: ArrayLike, local: Any = None) -> NDArray[np.bool_]:
        """Whether there are enough calibration rows for the level ``p``."""
        return self.level_map.supports(p, local)

    def fixed_scores(self, v: FloatArray) -> FloatArray:
        """Scores of levels on the normal scale, the same for every row, for exports.

        Raises ValueError if scores depend on the row.
        """
        if type(self).local is not Calibrator.local:
            raise ValueError(
                f"a model with the calibration {self.kind!r}, which depends on the row, cannot be "
                "exported to ONNX"
            )
        return self.level_map.to_score(v, None)

    def about(self) -> dict[str, Any]:
        """Facts for the summary of ``conformalize``, as plain JSON."""
        return {}

    def reach(self) -> float:
        """Largest shift of a calibrated value, in scales of its row's distribution; at least 1."""
        slope = getattr(self.level_map, "tail_slope", None)
        if slope is None:
            return 1.0
        return max(1.0, float(_LAST * slope + np.abs(self.level_map.scores).max()))

    def check_inputs(self, inputs: int) -> None:
        """Raise ``SchemaError`` if it depends on other inputs than those of the model."""
        if isinstance(self.row_weight, DensityRatio):
            size = len(self.row_weight.center)
            if size != inputs:
                refuse("array 'ratio.center'", f"of {inputs} inputs", size)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """State to store, as plain arrays."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Restore a calibration from ``to_arrays``; raise ``SchemaError`` if it is malformed."""
        ...


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
        ...
