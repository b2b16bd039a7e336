"""Mondrian conformal prediction: a separate calibration map for each subgroup of rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers._schema import array_of, arrays_under, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._score_map import BoolArray, Calibration, IntArray, Pieces
from calipers.calibration._subgroups import MAX_SUBGROUPS, Subgroups
from calipers.distributions import SplitNormalMixture


@dataclass(frozen=True, eq=False)
class CalibrationBy:
    """A map for each subgroup with enough calibration rows, and one for all rows.

    Where the rows of a subgroup and a new row of that subgroup are exchangeable, an interval has
    its coverage within the subgroup. Subgroups that are unseen or have too few calibration rows use
    the map of all rows, whose guarantee is marginal over all rows.
    """

    kinds: Subgroups  #: The subgroups.
    maps: tuple[Calibration, ...]  #: The map of all rows, then those of subgroups.
    #: (subgroups,): Index into ``maps`` of each subgroup; 0 is the map of all rows.
    place: IntArray

    kind: ClassVar[str] = "by"
    """Key in ``CALIBRATIONS``."""
    row_weight: ClassVar[None] = None

    @classmethod
    def from_kinds(
        cls,
        kinds: Subgroups,
        code: IntArray,
        scores: FloatArray,
        weights: FloatArray | None,
        units: NDArray[Any] | None,
        coverage: float,
    ) -> Self:
        """Learn strict maps from the scores of rows with subgroup numbers ``code``.

        A subgroup has its own map where its rows support ``coverage``.
        """

        def learn(rows: Any) -> Calibration:
            weight, unit = (None if a is None else a[rows] for a in (weights, units))
            return Calibration.from_scores(scores[rows], weight, strict=True, units=unit)

        maps, place = [learn(slice(None))], np.zeros(len(kinds), np.intp)
        for number in range(len(kinds)):
            rows = np.flatnonzero(code == number)
            if rows.size and (weights is None or weights[rows].sum() > 0):
                calibration = learn(rows)
                if calibration.supports(0.5 * (1.0 - coverage)):
                    place[number] = len(maps)
                    maps.append(calibration)
        return cls(kinds, tuple(maps), place)

    @property
    def whole(self) -> Calibration:
        """The map of all rows."""
        return self.maps[0]

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return self.whole.n_rows

    @property
    def n_effective(self) -> float:
        """Effective sample size of the calibration rows."""
        return self.whole.n_effective

    @property
    def strict(self) -> bool:
        """Whether the guarantee of split conformal prediction holds."""
        return self.whole.strict

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots of all maps."""
        return np.unique(np.concatenate([calibration.scores for calibration in self.maps]))

    @property
    def total_weight(self) -> float:
        """Sum of the calibration weights."""
        return self.whole.total_weight

    @property
    def mean_weight(self) -> float:
        """Index of the map of all rows, since a row's weight is here the index of its map."""
        return 0.0

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""
        code = self.kinds.of_rows(dist, X)
        seen = (code >= 0) & (code < len(self.place))
        place = np.where(seen, self.place[np.where(seen, code, 0)], 0)
        return CalibratedMixture(dist, self, place.astype(np.float64), unsupported)

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level on the normal scale, by the map of index ``weight``."""
        return self._by_map(v, weight, lambda calibration, v: calibration.to_score(v))

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score on the normal scale: the inverse of ``to_score``."""
        return self._by_map(z, weight, lambda calibration, z: calibration.from_score(z))

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> BoolArray:
        """Whether a map has enough rows for the level ``p``."""
        supported = self._by_map(p, weight, lambda calibration, p: calibration.supports(p))
        return supported.astype(np.bool_)

    def smallest_alpha(self) -> FloatArray:
        """Smallest miscoverage of a central interval that all rows together support."""
        return self.whole.smallest_alpha()

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> Pieces:
        """Linear pieces of the maps on which the scores ``z`` lie."""

        def pieces(calibration: Calibration, z: FloatArray) -> FloatArray:
            return np.stack(calibration.pieces_of_score(z, np.asarray(calibration.mean_weight)))

        return Pieces(*self._by_map(z, weight, pieces, outputs=3))

    def _by_map(
        self,
        values: ArrayLike,
        place: ArrayLike | None,
        function: Callable[[Calibration, FloatArray], Any],
        outputs: int = 0,
    ) -> FloatArray:
        """Apply ``function`` to each map and the values whose ``place`` is its index."""
        values, place = np.broadcast_arrays(
            np.asarray(values, np.float64), np.asarray(0.0 if place is None else place)
        )
        result = np.empty((outputs, *values.shape) if outputs else values.shape)
        for number in np.unique(place).astype(int).tolist():
            rows = place == number
            result[..., rows] = function(self.maps[number], values[rows])
        return result

    def fixed_scores(self, v: FloatArray) -> NoReturn:
        """Raise ValueError: scores are not the same for every row."""
        raise ValueError("a model conformalized by subgroups of rows cannot be exported to ONNX")

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """State to store, as plain arrays."""
        arrays: dict[str, NDArray[Any]] = {f"by.{k}": v for k, v in self.kinds.to_arrays().items()}
        arrays["place"] = self.place
        for number, calibration in enumerate(self.maps):
            arrays |= {f"map.{number}.{name}": a for name, a in calibration.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Restore a calibration from ``to_arrays``; raise ``SchemaError`` if it is malformed."""
        stored = {name: np.asarray(array) for name, array in arrays.items()}
        kinds = Subgroups.from_arrays(arrays_under(stored, "by."))
        place = array_of(stored, "place", "iu", (len(kinds),))
        within("place", place, 0, MAX_SUBGROUPS)
        count = int(place.max()) + 1
        maps = [Calibration.from_arrays(arrays_under(stored, f"map.{i}.")) for i in range(count)]
        if not all(calibration.strict and calibration.n_rows for calibration in maps):
            refuse("array 'map.0.strict'", "true, with at least one row", False)
        return cls(kinds, tuple(maps), place.astype(np.intp))
