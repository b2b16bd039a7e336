"""Mondrian conformal prediction: a separate calibration map for each subgroup of rows.

Subgroups are categories or bins of an input, or bins of the predicted width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers._schema import array_of, arrays_under, refuse, within
from calipers.calibration._calibrated import CalibratedMixture
from calipers.calibration._calibrator import CalibrationRows, Calibrator
from calipers.calibration._level_map import Pieces
from calipers.calibration._score_map import Calibration
from calipers.calibration._width import log_width
from calipers.distributions import SplitNormalMixture

WIDTH = "predicted width"
"""Name given in place of a column to form subgroups by the width of predictions."""

# Numbers with more distinct values are binned, here if they are encoded in one or in more inputs.
MAX_DISTINCT, MAX_DISTINCT_ROWS = 20, 100
MAX_SUBGROUPS = 1000


@dataclass(frozen=True, eq=False)
class Subgroups:
    """Definition of the subgroups, which are numbered from 0."""

    #: (k,): Columns of the encoded inputs; empty for the width of predictions.
    columns: IntArray
    #: (subgroups, k): Values of the columns in each subgroup, where subgroups are categories; empty
    #: where they are bins.
    values: FloatArray
    #: (bins - 1,): Edges between bins of the first column, or of the logarithm of the width.
    edges: FloatArray
    #: Function used in place of columns, from rows to subgroup numbers.
    label: Callable[[FloatArray], ArrayLike] | None = None

    def __len__(self) -> int:
        return len(self.values) or len(self.edges) + 1

    @classmethod
    def of_columns(cls, X: FloatArray, columns: IntArray, bins: int) -> Self:
        """Subgroups by an input: its categories, or bins of equal counts for a numeric input.

        Of more than ``MAX_SUBGROUPS`` categories, the most frequent are subgroups.
        """
        distinct, counts = np.unique(X[:, columns], axis=0, return_counts=True)
        one_hot = np.isin(X[:, columns[0]], (0.0, 1.0)).all()  # the first input of a category is
        if one_hot or len(distinct) <= (MAX_DISTINCT if len(columns) == 1 else MAX_DISTINCT_ROWS):
            frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_SUBGROUPS])
            return cls(columns, distinct[frequent], np.empty(0))
        return cls(columns[:1], np.empty((0, 1)), _edges(X[:, columns[0]], bins))

    @classmethod
    def of_width(cls, dist: SplitNormalMixture | CalibratedMixture, bins: int) -> Self:
        """Subgroups by the width of predictions, with equal numbers of rows."""
        no_columns = np.empty(0, np.intp)
        return cls(no_columns, np.empty((0, 0)), _edges(log_width(dist), bins))

    def of_rows(self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray) -> IntArray:
        """Subgroup number of each row, -1 for rows of an unseen subgroup."""
        if self.label is not None:
            return np.asarray(self.label(X), np.intp)
        if not self.columns.size:
            return np.searchsorted(self.edges, log_width(dist), side="right")
        inputs = np.asarray(X, np.float64)[:, self.columns]
        if not len(self.values):
            return np.searchsorted(self.edges, inputs[:, 0], side="right")
        # Adding zero makes the bytes of -0.0 those of 0.0.
        values = np.asarray(self.values, np.float64) + 0.0
        number = {value.tobytes(): i for i, value in enumerate(values)}
        return np.array([number.get(row.tobytes(), -1) for row in inputs + 0.0], np.intp)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        if self.label is not None:
            raise ValueError(
                "the model was conformalized by a function, which cannot be stored; to save the "
                "model, name a column instead"
            )
        return {"columns": self.columns, "values": self.values, "edges": self.edges}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore subgroups from ``to_arrays``; raise ``SchemaError`` if they are malformed."""
        columns = array_of(arrays, "columns", "iu", None, 0, 10**6)
        values, edges = (array_of(arrays, name, "f") for name in ("values", "edges"))
        if columns.ndim != 1:
            refuse("array 'columns'", "a list of columns", columns.shape)
        if values.ndim != 2 or values.shape[1] != len(columns) or len(values) > MAX_SUBGROUPS:
            refuse("array 'values'", f"of {len(columns)} columns", values.shape)
        if edges.ndim != 1 or len(edges) > MAX_SUBGROUPS or (np.diff(edges) <= 0).any():
            refuse("array 'edges'", f"at most {MAX_SUBGROUPS} numbers in ascending order", edges)
        if len(values) and len(edges):
            refuse("array 'edges'", "empty for categories", edges)
        return cls(columns.astype(np.intp), values, edges)


def _edges(values: FloatArray, bins: int) -> FloatArray:
    levels = np.arange(1, max(bins, 1)) / max(bins, 1)
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))


