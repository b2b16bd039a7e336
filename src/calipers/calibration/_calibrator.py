"""What a class must provide to be a calibration of an ensemble."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers._schema import refuse
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._level_map import LevelMap
from calipers.calibration._ratio import DensityRatio
from calipers.distributions import SplitNormalMixture

if TYPE_CHECKING:
    from calipers.onnx import Graph, Parts, Value


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows that a calibration is learned from: predictions made without them, and their scores."""

    #: (n,) or (draws, n): Normal scores of targets; several of a row, one for each pool drawn.
    scores: FloatArray
    dist: SplitNormalMixture | CalibratedMixture  #: (n,): Predictions, before the calibration.
    X: FloatArray  #: (n, inputs): Encoded inputs.
    units: NDArray[Any]  #: (n,): Label of the row, or of the group to which it belongs.
    weights: FloatArray | None = None  #: (n,): Their weights; equal if not given.
    strict: bool = False  #: Whether to have the guarantee of split conformal prediction.
    #: Function that returns the weights of new rows, under covariate shift.
    row_weight: Callable[[FloatArray], FloatArray] | None = None
    #: Weight of every new row, where it is known; otherwise new rows are like these.
    new_weight: float | None = None
    #: Returns the ``log_width`` of the prediction to which each of ``scores.ravel()`` belongs;
    #: None if new rows are predicted with other widths.
    log_widths: Callable[[], FloatArray] | None = None


class Calibrator(ABC):
    """A correction of predictive distributions, learned from held-out rows.

    A subclass must have a ``kind``, ``n_rows``, ``from_rows`` if it is ``in_fit``, and the abstract
    methods. The other methods follow from these where one map serves all rows. Where the map
    depends on the row, ``local`` says on what.
    """

    kind: ClassVar[str]  #: Key in ``CALIBRATIONS``.
    #: Whether it may be the ``calibration`` of an estimator, which then calls ``from_rows``.
    in_fit: ClassVar[bool] = True
    #: What it corrects scores by before levels are mapped, such as the predicted width; empty if it
    #: maps levels. ``conformalize`` replaces maps of levels, but no such correction.
    corrects_by: ClassVar[str] = ""
    n_rows: int  #: Number of calibration rows.
    strict: bool = False  #: Whether the guarantee of split conformal prediction holds.
    #: Function that returns the weights of new rows. It is not stored; ``load`` takes it again.
    row_weight: Callable[[FloatArray], FloatArray] | None = None

    @classmethod
    def from_rows(cls, rows: CalibrationRows) -> "tuple[Calibrator, ...]":
        """Learn from held-out rows: the calibration, after any that must precede it."""
        raise NotImplementedError(f"the calibration {cls.kind!r} is not learned in fit")

    @abstractmethod
    def level_map(self) -> LevelMap:
        """The map between levels and scores, often the calibration itself."""

    def local(
        self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray
    ) -> NDArray[Any] | None:
        """What the ``level_map`` of each row depends on, see ``LevelMap``; None if nothing."""
        del dist, X
        return None

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""
        local = self.local(dist, X)
        return CalibratedMixture(dist, self.level_map(), local, unsupported)

    def supports(self, p: ArrayLike, local: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether there are enough calibration rows for the level ``p``."""
        return self.level_map().supports(p, local)

    def onnx(self, graph: "Graph", X: "Value", mixture: "Parts") -> tuple["Value", int] | None:
        """Form in an ONNX graph: ``local`` of each row there, and the number of its values.

        These are 0, 1 and so on. ``graph`` is the ``Graph`` of ``calipers.onnx``, ``X`` the encoded
        inputs and ``mixture`` the members' ``Parts`` in it. None if one map serves all rows. Raises
        ValueError if there is no form.
        """
        del graph, X, mixture
        of = type(self)
        if of.local is not Calibrator.local or of.calibrated is not Calibrator.calibrated:
            raise ValueError(
                f"a model with the calibration {self.kind!r}, which depends on the row, cannot be "
                "exported to ONNX"
            )
        return None

    def reach(self, level: float) -> float:
        """Largest absolute score of levels on the normal scale up to this one, in any row."""
        level_map = self.level_map()
        return float(level_map.tail_slope * level + np.abs(level_map.scores).max())

    def check_inputs(self, inputs: int) -> None:
        """Raise ``SchemaError`` if it depends on other inputs than those of the model."""
        if isinstance(self.row_weight, DensityRatio):
            size = len(self.row_weight.center)
            if size != inputs:
                refuse("array 'ratio.center'", f"of {inputs} inputs", size)

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """State to store, as plain arrays."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Restore a calibration from ``to_arrays``; raise ``SchemaError`` if it is malformed."""
