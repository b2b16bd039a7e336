"""Calibration with a map of its own for each kind of row: Mondrian conformal prediction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers._schema import array_of, arrays_under, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._row_kinds import MOST_KINDS, RowKinds
from calipers.calibration._score_map import BoolArray, Calibration, IntArray, Pieces
from calipers.distributions import SplitNormalMixture


@dataclass(frozen=True, eq=False)
class CalibrationBy:
    """A map for each kind of row that has enough calibration rows, and one of all rows.

    Where rows of a kind and a new row of that kind are exchangeable, an interval has its coverage
    within the kind. Rows of a kind with too few calibration rows, or of none that was seen, get the
    map of all rows, whose guarantee is about all rows together.
    """

    kinds: RowKinds  #: How rows are told apart.
    maps: tuple[Calibration, ...]  #: That of all rows, then those of kinds.
    place: IntArray  #: (kinds,): Which of the maps each kind has; 0 is that of all rows.

    kind: ClassVar[str] = "by"
    """Key in ``CALIBRATIONS``."""
    row_weight: ClassVar[None] = None

    @classmethod
    def from_kinds(
        cls,
        kinds: RowKinds,
        code: IntArray,
        scores: FloatArray,
        weights: FloatArray | None,
        units: NDArray[Any] | None,
        coverage: float,
    ) -> Self:
        """Learn strict maps from the scores of rows whose kinds are known.

        A kind has a map of its own where its rows support ``coverage``.
        """

        def learn(rows: Any) -> Calibration:
            own = (None if part is None else part[rows] for part in (weights, units))
            weight, unit = own
            return Calibration.from_scores(scores[rows], weight, strict=True, units=unit)

        maps, place = [learn(slice(None))], np.zeros(len(kinds), np.intp)
        for number in range(len(kinds)):
            rows = np.flatnonzero(code == number)
            if rows.size and (weights is None or weights[rows].sum() > 0):
                found = learn(rows)
                if found.supports(0.5 * (1.0 - coverage)):
                    place[number] = len(maps)
                    maps.append(found)
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
        """Number of independent rows that they are worth."""
        return self.whole.n_effective

    @property
    def strict(self) -> bool:
        """Whether the guarantee of split conformal prediction holds."""
        return self.whole.strict

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots of all maps."""
        return np.unique(np.concatenate([one.scores for one in self.maps]))

    @property
    def total_weight(self) -> float:
        """Sum of the calibration weights."""
        return self.whole.total_weight

    @property
    def mean_weight(self) -> float:
        """Stands for the map of all rows; a row's weight says here which map it has."""
        return 0.0

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""
        code = self.kinds.of_rows(dist, X)
        known = (code >= 0) & (code < len(self.place))
        place = np.where(known, self.place[np.where(known, code, 0)], 0)
        return CalibratedMixture(dist, self, place.astype(np.float64), unsupported)

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level on the normal scale, by the map that ``weight`` numbers."""
        return self._each(v, weight, lambda one, part: one.to_score(part))

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score on the normal scale: the inverse of ``to_score``."""
        return self._each(z, weight, lambda one, part: one.from_score(part))

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> BoolArray:
        """Whether the rows of a map are enough for the level ``p``."""
        return self._each(p, weight, lambda one, part: one.supports(part)).astype(np.bool_)

    def smallest_alpha(self) -> FloatArray:
        """Smallest miscoverage of a central interval that all rows together support."""
        return self.whole.smallest_alpha()

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> Pieces:
        """Straight pieces of the maps on which scores lie."""

        def pieces(one: Calibration, part: FloatArray) -> FloatArray:
            return np.stack(one.pieces_of_score(part, np.asarray(one.mean_weight)))

        return Pieces(*self._each(z, weight, pieces, outputs=3))

    def _each(
        self,
        values: ArrayLike,
        place: ArrayLike | None,
        function: Callable[[Calibration, FloatArray], Any],
        outputs: int = 0,
    ) -> FloatArray:
        """Apply a function of a map and of the values that have it."""
        given, number = np.broadcast_arrays(
            np.asarray(values, np.float64), np.asarray(0.0 if place is None else place)
        )
        found = np.empty((outputs, *given.shape) if outputs else given.shape)
        for which in np.unique(number).astype(int).tolist():
            here = number == which
            found[..., here] = function(self.maps[which], given[here])
        return found

    def fixed_scores(self, v: FloatArray) -> NoReturn:
        """Refuse: scores are not the same for every row."""
        raise ValueError("a model conformalized by kinds of rows has no ONNX form")

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to store, as plain arrays."""
        arrays: dict[str, NDArray[Any]] = {f"by.{k}": v for k, v in self.kinds.to_arrays().items()}
        arrays["place"] = self.place
        for number, one in enumerate(self.maps):
            arrays |= {f"map.{number}.{name}": part for name, part in one.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what ``to_arrays`` gave; a ``SchemaError`` says if it is another."""
        given = {name: np.asarray(array) for name, array in arrays.items()}
        kinds = RowKinds.from_arrays(arrays_under(given, "by."))
        place = array_of(given, "place", "iu", (len(kinds),))
        count = int(place.max()) + 1 if 0 <= place.max() <= MOST_KINDS else 0
        within("place", place, 0, MOST_KINDS)
        maps = [Calibration.from_arrays(arrays_under(given, f"map.{i}.")) for i in range(count)]
        if not all(one.strict and one.n_rows for one in maps):
            refuse("array 'map.0.strict'", "true, of some rows", False)
        return cls(kinds, tuple(maps), place.astype(np.intp))
