"""Mixtures: against their components, against forty digits, and under attack."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from calipers.distributions import SplitNormal, SplitNormalMixture

mpmath.mp.dps = 40


def exact_cdf(x, loc, left, right):
    """P(X <= x) in forty digits."""
    x, loc, left, right = map(mpmath.mpf, (x, loc, left, right))
    if left + right == 0:
        return mpmath.mpf(x >= loc)
    share = left / (left + right)
    if x < loc:
        return share * mpmath.erfc((loc - x) / (mpmath.sqrt(2) * left)) if left else mpmath.mpf(0)
    return share + (1 - share) * (mpmath.erf((x - loc) / (mpmath.sqrt(2) * right)) if right else 1)


def random_mixtures(rng, kind, members, rows):
    shape = (members, rows)
    if kind == "ordinary":
        loc = rng.normal(size=shape)
        left, right = np.exp(rng.normal(size=(2, *shape)))
    elif kind == "widely separated":
        loc = rng.normal(size=shape) * 10 ** rng.uniform(-5, 12, shape)
        left, right = 10 ** rng.uniform(-12, 12, (2, *shape))
    elif kind == "nearly identical":
        loc = 1 + 1e-15 * rng.integers(-5, 5, shape)
        left, right = 10 ** rng.uniform(-18, 1, (2, *shape))
    elif kind == "all magnitudes":
        loc = rng.normal(size=shape) * 10 ** rng.uniform(-300, 300, shape)
        left, right = 10 ** rng.uniform(-300, 300, (2, *shape))
    else:
        loc = rng.integers(-3, 4, shape).astype(float)
        left, right = np.where(
            rng.random((2, *shape)) < 0.5, 0, np.exp(rng.normal(size=(2, *shape)))
        )
    weights = 10 ** rng.uniform(-6, 0, members) if rng.random() < 0.5 else None
    return SplitNormalMixture(SplitNormal(loc, left, right), weights)


KINDS = ["ordinary", "widely separated", "nearly identical", "all magnitudes", "jumps"]


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_of_hostile_mixtures(kind, rng, misses_quantile):
    for members in (1, 2, 5, 7):
        mixture = random_mixtures(rng, kind, members, 700)
        p = np.where(rng.random(700) < 0.5, rng.random(700), 10 ** rng.uniform(-300, 0, 700))
        p[:100] = 1 - 10 ** rng.uniform(-15, 0, 100)
        p[100:120] = 0.5
        assert np.max(misses_quantile(mixture, p, mixture.ppf(p))) <= 1e-12
        parts = mixture.components
        mirror = SplitNormalMixture(
            SplitNormal(-parts.loc, parts.right_scale, parts.left_scale), mixture.weights
        )
        assert np.max(misses_quantile(mirror, p, -mixture.isf(p))) <= 1e-12


@given(
    st.lists(
        st.tuples(
            st.floats(-100, 100),
            st.floats(0, 10, allow_subnormal=False),
            st.floats(0, 10, allow_subnormal=False),
            st.floats(0.01, 1),
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(1e-12, 0.5),
)
def test_quantiles_of_any_mixture(parts, p):
    loc, left, right, weights = np.array(parts).T
    mixture = SplitNormalMixture(SplitNormal(loc, left, right), weights)
    lower, upper = float(mixture.ppf(p)), float(mixture.isf(p))
    assert mixture.cdf(np.nextafter(lower, -np.inf)) <= p * (1 + 1e-12)
    assert mixture.cdf(np.nextafter(lower, np.inf)) >= p * (1 - 1e-12)
    assert mixture.sf(np.nextafter(upper, -np.inf)) >= p * (1 - 1e-12)
    assert mixture.sf(np.nextafter(upper, np.inf)) <= p * (1 + 1e-12)
    components = mixture.components.ppf(p)
    slack = 1e-14 * np.max(np.abs(loc) + left + right)
    assert components.min() - slack <= lower <= components.max() + slack


@pytest.mark.parametrize("p", [1e-300, 1e-20, 0.025, 0.4])
def test_quantiles_in_forty_digits(p):
    loc, left, right = [0.0, 3.0, -1.0], [1.0, 0.5, 2.0], [2.0, 2.0, 0.1]
    mixture = SplitNormalMixture(SplitNormal(loc, left, right))
    exact = mpmath.findroot(
        lambda x: mpmath.log(
            mpmath.fsum(exact_cdf(x, *c) for c in zip(loc, left, right, strict=True)) / (3 * p)
        ),
        mpmath.mpf(float(mixture.ppf(p))),
    )
    assert mixture.ppf(p) == pytest.approx(float(exact), rel=1e-14)


def test_cdf_in_forty_digits(rng):
    for _ in range(30):
        loc, left, right = rng.normal(size=3), *np.exp(rng.normal(size=(2, 3)))
        mixture = SplitNormalMixture(SplitNormal(loc, left, right))
        for x in rng.normal(size=4) * 20:
            exact = mpmath.fsum(exact_cdf(x, *c) for c in zip(loc, left, right, strict=True)) / 3
            if exact > 1e-300:
                assert abs(mixture.cdf(x) / exact - 1) < 1e-12


@pytest.mark.long
def test_crps_in_forty_digits(rng):
    """Also components of scales and distances from 1e-6 to 1e3, half normals and point masses."""
    for _ in range(4):
        loc = rng.normal(size=3) * 10 ** rng.uniform(-3, 3)
        left, right = np.where(rng.random((2, 3)) < 0.2, 0, 10 ** rng.uniform(-6, 3, (2, 3)))
        y = float(rng.normal())
        breaks = {y}
        for step in (0, 0.5, 1, 2, 3, 4.5, 6, 9, 13):
            breaks |= set(loc - step * left) | set(loc + step * right)
        parts = list(zip(loc, left, right, strict=True))

        def squared_error(x, parts=parts, y=y):
            return (mpmath.fsum(exact_cdf(x, *c) for c in parts) / 3 - (x >= y)) ** 2

        with mpmath.workdps(20):
            exact = mpmath.quad(squared_error, sorted(breaks), maxdegree=4)
        got = SplitNormalMixture(SplitNormal(loc, left, right)).crps(y)
        assert got == pytest.approx(float(exact), rel=1e-9)


def test_mixture_of_one_is_its_component(rng):
    one = SplitNormal(rng.normal(size=50), *np.exp(rng.normal(size=(2, 50))))
    mixture = SplitNormalMixture(one[None])
    x, p = rng.normal(size=(4, 1)) * 3, rng.random((4, 1))
    for method, argument in [("pdf", x), ("logpdf", x), ("cdf", x), ("sf", x), ("crps", x)]:
        np.testing.assert_allclose(
            getattr(mixture, method)(argument), getattr(one, method)(argument), rtol=1e-13
        )
    for method in ("ppf", "isf"):
        got, wanted = getattr(mixture, method)(p), getattr(one, method)(p)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    for name in ("mean", "var", "std", "median"):
        np.testing.assert_allclose(getattr(mixture, name), getattr(one, name), rtol=1e-12)
    np.testing.assert_allclose(mixture.interval(0.8), one.interval(0.8), rtol=1e-12)
    np.testing.assert_allclose(mixture.hdi(0.8), one.hdi(0.8), rtol=1e-7)
    np.testing.assert_allclose(mixture.modes(), one.mode[None], rtol=1e-12)
    draws = [dist.sample(3, rng=np.random.default_rng(1)) for dist in (mixture, one)]
    np.testing.assert_array_equal(*draws)


def test_variance_splits_into_noise_and_disagreement():
    parts = SplitNormal(
        [[0.0, 1.0], [4.0, 1.0]], [[1.0, 2.0], [2.0, 2.0]], [[1.0, 3.0], [2.0, 3.0]]
    )
    mixture = SplitNormalMixture(parts, [3.0, 1.0])
    np.testing.assert_allclose(mixture.aleatoric_var, [0.75 + 1, parts.var[0, 1]])
    np.testing.assert_allclose(mixture.epistemic_var, [3.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(mixture.var, mixture.aleatoric_var + mixture.epistemic_var)


def test_weights_are_relative():
    parts = SplitNormal([0.0, 1.0], 1.0, 1.0)
    x = np.linspace(-2, 2, 9)
    once = SplitNormalMixture(parts, [1, 3]).cdf(x)
    np.testing.assert_allclose(once, SplitNormalMixture(parts, [0.25, 0.75]).cdf(x), rtol=1e-15)
    four = SplitNormalMixture(SplitNormal([0.0, 1.0, 1.0, 1.0], 1.0, 1.0))
    np.testing.assert_allclose(once, four.cdf(x), rtol=1e-14)


def test_shapes_and_indexing():
    mixture = SplitNormalMixture(SplitNormal(np.zeros((3, 4, 2)), 1.0, 2.0))
    assert mixture.shape == (4, 2)
    assert len(mixture) == 4
    assert mixture[1].shape == (2,)
    assert mixture[:, 0].shape == (4,)
    assert mixture[np.array([True, False, True, False])].shape == (2, 2)
    assert mixture.ppf(np.full((5, 1, 1), 0.3)).shape == (5, 4, 2)
    assert mixture.interval(np.full((5, 1, 1), 0.3))[1].shape == (5, 4, 2)
    assert mixture.modes().shape == (1, 4, 2)
    assert isinstance(mixture[1, 1].ppf(0.3), float)


def test_levels_per_row_do_not_cross(rng):
    mixture = random_mixtures(rng, "ordinary", 5, 40)
    quantiles = mixture.ppf(np.linspace(0.01, 0.99, 99)[:, None])
    assert np.all(np.diff(quantiles, axis=0) > 0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 0.0], r"weights must be finite and above 0, got 0.0 at index \(1,\)"),
        ([-1.0, 1.0], "weights must be finite and above 0, got -1.0"),
        ([np.nan, 1.0], "weights must be finite and above 0, got nan"),
        ([1.0], r"weights must be one number per member, shape \(2,\), got \(1,\)"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        SplitNormalMixture(SplitNormal([0.0, 1.0], 1.0, 1.0), weights)


@pytest.mark.parametrize("loc", [0.0, np.empty((0, 3))])
def test_no_members_are_refused(loc):
    with pytest.raises(ValueError, match="components must have members along a first axis"):
        SplitNormalMixture(SplitNormal(loc, 1.0, 1.0))


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("ppf", 2.0, "p must be between 0 and 1, got 2.0"),
        ("cdf", np.nan, "x must not be NaN"),
        ("interval", 0.0, "coverage must be above 0 and below 1"),
        ("hdr", 1.0, "coverage must be above 0 and below 1"),
        ("crps", np.nan, "y must be finite"),
    ],
)
def test_bad_arguments_are_refused(method, argument, message):
    mixture = SplitNormalMixture(SplitNormal([0.0, 1.0], 1.0, 1.0))
    with pytest.raises(ValueError, match=message):
        getattr(mixture, method)(argument)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ordinary", "jumps"])
def test_rows_with_weights_of_their_own(kind, rng):
    """Every method gives each row what it gives to a mixture with that row's weights for all."""
    parts = random_mixtures(rng, kind, 6, 4).components
    weights = 10 ** rng.uniform(-6, 0, (6, 4))
    whole = SplitNormalMixture(parts, weights, per_network=3)
    alone = [
        SplitNormalMixture(parts[:, [i]], weights[:, i], per_network=3) for i in range(len(whole))
    ]
    x, p = whole.ppf(rng.random(4)) * 1.01, rng.random(4)
    p[:2] = 10 ** rng.uniform(-300, 0, 2)

    def rows(method, *arguments, **options):
        found = [
            getattr(one, method)(*(a[[i]] for a in arguments), **options)
            for i, one in enumerate(alone)
        ]
        return np.concatenate(np.atleast_2d(found), axis=None)

    for method, argument in [("pdf", x), ("logpdf", x), ("cdf", x), ("sf", x), ("crps", x)]:
        wanted = rows(method, argument)
        np.testing.assert_allclose(getattr(whole, method)(argument), wanted, rtol=1e-12)
    for method in ("ppf", "isf"):
        np.testing.assert_allclose(getattr(whole, method)(p), rows(method, p), rtol=1e-9)
    for method in ("interval", "hdi"):
        wanted = np.concatenate([getattr(one, method)(0.8) for one in alone], axis=1)
        np.testing.assert_allclose(getattr(whole, method)(0.8), wanted, rtol=1e-6)
    region = np.array(whole.hdr(0.8))
    for i, one in enumerate(alone):
        own = np.array(one.hdr(0.8))[..., 0]
        np.testing.assert_allclose(region[:, : own.shape[1], i], own, rtol=1e-6)
        assert np.isnan(region[:, own.shape[1] :, i]).all()
    for name in ("mean", "aleatoric_var", "epistemic_var", "var", "std", "median"):
        wanted = np.array([getattr(one, name)[0] for one in alone])
        np.testing.assert_allclose(getattr(whole, name), wanted, rtol=1e-9)
    np.testing.assert_array_equal(whole[3:5].weights, whole.weights[:, 3:5])
    joined = SplitNormalMixture.concatenate([whole[:4], whole[4:]])
    np.testing.assert_array_equal(joined.weights, whole.weights)
    np.testing.assert_array_equal(joined.cdf(x), whole.cdf(x))


