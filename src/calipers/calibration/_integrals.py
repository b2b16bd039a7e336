r"""Moments and the CRPS of calibrated distributions, from quantiles at scores common to all rows.

With a row's quantile function q on the normal scale and the distribution P of its scores,

.. math:: E X^k = \int q^k \, dP \quad \text{and} \quad
          \mathrm{CRPS} = 2 \int_{q > y} (q - y) \, dP - 2 \int P (q - y) \, dP,

and a quadrature rule holds the weights of these integrals. Only the cell that contains y has to be
integrated row by row.

The error of a rule is estimated from the last Legendre coefficients of q on each panel and the
contribution of the first omitted ones. Rows with an error of more than `TOLERANCE` standard
deviations (some with members far apart or very narrow) get panels half as wide. The few rows still
inaccurate after the first halving have their quantiles solved one at a time. Where modes are so far
apart that q jumps, the jump is in a panel of the last halving: mean and CRPS then have errors of
about a thousandth, at most a hundredth, of which one more halving removes half, for twice the time.

A rule takes a thousand times longer to make than to apply to a row. So rows each of which has a map
of its own, by its weight, are summed over quantiles at equally spaced levels instead.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from calipers._arrays import FloatArray, IntArray
from calipers._blocks import sum_members
from calipers.calibration import _rules as rules
from calipers.calibration._level_map import MixtureRows
from calipers.calibration._rules import Chain, Rule, make_rule
from calipers.distributions import (
    SUM_SCORES,
    mixture_scores,
    mixture_values_on_grid,
    summed_crps,
    summed_moments,
)

# Largest error of a row, estimated in standard deviations, for which panels are not halved.
TOLERANCE = 1e-6
# Halvings from which on quantiles are solved one at a time, and the last.
EXACT, HALVINGS = 2, 3
# Rows integrated together, so that the few that need narrower panels share their cost.
ROWS = 8192
# Rows per chunk: the members' arrays then stay in a core's cache, and products with the transform
# are so small that BLAS runs them in one thread.
CHUNK = 1024

Integral = Callable[[MixtureRows, FloatArray, FloatArray, Rule], tuple[FloatArray, ...]]


def crps(rows: MixtureRows, y: FloatArray) -> FloatArray:
    """Score of `y`: the integral of (F(x) - 1[x >= y])^2."""
    unstretched, stretch = _without_stretch(rows)
    if _each_its_own(unstretched):
        return summed_crps(_quantiles_to_sum(rows), y)
    return _integrate(_crps, unstretched, stretch, y, outputs=1)[0]


def mean_and_variance(rows: MixtureRows) -> tuple[FloatArray, FloatArray]:
    """First two moments."""
    unstretched, stretch = _without_stretch(rows)
    if _each_its_own(unstretched):
        return summed_moments(_quantiles_to_sum(rows))
    mean, variance = _integrate(_moments, unstretched, stretch, np.zeros(stretch.size), outputs=2)
    return mean, variance


def _each_its_own(rows: MixtureRows) -> bool:
    """Whether maps depend on something other than an integer, which few or no rows share."""
    return any(local is not None and local.dtype.kind == "f" for local in rows.local)


def _quantiles_to_sum(rows: MixtureRows) -> FloatArray:
    """Quantiles at equally spaced levels on the normal scale, along the first axis."""
    return np.stack([rows.values(np.full(rows.members.n_rows, v)) for v in SUM_SCORES])


def _integrate(
    integral: Integral, rows: MixtureRows, stretch: FloatArray, y: FloatArray, outputs: int
) -> FloatArray:
    """Integrate with ever narrower panels, rows of the same maps at a time; shape (outputs, n)."""
    results = np.empty((outputs, y.size))
    for local, pending in _same_maps(rows.local, y.size):
        for halvings in range(HALVINGS + 1):
            rule, inaccurate = make_rule(Chain(rows.maps), local, halvings), []
            size = CHUNK >> halvings
            for start in range(0, pending.size, size):
                part = pending[start : start + size]
                *values, error, scale = integral(rows.take(part), y[part], stretch[part], rule)
                results[:, part] = values
                inaccurate.append(part[~(error <= TOLERANCE * scale)])
            pending = np.concatenate(inaccurate)
            if pending.size == 0:
                break
    return results


def _without_stretch(rows: MixtureRows) -> tuple[MixtureRows, FloatArray]:
    """Rows without a first map that multiplies levels by a factor of the row, and these factors.

    The scores of all rows then have the same distribution, whatever their factors.
    """
    first, local = rows.maps[0], rows.local[0]
    if local is not None and not first.scores.any():  # a single knot at zero
        pieces = first.pieces_of_score(np.array([[-1.0], [1.0]]), local)
        if not pieces.z.any() and not pieces.v.any() and (pieces.rate[0] == pieces.rate[1]).all():
            return rows._replace(maps=rows.maps[1:], local=rows.local[1:]), pieces.rate[0]
    return rows, np.ones(rows.members.n_rows)


def _same_maps(local: tuple[Any, ...], n: int) -> Iterator[tuple[tuple[Any, ...], IntArray]]:
    """Yield each distinct combination of what maps depend on, and the rows that have it."""
    group = np.zeros(n, np.intp)
    for each in local:
        if each is not None and (each != each[:1]).any():
            code = np.unique(each, return_inverse=True)[1]
            group = np.unique(group * (code.max() + 1) + code, return_inverse=True)[1]
    for number in range(group.max(initial=-1) + 1):
        rows = np.flatnonzero(group == number)
        yield tuple(None if each is None else each[rows[0]].item() for each in local), rows


def _moments(
    rows: MixtureRows, _: FloatArray, stretch: FloatArray, rule: Rule
) -> tuple[FloatArray, ...]:
    """Mean, variance, the larger of their errors, and the scale of that error."""
    q = _quantiles(rows, stretch, rule)
    centre = q[len(q) // 2, 0].copy()
    q -= centre
    squares = q * q
    first, second = (_weighted(rule.over_p, f) for f in (q, squares))
    variance = np.maximum(second - first**2, 0.0)
    scale = np.sqrt(variance)
    error = np.maximum(_error(q, rule)[0] * scale, _error(squares, rule)[0])
    return centre + first, variance, error, variance


def _crps(
    rows: MixtureRows, y: FloatArray, stretch: FloatArray, rule: Rule
) -> tuple[FloatArray, ...]:
    """CRPS, its error, and the scale of that error."""
    q = _quantiles(rows, stretch, rule)
    q -= y
    mean = _weighted(rule.over_p, q)
    scale = np.sqrt(np.maximum(_weighted(rule.over_p, q * q) - mean**2, 0.0))
    z = mixture_scores(y, rows.members) / stretch
    z = np.clip(z, rule.z[0], rule.z[-1])
    above = _above(z, q, rule)
    error, within = _error(q, rule)
    panel = np.clip(np.searchsorted(rule.edges, z) - 1, 0, len(within) - 1)
    error = error + within[panel, np.arange(y.size)]
    return 2.0 * (above - _weighted(rule.over_p2, q)), error, scale


def _weighted(weights: FloatArray, f: FloatArray) -> FloatArray:
    """Weighted sums over panels and points, in an order that does not depend on the rows."""
    total, term = np.zeros((2, f.shape[-1]))
    for weight, values in zip(weights.ravel(), f.reshape(-1, f.shape[-1]), strict=True):
        total += np.multiply(weight, values, out=term)
    return total


def _quantiles(rows: MixtureRows, stretch: FloatArray, rule: Rule) -> FloatArray:
    """Quantiles at the rule's points, of shape (panels, POINTS, n)."""
    points = rule.points[:, None] * stretch
    q = mixture_values_on_grid(points, rows.members, walk=rule.halvings < EXACT)
    return q.reshape(*rule.over_p.shape, -1)


