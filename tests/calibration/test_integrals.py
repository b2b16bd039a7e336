"""Moments and scores from common quantiles, against piecewise quadrature of the levels."""

import numpy as np
import pytest
from scipy.special import erfc, ndtr, ndtri

from calipers.calibration import Calibration, WidthCalibration, _integrals
from calipers.calibration._level_map import MixtureRows
from calipers.distributions import Members, _grid, mixture_scores, mixture_values_on_grid

BOUND = 1e-6
ROWS = 12


def components(name):
    """Modes and scales of several rows, of shape (members, rows)."""
    rng = np.random.default_rng(7)
    members, spread, narrowest = {
        "one": (1, 0.0, 0.3),
        "two": (2, 1.0, 0.3),
        "ten alike": (10, 0.2, 0.8),
        "ten": (10, 1.0, 0.3),
        "ten far apart": (10, 3.0, 0.1),
        "fifty": (50, 1.0, 0.3),
    }[name]
    loc = 10.0 + spread * rng.standard_normal((members, ROWS))
    sides = rng.uniform(narrowest, 2.0, (2, members, ROWS))
    return Members(loc, *sides, np.full((members, 1), 1 / members))


def make_rows(name, maps, *local):
    wide = tuple(None if each is None else np.broadcast_to(each, ROWS) for each in local)
    return MixtureRows(components(name), maps, wide)


NAMES = ["one", "two", "ten alike", "ten", "ten far apart", "fifty"]


@pytest.fixture(scope="module", params=[False, True], ids=["ordinary", "strict"])
def map_of_many(request):
    scores = 1.2 * np.random.default_rng(5).standard_normal(400) + 0.3
    return Calibration.from_scores(scores, strict=request.param)


def targets(mean, scale):
    """Some in the middle, some far out on either side."""
    y = mean + scale * np.linspace(-4.0, 4.0, ROWS)
    y[[0, -1]] = -40.0, 300.0
    return y


def reference(rows, y):
    """Mean, variance and CRPS, by Gauss's rule between all points where a density bends."""
    wide = [rows.values(np.full(ROWS, v)) for v in np.linspace(-9.0, 9.0, 300)]
    even = np.linspace(wide[0], wide[-1], 500)
    knots = [
        rows._replace(maps=rows.maps[:k], local=rows.local[:k]).values(np.full(ROWS, knot))
        for k, level_map in enumerate(rows.maps)
        for knot in level_map.scores
    ]
    middle = rows.values(np.zeros(ROWS))
    bends = np.clip([*knots, *rows.members.loc, middle, y], wide[0], wide[-1])
    breaks = np.sort(np.concatenate([wide, even, bends]), axis=0)
    nodes, weights = (a[:, None, None] for a in np.polynomial.legendre.leggauss(6))
    half = 0.5 * np.diff(breaks, axis=0)
    x = breaks[:-1] + (1.0 + nodes) * half
    row = np.broadcast_to(np.arange(ROWS), x.shape)
    v = rows.take(row.ravel()).levels(x.ravel()).reshape(x.shape)

    def integral(f):
        return np.sum(weights * half * f, axis=(0, 1))

    tail = np.copysign(ndtr(-np.abs(v)), x - middle)
    first, second = integral(tail), 2.0 * integral(tail * (x - middle))
    outside = np.maximum(wide[0] - y, 0.0) + np.maximum(y - wide[-1], 0.0)
    return middle + first, second - first**2, outside + integral(ndtr(np.where(x < y, v, -v)) ** 2)


def check(rows, bound=BOUND):
    with np.errstate(all="ignore"):
        found = _integrals.mean_and_variance(rows)
        y = targets(found[0], np.sqrt(found[1]))
        mean, variance, score = reference(rows, y)
        scores = _integrals.crps(rows, y)
    scale = np.sqrt(variance)
    assert (np.abs(found[0] - mean) <= bound * scale).all()
    assert (np.abs(found[1] - variance) <= bound * variance).all()
    assert (np.abs(scores - score) <= bound * scale).all()