@dataclass(frozen=True, eq=False)
class CalibrationBy(Calibrator):
    """A map for each subgroup with enough calibration rows, and one for all rows.

    Where the rows of a subgroup and a new row of that subgroup are exchangeable, an interval has
    its coverage within the subgroup. Subgroups that are unseen or have too few calibration rows use
    the map of all rows, whose guarantee is marginal over all rows.
    """

    subgroups: Subgroups  #: The subgroups.
    maps: tuple[Calibration, ...]  #: The map of all rows, then those of subgroups.
    #: (subgroups,): Index into ``maps`` of each subgroup; 0 is the map of all rows.
    place: IntArray

    kind: ClassVar[str] = "by"
    in_fit: ClassVar[bool] = False
    strict = True

    @classmethod
    def from_subgroups(
        cls,
        subgroups: Subgroups,
        rows: CalibrationRows,
        coverage: float,
    ) -> Self:
        """Learn strict maps from rows.

        A subgroup has its own map where its rows support ``coverage``.
        """
        weights, code = rows.weights, subgroups.of_rows(rows.dist, rows.X)

        def learn(part: slice | IntArray) -> Calibration:
            weight = None if weights is None else weights[part]
            units = rows.units[part]
            return Calibration.from_scores(rows.scores[part], weight, strict=True, units=units)

        maps, place = [learn(slice(None))], np.zeros(len(subgroups), np.intp)
        for number in range(len(subgroups)):
            own = np.flatnonzero(code == number)
            if own.size and (weights is None or weights[own].sum() > 0):
                calibration = learn(own)
                if calibration.supports(0.5 * (1.0 - coverage)):
                    place[number] = len(maps)
                    maps.append(calibration)
        return cls(subgroups, tuple(maps), place)

    @property
    def n_rows(self) -> int:  # type: ignore[override]  # which others have as a field
        """Number of calibration rows."""
        return self.maps[0].n_rows

    @property
    def n_effective(self) -> float:
        """Effective sample size of the calibration rows."""
        return self.maps[0].n_effective

    @property
    def total_weight(self) -> float:
        """Sum of the calibration weights."""
        return self.maps[0].total_weight

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots of all maps."""
        return np.unique(np.concatenate([calibration.scores for calibration in self.maps]))

    @property
    def tail_slope(self) -> float:
        """The largest slope of a map beyond its knots."""
        return max(calibration.tail_slope for calibration in self.maps)

    def level_map(self) -> Self:
        return self

    def local(self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray) -> IntArray:
        """Number of each row's map."""
        code = self.subgroups.of_rows(dist, X)
        seen = (code >= 0) & (code < len(self.place))
        return np.where(seen, self.place[np.where(seen, code, 0)], 0)

    def to_score(self, v: ArrayLike, number: ArrayLike | None = None) -> FloatArray:
        """Score of a level on the normal scale, by the map of this number."""
        return self._by_map(v, number, Calibration.to_score)

    def from_score(self, z: ArrayLike, number: ArrayLike | None = None) -> FloatArray:
        """Level of a score on the normal scale: the inverse of ``to_score``."""
        return self._by_map(z, number, Calibration.from_score)

    def supports(self, p: ArrayLike, number: ArrayLike | None = None) -> BoolArray:
        return self._by_map(p, number, Calibration.supports).astype(np.bool_)

    def pieces_of_score(self, z: FloatArray, number: ArrayLike | None = None) -> Pieces:
        """Linear pieces of the maps on which the scores ``z`` lie."""

        def pieces(calibration: Calibration, z: FloatArray) -> FloatArray:
            return np.stack(calibration.pieces_of_score(z))

        return Pieces(*self._by_map(z, number, pieces, outputs=3))

    def _by_map(
        self,
        values: ArrayLike,
        number: ArrayLike | None,
        function: Callable[[Calibration, FloatArray], Any],
        outputs: int = 0,
    ) -> FloatArray:
        """Apply ``function`` to each map and its values; without numbers, the map of all rows."""
        values, number = np.broadcast_arrays(
            np.asarray(values, np.float64), np.asarray(0 if number is None else number)
        )
        result = np.empty((outputs, *values.shape) if outputs else values.shape)
        for each in np.unique(number).tolist():
            rows = number == each
            result[..., rows] = function(self.maps[each], values[rows])
        return result

    def check_inputs(self, inputs: int) -> None:
        within("by.columns", self.subgroups.columns, 0, inputs - 1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            f"by.{k}": v for k, v in self.subgroups.to_arrays().items()
        }
        arrays["place"] = self.place
        for number, calibration in enumerate(self.maps):
            arrays |= {f"map.{number}.{name}": a for name, a in calibration.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        subgroups = Subgroups.from_arrays(arrays_under(arrays, "by."))
        place = array_of(arrays, "place", "iu", (len(subgroups),), 0, MAX_SUBGROUPS)
        count = int(place.max()) + 1
        maps = [Calibration.from_arrays(arrays_under(arrays, f"map.{i}.")) for i in range(count)]
        if not all(calibration.strict and calibration.n_rows for calibration in maps):
            refuse("array 'map.0.strict'", "true, with at least one row", False)
        return cls(subgroups, tuple(maps), place.astype(np.intp))