def test_draws_follow_the_weights_of_their_row():
    parts = SplitNormal([[0.0, 0.0], [100.0, 100.0]], 1.0, 1.0)
    mixture = SplitNormalMixture(parts, [[1.0, 3.0], [3.0, 1.0]])
    draws = mixture.sample(4000, rng=np.random.default_rng(0))
    np.testing.assert_allclose((draws > 50).mean(axis=0), [0.75, 0.25], atol=0.03)


def test_variance_parts_are_between_networks_not_between_components():
    """Two networks of two components each that agree on two humps do not disagree."""
    parts = SplitNormal([[-3.0], [3.0], [-3.0], [3.0]], 1.0, 1.0)
    agreed = SplitNormalMixture(parts, per_network=2)
    np.testing.assert_allclose(agreed.epistemic_var, [0.0], atol=1e-15)
    np.testing.assert_allclose(agreed.aleatoric_var, [10.0])
    apart = SplitNormalMixture(parts[[0, 0, 1, 1]], [[1.0], [1.0], [2.0], [4.0]], per_network=2)
    np.testing.assert_allclose(apart.aleatoric_var, [1.0])
    np.testing.assert_allclose(apart.var, SplitNormalMixture(parts[[0, 1]], [2.0, 6.0]).var)
    np.testing.assert_allclose(apart.by_network.mean, [[-3.0], [3.0]])
    assert isinstance(SplitNormalMixture(parts).by_network, SplitNormal)


def test_members_must_be_as_many_for_every_network():
    with pytest.raises(ValueError, match="per_network must be a divisor of the 3 members, got 2"):
        SplitNormalMixture(SplitNormal(np.zeros((3, 2)), 1.0, 1.0), per_network=2)