def _error(f: FloatArray, rule: Rule) -> tuple[FloatArray, FloatArray]:
    """Estimated error of the integral, of shape (n,), and of one that ends in a panel, (panels, n).

    The omitted coefficients are assumed to decay like the last ones. In an integral that ends
    within a panel, less than one oscillation of the omitted terms does not cancel.
    """
    sizes = np.abs(rules.TRANSFORM[-2 * rules.GROUP :] @ f)
    sizes = sizes.reshape(len(f), 2, rules.GROUP, -1).sum(axis=2)
    decay = np.fmin(sizes[:, 1] / sizes[:, 0], 1.0)
    omitted = decay * sizes[:, 1]
    within = 8.0 * rules.POINTS**-1.5 * rule.mass[:, None] * omitted
    total = np.zeros(f.shape[-1])
    for alias in rule.aliases.T:
        total += alias @ omitted
        omitted = omitted * decay
    return total, within


def _above(z: FloatArray, q: FloatArray, rule: Rule) -> FloatArray:
    """Integral of q over scores above `z`: panels, cells of z's panel, and a partial cell.

    Sums are in an order that does not depend on the rows.
    """
    cell = np.clip(np.searchsorted(rule.z, z, side="right") - 1, 0, len(rule.panel) - 1)
    panel, row = rule.panel[cell], np.arange(z.size)
    by_panel = sum_members((rule.over_p[:, :, None] * q).swapaxes(0, 1))
    panels = np.cumsum(by_panel[::-1], axis=0)[::-1] - by_panel
    q_panel = q[panel, :, row].T
    cells = sum_members(rule.above_cell[cell].T * q_panel)
    start, end = rule.v[cell], rule.v[cell + 1]
    start = start + (z - rule.z[cell]) / (rule.z[cell + 1] - rule.z[cell]) * (end - start)
    level, score = (
        a + rules.FINE_FRACTIONS[:, None] * (b - a)
        for a, b in ((start, end), (z, rule.z[cell + 1]))
    )
    t = 2.0 * (score - rule.edges[panel]) / np.diff(rule.edges)[panel] - 1.0
    coefficients = sum_members(rules.TRANSFORM.T[:, :, None] * q_panel[:, None])
    values = legendre.legval(t, coefficients[:, None], tensor=False)
    density = rules.normal_density(level)
    partial_cell = 0.5 * (end - start) * sum_members(rules.FINE_WEIGHTS[:, None] * values * density)
    total: FloatArray = panels[panel, row] + cells + partial_cell
    return total
