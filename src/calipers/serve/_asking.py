"""What is asked about some rows, and the arrays that answer it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.calibration import CalibratedMixture
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.ensemble import Distribution, Forecast

Values = NDArray[Any]

Columns = dict[str, Values]
"""A table by columns, each of shape (rows,): numbers, times or objects."""

Answer = dict[str, Values]
"""Arrays by name with the rows along the first axis, so that answers are cut and joined alike.

``point``, ``lower`` and ``upper`` (of the model's own coverage), ``outside`` (rows, inputs), and
what was asked: ``intervals`` (rows, 2, coverages), ``quantiles`` (rows, levels), ``members``
(rows, 3, members), ``density`` (rows, 2, points).
"""

_FAR = 1e-3  # mass beyond each end of a density


@dataclass(frozen=True)
class Ask:
    """What to tell about each row beside its point.

    Attributes
    ----------
    coverages : tuple of float, optional
        Of the intervals; None for the model's own.
    quantiles : tuple of float
        Levels.
    parameters : bool
        Whether to give the members' split normals.
    density : int
        Points at which to give the density, 0 for none.
    """

    coverages: tuple[float, ...] | None = None
    quantiles: tuple[float, ...] = ()
    parameters: bool = False
    density: int = 0

    def numbers(self, members: int) -> int:
        """Numbers that it takes to answer for one row."""
        intervals = 1 if self.coverages is None else len(self.coverages)
        parameters = 3 * members if self.parameters else 0
        return 1 + 2 * intervals + len(self.quantiles) + parameters + 2 * self.density

    @property
    def needs_distribution(self) -> bool:
        """Whether bounds of one coverage are not enough."""
        return bool(self.quantiles or self.parameters or self.density)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of one request."""

    columns: Columns
    rows: int
    ask: Ask

    def __len__(self) -> int:
        return self.rows


def join(answers: Sequence[Answer]) -> Answer:
    """One answer from those of consecutive rows."""
    if len(answers) == 1:
        return answers[0]
    return {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}


def common(forecast: Forecast, outside: Values) -> Answer:
    """What is told about every row, whatever was asked."""
    answer = {"point": forecast.point, "outside": outside}
    if forecast.interval is not None:
        answer |= {"lower": forecast.interval.lower, "upper": forecast.interval.upper}
    return answer


def told(forecast: Forecast, rows: slice, ask: Ask, own: float) -> Answer:
    """What was asked about some of the rows; ``own`` is the coverage of the forecast's bounds."""
    answer: Answer = {}
    dist = None if forecast.distribution is None else forecast.distribution[rows]
    if forecast.interval is not None and ask.coverages in (None, (own,)):
        sides = (forecast.interval.lower[rows], forecast.interval.upper[rows])
        answer["intervals"] = np.stack(sides, axis=1)[:, :, None]
    elif dist is not None and ask.coverages:
        pair = dist.interval(np.array(ask.coverages)[:, None])
        answer["intervals"] = np.stack([side.T for side in pair], axis=1)
    if dist is None:
        return answer
    if ask.quantiles:
        answer["quantiles"] = dist.ppf(np.array(ask.quantiles)[:, None]).T
    if ask.parameters:
        parts = members_of(dist)
        each = (parts.loc.T, parts.left_scale.T, parts.right_scale.T)
        answer["members"] = np.stack(each, axis=1)
    if ask.density:
        answer["density"] = density_of(dist, ask.density)
    return answer


def members_of(dist: Distribution) -> SplitNormal:
    """The members' split normals, before any correction."""
    while isinstance(dist, CalibratedMixture):
        dist = dist.mixture
    assert isinstance(dist, SplitNormalMixture)  # noqa: S101 - for the type checker
    return dist.components


def density_of(dist: Distribution, points: int) -> Values:
    """Places and the mean density around them, of shape (rows, 2, points), but for the far tails.

    Means over cells, as differences of the distribution function: the jumps that calibration
    leaves in a density are neither missed nor magnified by where a place happens to be.
    """
    low, high = dist.ppf(np.array([[_FAR], [1 - _FAR]]))
    margin = 0.05 * (high - low)
    edges = np.linspace(low - margin, high + margin, points + 1)
    width = np.diff(edges, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a point mass has no width
        height = np.diff(dist.cdf(edges), axis=0) / width
    return np.stack([(edges[:-1] + 0.5 * width).T, height.T], axis=1)