@pytest.mark.parametrize(("members", "spread"), [(3, 3.0), (3, 100.0), (10, 10.0)])
def test_errors_are_within_a_hundredth_where_modes_are_far_apart(members, spread, map_of_many):
    """The variance of few rows has up to three times this error."""
    rng = np.random.default_rng(4)
    loc = spread * rng.standard_normal((members, ROWS))
    sides = rng.uniform(0.5, 1.0, (2, members, ROWS))
    far = Members(loc, *sides, np.full((members, 1), 1 / members))
    check(MixtureRows(far, (map_of_many,), (None,)), 1e-2)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_within_the_bound(name, map_of_many):
    check(make_rows(name, (map_of_many,), None), 1e-3 if name == "ten far apart" else BOUND)


def test_errors_are_within_the_bound_for_every_map(calibration):
    check(make_rows("ten", (calibration,), None))


def test_rows_that_differ_in_weight_are_summed(map_of_many):
    check(make_rows("ten alike", (map_of_many,), np.repeat([0.1, 1.0, 40.0], ROWS // 3)), 5e-3)


def test_rows_of_many_weights_share_no_rule_and_need_none(map_of_many, monkeypatch):
    """A rule for each of them took milliseconds a row."""
    monkeypatch.setattr(_integrals, "make_rule", None)
    rows = make_rows("ten alike", (map_of_many,), np.linspace(0.5, 2.0, ROWS))
    _integrals.mean_and_variance(rows)
    _integrals.crps(rows, np.full(ROWS, 10.0))


def test_errors_are_within_the_bound_for_two_corrections(map_of_many):
    second = Calibration.from_scores(0.5 * ndtri(np.arange(1, 100) / 100) - 2.0)
    check(make_rows("ten alike", (map_of_many, second), None, None))


def test_a_point_mass_has_no_variance():
    calibration = Calibration.from_scores([-1.0, 0.0, 2.0])
    zero = np.zeros((1, 3))
    members = Members(zero + 5.0, zero, zero, np.ones((1, 1)))
    rows = MixtureRows(members, (calibration,), (None,))
    with np.errstate(all="ignore"):
        mean, variance = _integrals.mean_and_variance(rows)
        scores = _integrals.crps(rows, np.array([5.0, 7.0, 2.0]))
    assert np.array_equal(mean, np.full(3, 5.0))
    assert np.array_equal(variance, np.zeros(3))
    assert np.allclose(scores, [0.0, 2.0, 3.0])


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_on_a_grid_have_their_scores(name):
    """The steps of the walk are those of a rule, or a little wider."""
    members = components(name)
    z = np.concatenate([[-60.0], np.linspace(-9.0, 9.0, 90), [60.0]])
    with np.errstate(all="ignore"):
        found = mixture_values_on_grid(z, members)
        scores = [mixture_scores(x, members) for x in found]
    assert np.abs(scores - z[:, None]).max() < 1e-5


def test_errors_are_within_the_bound_where_widths_differ(map_of_many, monkeypatch):
    factor = np.array([0.7, 1.0, 1.4])
    widths = WidthCalibration(np.array([0.0, 1.0]), factor, 500)
    steps = np.arange(ROWS) % 3
    rows = make_rows("ten", (widths, map_of_many), steps, None)
    check(rows)
    rules = []
    make = _integrals.make_rule
    monkeypatch.setattr(_integrals, "make_rule", lambda *given: rules.append(given) or make(*given))
    _integrals.mean_and_variance(make_rows("ten alike", (widths, map_of_many), steps, None))
    assert len({given[1] for given in rules}) == 1  # one rule for rows of all widths


def test_the_polynomial_is_the_error_function():
    t = np.linspace(0.0, 8.5, 5000, dtype=np.float32)
    exact = t.astype(np.float64)
    room = np.empty((3, t.size), np.float32)
    found = _grid.upper_mass(t, np.exp(-exact * exact).astype(np.float32), *room)
    np.testing.assert_allclose(found, erfc(exact), rtol=1e-6)


def test_scores_of_the_walk_are_right_to_single_precision_in_any_batch():
    p = np.exp(np.linspace(np.log(1e-40), np.log(0.6), 5000))
    found = _grid._score(p)
    np.testing.assert_allclose(found, ndtri(p), rtol=2e-7, atol=1e-9)
    alone = [_grid._score(part)[0] for part in p[:, None]]
    np.testing.assert_array_equal(found, alone)
