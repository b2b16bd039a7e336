"""Quadrature rules for calibrated distributions, common to all rows that have the same maps.

A calibrated distribution is that of q(z), where q is the quantile function of the row on the normal
scale and z = h(v) the score of a standard normal v. The map h with its knots, and so the
distribution P of z, is the same for all rows with the same maps. On panels of scores, a rule
replaces q by the polynomial through the Gauss points; this module integrates polynomials over P
between knots, accurate to rounding.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from scipy.special import ndtr

from calipers._arrays import FloatArray, IntArray
from calipers.calibration._level_map import LevelMap, levels_of, scores_of

# Level, on the normal scale, beyond which lies less than 1e-8 of the variance.
END = 6.5
# Points of a panel, and points of a cell, which integrate the normal density to rounding.
POINTS, FINE = 16, 12
# Edges of the panels above zero, which double after the last one; an edge beyond the fraction CLOSE
# of the outermost score is dropped.
PANELS, CLOSE = (0.0, 1.1, 2.6, 6.0), 0.65
# Number of Legendre coefficients in each group that is compared to see how fast they decay.
GROUP = 4

NODES, _GAUSS = legendre.leggauss(POINTS)
# Matrix from values at the points to Legendre coefficients.
TRANSFORM = legendre.legvander(NODES, POINTS - 1).T * _GAUSS * (np.arange(POINTS) + 0.5)[:, None]
FINE_NODES, FINE_WEIGHTS = legendre.leggauss(FINE)
FINE_FRACTIONS = 0.5 * (1.0 + FINE_NODES)


class Chain(tuple[LevelMap, ...]):
    """Maps, compared by identity: those that have arrays for fields may have no hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and [*map(id, self)] == [*map(id, other)]


class Rule(NamedTuple):
    """Panels of scores, the cells that knots cut them into, and integrals over both."""

    halvings: int  # number of times the panels were halved
    edges: FloatArray  # (panels + 1,): ends of the panels
    # (panels, POINTS): weights of the points in integrals over dP and over P dP
    over_p: FloatArray
    over_p2: FloatArray
    mass: FloatArray  # (panels,): probability of each panel
    # (panels, groups): largest integral over dP of a group of Legendre polynomials, the highest
    # degrees first. At a panel's points, polynomials of degree POINTS + k alias to POINTS - k
    aliases: FloatArray
    # (cells + 1,): ends of the cells, as scores and as levels on the normal scale
    z: FloatArray
    v: FloatArray
    panel: IntArray  # (cells,): the panel that each cell is in
    # (cells, POINTS): weights of the points in integrals over the panel's scores above the cell
    above_cell: FloatArray

    @property
    def points(self) -> FloatArray:
        """Scores at which quantiles are needed, in ascending order."""
        width = np.diff(self.edges)[:, None]
        return (self.edges[:-1, None] + 0.5 * width * (1.0 + NODES)).ravel()


@lru_cache(maxsize=256)
def make_rule(maps: Chain, local: tuple[Any, ...], halvings: int = 0) -> Rule:
    """Rule for a chain of maps and what they depend on in a row, with panels halved."""
    ends = scores_of(np.array([-END, END]), maps, local)
    edges = _panels(float(ends[0]), float(ends[1]), halvings)
    v = _cells(edges, maps, local)
    z = scores_of(v, maps, local)
    panel = np.clip(np.searchsorted(edges, 0.5 * (z[:-1] + z[1:])) - 1, 0, len(edges) - 2)
    level, score = (e[:-1, None] + np.diff(e)[:, None] * FINE_FRACTIONS for e in (v, z))
    weight = 0.5 * np.diff(v)[:, None] * FINE_WEIGHTS * normal_density(level)
    left, width = edges[panel][:, None], np.diff(edges)[panel][:, None]
    basis = legendre.legvander(2.0 * (score - left) / width - 1.0, POINTS + GROUP - 1)
    by_cell, by_cell2 = (
        np.einsum("cf,cfk->ck", each, basis) for each in (weight, weight * ndtr(level))
    )
    over_p, over_p2 = np.zeros((2, len(edges) - 1, by_cell.shape[1]))
    np.add.at(over_p, panel, by_cell)  # a panel may have no cell, where scores lie far apart
    np.add.at(over_p2, panel, by_cell2)
    largest = np.abs(over_p).reshape(len(over_p), -1, GROUP).max(axis=2)[:, ::-1]
    upto = np.cumsum(by_cell, axis=0)
    above = upto[np.searchsorted(panel, panel, side="right") - 1] - upto
    return Rule(
        halvings=halvings,
        edges=edges,
        over_p=over_p[:, :POINTS] @ TRANSFORM,
        over_p2=over_p2[:, :POINTS] @ TRANSFORM,
        mass=over_p[:, 0],
        aliases=np.column_stack([largest[:, :2].max(axis=1), largest[:, 2:]]),
        z=z,
        v=v,
        panel=panel,
        above_cell=above[:, :POINTS] @ TRANSFORM,
    )


def normal_density(v: FloatArray) -> FloatArray:
    """Density of the standard normal distribution."""
    density: FloatArray = np.exp(-0.5 * v * v) / np.sqrt(2.0 * np.pi)
    return density


def _panels(low: float, high: float, halvings: int) -> FloatArray:
    """Ends of the panels between two scores."""
    ends = list(PANELS)
    while ends[-1] < max(-low, high):
        ends.append(2.0 * ends[-1])
    both = np.array([*(-end for end in ends[:0:-1]), *ends])
    lowest, highest = (CLOSE * low if low < 0 else low), (CLOSE * high if high > 0 else high)
    inner = both[(both > lowest) & (both < highest)]
    edges = np.concatenate([[low], inner, [high]])
    for _ in range(halvings):
        edges = np.insert(edges, np.arange(1, len(edges)), 0.5 * (edges[:-1] + edges[1:]))
    return edges


def _cells(edges: FloatArray, maps: Chain, local: tuple[Any, ...]) -> FloatArray:
    """Levels at which a map bends or a panel ends, and a regular grid so that none is wide."""
    knots = (levels_of(maps[k].scores, maps[k:], local[k:]) for k in range(len(maps)))
    inner = levels_of(edges[1:-1], maps, local)
    levels = np.concatenate([np.arange(-END, END + 0.5), inner, *knots])
    return np.unique(levels[np.abs(levels) <= END])
