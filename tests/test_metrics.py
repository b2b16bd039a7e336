"""Hand-computed numbers for each metric, then the same laws for every metric."""

import inspect
from math import exp, inf, nan, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import mean_pinball_loss

from calipers import losses, metrics
from calipers.metrics._conditional import _lowest_rate

# Four intervals: held, held on the bound, missed by 1, crossed.
LOWER = [0.0, 1.0, 0.0, 3.0]
POINT = [1.0, 1.0, 4.0, 2.5]  # held, held on the bound, outside, nowhere between crossed bounds
UPPER = [2.0, 2.0, 3.0, 2.0]
TARGET = [0.5, 2.0, 4.0, 2.5]
OPTIONS = {"interval_score": {"coverage": 0.8}, "coverage_width_criterion": {"coverage": 0.9}}
ROWS = {"y_true": TARGET, "y_lower": LOWER, "y_upper": UPPER}
# Metrics of plain numbers that give one number.
AVERAGES = [
    "coverage_rate",
    "coverage_width_criterion",
    "crossing_rate",
    "interval_score",
    "mean_width",
    "normalized_mean_width",
]


class Normal:
    """Independent normals, with the methods of calipers' distributions."""

    def __init__(self, loc, scale):
        self.loc, self.scale = np.asarray(loc), np.asarray(scale)

    def __getattr__(self, method):
        return getattr(norm(self.loc, self.scale), method)

    def crps(self, y):
        z = (y - self.loc) / self.scale
        return self.scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / sqrt(np.pi))


def arguments(name):
    parameters = inspect.signature(getattr(metrics, name)).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def measure(name, replaced=None, **options):
    data = {**ROWS, **(replaced or {})}
    values = [data[argument] for argument in arguments(name)]
    return getattr(metrics, name)(*values, **OPTIONS.get(name, {}), **options)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (metrics.coverage_rate(TARGET, LOWER, UPPER), 2 / 4),
        (metrics.mean_width(LOWER, UPPER), (2 + 1 + 3 - 1) / 4),
        (metrics.normalized_mean_width(TARGET, LOWER, UPPER), 1.25 / (4 - 0.5)),
        (metrics.normalized_mean_width(TARGET, LOWER, UPPER, target_range=5), 1.25 / 5),
        # half the targets are held where 0.9 should be
        (
            metrics.coverage_width_criterion(TARGET, LOWER, UPPER, coverage=0.9, penalty=10),
            1.25 / 3.5 * (1 + exp(10 * 0.4)),
        ),
        (metrics.coverage_width_criterion(TARGET, LOWER, UPPER, coverage=0.5), 1.25 / 3.5),
        # misses: 1 above, then 0.5 below and 0.5 above the crossed bounds, at 2 / 0.2 per unit
        (metrics.interval_score(TARGET, LOWER, UPPER, coverage=0.8), 1.25 + 10 * (1 + 1) / 4),
        (metrics.crossing_rate(LOWER, UPPER), 1 / 4),
        (metrics.crossing_rate([1], [1]), 0),
        # the fraction of points within their own interval
        (metrics.coverage_rate(POINT, LOWER, UPPER), 2 / 4),
        # a normal's CRPS at its mean is scale * (sqrt(2) - 1) / sqrt(pi)
        (metrics.crps([0, 1], Normal([0, 1], [1, 3])), 2 * (sqrt(2) - 1) / sqrt(np.pi)),
        # -log f = log(scale) + log(2 pi) / 2 + z^2 / 2
        (
            metrics.log_score([1, 0], Normal([0, 0], [1, exp(2)])),
            np.log(2 * np.pi) / 2 + (0.5 + 2) / 2,
        ),
        (metrics.pit_values([0, 2], Normal([0, 0], [1, 2])), [0.5, 0.841344746068543]),
    ],
)
def test_hand_computed_numbers(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_calibration_curve_counts_for_each_coverage():
    # |z| is 0.1, 0.6, 1.5, 2.5: below the quantile 0.674 twice, below 1.645 three times
    dist, target = Normal(np.zeros(4), np.ones(4)), [0.1, -0.6, 1.5, -2.5]
    curve = metrics.calibration_curve(target, dist, coverages=[0.5, 0.9])
    np.testing.assert_array_equal(curve.nominal, [0.5, 0.9])
    np.testing.assert_array_equal(curve.observed, [0.5, 0.75])
    error = metrics.calibration_error(target, dist, coverages=[0.5, 0.9])
    assert error == pytest.approx((0 + 0.15) / 2)

    bounds = np.stack([np.stack(dist.interval(c), axis=1) for c in (0.5, 0.9)], axis=2)
    same = metrics.calibration_curve(target, bounds, coverages=[0.5, 0.9])
    np.testing.assert_array_equal(same.observed, curve.observed)
    weighted = metrics.calibration_curve(
        target, bounds, coverages=[0.5, 0.9], sample_weight=[1, 0, 3, 0]
    )
    np.testing.assert_array_equal(weighted.observed, [0.25, 1])


class Coin:
    """Point masses of one half at 0 and 1."""

    def cdf(self, x):
        return 0.5 * (np.asarray(x) >= 0) + 0.5 * (np.asarray(x) >= 1)

    def cdf_below(self, x):
        return 0.5 * (np.asarray(x) > 0) + 0.5 * (np.asarray(x) > 1)


def test_calibration_curve_checks_weights_of_point_masses_too():
    curve = metrics.calibration_curve([0, 1, 5], Coin(), coverages=[0.5], sample_weight=[1, 1, 0])
    np.testing.assert_allclose(curve.observed, [0.5])
    for wrong, message in (([-1, 3], "negative"), ([1, np.nan], "finite"), ([0, 0], "positive")):
        with pytest.raises(ValueError, match=f"sample_weight must .*{message}"):
            metrics.calibration_curve([0, 1], Coin(), sample_weight=wrong)


def test_calibrated_predictions_measure_as_calibrated():
    # 4,000 uniforms: the curve strays from the diagonal by 0.04 with probability below 1e-5
    # (Dvoretzky-Kiefer-Wolfowitz: 2 exp(-2 n 0.04^2) = 6e-6).
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=4000), rng.uniform(0.1, 3, 4000)
    dist, target = Normal(loc, scale), rng.normal(loc, scale)
    curve = metrics.calibration_curve(target, dist)
    np.testing.assert_allclose(curve.nominal, np.linspace(0.05, 0.95, 19))
    assert abs(curve.observed - curve.nominal).max() < 0.04
    pit = np.sort(metrics.pit_values(target, dist))
    assert abs(pit - np.linspace(0, 1, 4000)).max() < 0.04
    overconfident = Normal(loc, scale / 3)
    assert metrics.calibration_error(target, overconfident) > 0.2


def test_coverage_by_group():
    result = metrics.coverage_by_group(TARGET, LOWER, UPPER, ["b", "a", "b", "a"])
    assert result.group.tolist() == ["a", "b"]
    np.testing.assert_array_equal(result.coverage_rate, [0.5, 0.5])
    np.testing.assert_array_equal(result.mean_width, [(1 - 1) / 2, (2 + 3) / 2])
    np.testing.assert_array_equal(result.n_samples, [2, 2])

    weighted = metrics.coverage_by_group(
        TARGET, LOWER, UPPER, [7, 5, 7, 6], sample_weight=[3, 1, 1, 0]
    )
    assert weighted.group.tolist() == [5, 7]
    np.testing.assert_array_equal(weighted.coverage_rate, [1, 0.75])
    np.testing.assert_array_equal(weighted.n_samples, [1, 2])


def test_coverage_by_width():
    lower, upper = np.zeros(20), np.arange(20, 0, -1.0)
    target = np.full(20, 5.5)
    result = metrics.coverage_by_width(target, lower, upper, n_bins=5)
    np.testing.assert_array_equal(result.group, range(5))
    np.testing.assert_array_equal(result.n_samples, [4] * 5)
    np.testing.assert_array_equal(result.mean_width, [2.5, 6.5, 10.5, 14.5, 18.5])
    np.testing.assert_array_equal(result.coverage_rate, [0, 0.75, 1, 1, 1])


def test_equal_widths_share_a_bin():
    result = metrics.coverage_by_width(np.zeros(9), np.zeros(9), np.ones(9), n_bins=3)
    assert (result.group.tolist(), result.n_samples.tolist()) == ([0], [9])


@given(st.integers(1, 60), st.integers(1, 12))
def test_width_bins_share_the_rows_evenly(n_samples, n_bins):
    width = np.random.default_rng(0).permutation(n_samples) + 1.0
    result = metrics.coverage_by_width(width, np.zeros(n_samples), width, n_bins=n_bins)
    assert result.n_samples.sum() == n_samples
    assert result.n_samples.max() <= -(-n_samples // n_bins)
    assert (np.diff(result.mean_width) > 0).all()


def test_open_intervals_are_intervals():
    lower, upper, target = [-inf, 0.0, 0.0], [inf, inf, 1.0], [5.0, -1.0, 0.5]
    assert metrics.coverage_rate(target, lower, upper) == pytest.approx(2 / 3)
    assert metrics.mean_width(lower, upper) == inf
    assert metrics.mean_width(lower, upper, sample_weight=[0, 0, 1]) == 1
    assert metrics.interval_score(target, lower, upper, coverage=0.9) == inf
    bins = metrics.coverage_by_width(target, lower, upper, n_bins=3)
    np.testing.assert_array_equal(bins.coverage_rate, [1, 0.5])
    np.testing.assert_array_equal(bins.mean_width, [1, inf])


def test_impossible_targets_and_point_masses_in_the_log_score():
    class Uniform:
        def logpdf(self, x):
            return np.where(abs(x) <= 1, 0.0, -inf)

    class PointMass:
        def logpdf(self, x):
            return np.where(x == 0, inf, -inf)

    assert metrics.log_score([0, 2], Uniform()) == inf
    assert metrics.log_score([0, 2], Uniform(), sample_weight=[1, 0]) == 0
    with pytest.raises(ValueError, match=r"dist.logpdf\(y_true\) .* got inf at index \(1,\)"):
        metrics.log_score([1, 0], PointMass())


def test_losses_and_metrics_share_their_formulas():
    target, lower, upper = (np.array(values) for values in (TARGET, LOWER, UPPER))
    found = metrics.interval_score(target, lower, upper, coverage=0.9)
    assert found == losses.interval_score(lower, upper, target, coverage=0.9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coverage_rate", 3 / 7),
        ("mean_width", (2 * 2 + 1 * 1 + 3 * 3 - 1) / 7),
        ("crossing_rate", 1 / 7),
        ("interval_score", (13 + 10 * (3 * 1 + 1 * 1)) / 7),
        ("normalized_mean_width", 13 / 7 / 3.5),
        ("coverage_width_criterion", 13 / 7 / 3.5 * (1 + exp(50 * (0.9 - 3 / 7)))),
    ],
)
def test_hand_computed_weighted_numbers(name, expected):
    assert measure(name, sample_weight=[2, 1, 3, 1]) == pytest.approx(expected, rel=1e-14)


@given(st.integers(0, 1000), st.floats(0.05, 0.95))
def test_interval_score_is_the_sum_of_two_pinball_losses(seed, coverage):
    rng = np.random.default_rng(seed)
    target, weight = rng.normal(size=8), rng.integers(0, 4, 8) + np.eye(8)[0]
    lower, upper = np.sort(rng.normal(size=(2, 8)), axis=0)
    tail = (1 - coverage) / 2
    expected = sum(
        mean_pinball_loss(target, bound, alpha=level, sample_weight=weight) / tail
        for bound, level in ((lower, tail), (upper, 1 - tail))
    )
    found = metrics.interval_score(target, lower, upper, coverage=coverage, sample_weight=weight)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", AVERAGES)
def test_weights_count_rows(name):
    count = [2, 1, 0, 3]
    repeated = {key: np.repeat(values, count) for key, values in ROWS.items()}
    assert measure(name, sample_weight=count) == pytest.approx(measure(name, repeated), rel=1e-14)
    assert measure(name, sample_weight=np.ones(4)) == measure(name)


@given(st.integers(0, 1000), st.lists(st.integers(0, 3), min_size=6, max_size=6).filter(any))
def test_weights_count_rows_of_every_curve_and_group(seed, count):
    rng = np.random.default_rng(seed)
    target, value = rng.normal(size=(2, 6))
    bounds = np.sort(rng.normal(size=(6, 2, 3)), axis=1)
    lower, upper = bounds[:, :, 0].T
    data = {"y": target, "bounds": bounds, "lower": lower, "upper": upper, "value": value}

    def all_of(rows, weight):
        y, many, low, high, by = (values[rows] for values in data.values())
        levels = [0.2, 0.5, 0.8]
        yield metrics.calibration_curve(y, many, coverages=levels, sample_weight=weight).observed
        yield from metrics.coverage_by_group(y, low, high, by > 0, sample_weight=weight)[1:3]
        yield from metrics.coverage_by_value(y, low, high, by, sample_weight=weight)[1:3]
        yield from metrics.coverage_by_width(y, low, high, sample_weight=weight)[1:3]

    repeated = all_of(np.repeat(np.arange(6), count), None)
    for found, expected in zip(all_of(np.arange(6), count), repeated, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


INTERVALS = [
    (metrics.coverage_rate, {}),
    (metrics.normalized_mean_width, {}),
    (metrics.coverage_width_criterion, {"coverage": 0.9}),
    (metrics.interval_score, {"coverage": 0.9}),
    (metrics.coverage_by_group, {"group": np.arange(200) % 2}),
    (metrics.coverage_by_value, {"value": np.arange(200)}),
    (metrics.coverage_by_width, {}),
]


@pytest.mark.parametrize(("call", "options"), INTERVALS)
@pytest.mark.parametrize("order", ["lower upper target", "target upper lower"])
def test_arguments_in_the_wrong_order_are_refused(call, options, order):
    rng = np.random.default_rng(0)
    point = rng.normal(size=200)
    data = {"lower": point - 2, "target": rng.normal(point), "upper": point + 2}
    rule = r"y_lower is above y_upper in \d+ of 200 rows; .* is y_true, y_lower, y_upper"
    with pytest.raises(ValueError, match=rule):
        call(*(data[name] for name in order.split()), **options)
    call(data["target"], data["lower"], data["upper"], **options)


def test_swapped_bounds_and_distributions_are_refused():
    with pytest.raises(ValueError, match=r"in 2 of 3 rows; the order of .* is y_lower, y_upper"):
        metrics.mean_width([1, 1, 0], [0, 0, 1])
    assert metrics.mean_width([1, 0], [0, 1]) == 0  # half of the rows: crossed, not swapped
    assert metrics.crossing_rate([1, 1, 0], [0, 0, 1]) == pytest.approx(2 / 3)
    for score in (metrics.crps, metrics.log_score, metrics.pit_values):
        with pytest.raises(TypeError, match="got list; the order of arguments is y_true, dist"):
            score(Normal([0], [1]), [0])
    with pytest.raises(ValueError, match="y_pred must be a distribution"):
        metrics.calibration_curve(Normal([0], [1]), [0])


def test_distribution_scores_take_weights():
    loc, scale, target, count = [0.0, 1, 2], [1.0, 2, 3], [0.5, 0, 5], [2, 0, 1]
    every = [np.repeat(values, count) for values in (loc, scale, target)]
    for score in (metrics.crps, metrics.log_score):
        found = score(target, Normal(loc, scale), sample_weight=count)
        assert found == pytest.approx(score(every[2], Normal(*every[:2])), rel=1e-14)


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("container", [tuple, np.array, pd.Series, np.float32])
def test_any_container_gives_a_float(name, container):
    found = measure(name, {key: container(values) for key, values in ROWS.items()})
    assert type(found) is float
    assert found == measure(name)


@pytest.mark.parametrize("name", AVERAGES)
def test_bad_rows_are_refused_by_name(name):
    for argument in arguments(name):
        with pytest.raises(
            ValueError, match=rf"{argument} must be finite, got nan at index \(2,\)"
        ):
            measure(name, {argument: [0, 1, nan, 3]})
        with pytest.raises(ValueError, match=rf"same shape, got .*{argument} \(3,\)"):
            measure(name, {argument: [0, 1, 2]})
        with pytest.raises(ValueError, match=f"{argument} must hold real numbers"):
            measure(name, {argument: ["a", "b", "c", "d"]})
    with pytest.raises(ValueError, match="must hold at least one row"):
        measure(name, {argument: [] for argument in ROWS})


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 1, -1, 1], r"sample_weight must not be negative, got -1.0 at index \(2,\)"),
        ([0, 0, 0, 0], "sample_weight must be positive somewhere"),
        ([1, nan, 1, 1], r"sample_weight must be finite, got nan at index \(1,\)"),
        ([1, 1], r"sample_weight \(2,\)"),
    ],
)
def test_bad_weights_are_refused(name, weight, message):
    with pytest.raises(ValueError, match=message):
        measure(name, sample_weight=weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.mean_width([inf], [inf]),
            r"y_lower must be finite, got inf at index \(0,\)",
        ),
        (lambda: metrics.coverage_rate([inf], [0], [1]), "y_true must be finite, got inf"),
        (lambda: metrics.mean_width([[1, 2], [3]], [1, 2]), "y_lower must hold real numbers"),
        (lambda: metrics.mean_width([1j], [1]), "y_lower must hold real numbers"),
        (lambda: metrics.mean_width([None], [1]), "y_lower must be finite, got nan"),
        (
            lambda: metrics.interval_score([0], [0], [1], coverage=95),
            "coverage must be above 0 and below 1, got 95.0",
        ),
        (lambda: metrics.normalized_mean_width([3], [0], [1]), "y_true must vary, .* 3.0 only"),
        (
            lambda: metrics.normalized_mean_width([3], [0], [1], target_range=0),
            "target_range must be positive, got 0.0",
        ),
        (
            lambda: metrics.coverage_width_criterion([0], [0], [1], coverage=0.9, penalty=-1),
            "penalty must not be negative, got -1.0",
        ),
        (lambda: metrics.crps([0], Normal([0, 1], [1, 1])), r"y_true \(1,\), dist.crps"),
        (lambda: metrics.crps([0], Normal([0], [nan])), r"dist.crps\(y_true\) must not be NaN"),
        (lambda: metrics.crps([nan], Normal([0], [1])), "y_true must be finite, got nan"),
        (
            lambda: metrics.crps([0], Normal([0], [1]), sample_weight=[1, 1]),
            r"sample_weight \(2,\)",
        ),
        (
            lambda: metrics.coverage_by_group([0, 0], [0, 0], [1, 1], ["a"]),
            r"y_upper \(2,\), group \(1,\)",
        ),
        (
            lambda: metrics.coverage_by_group([0, 0], [0, 0], [1, 1], [None, "a"]),
            "group must hold labels of one kind",
        ),
        (
            lambda: metrics.coverage_by_width([0], [0], [1], n_bins=0),
            "n_bins must be a positive integer, got 0",
        ),
        (
            lambda: metrics.calibration_curve([0], Normal([0], [1]), coverages=[0.5, 1.0]),
            r"coverages must be above 0 and below 1, got 1.0 at index \(1,\)",
        ),
        (
            lambda: metrics.calibration_curve([0], Normal([0], [1]), coverages=0.5),
            "coverages must be a list",
        ),
        (
            lambda: metrics.calibration_curve(np.zeros(4), np.zeros((4, 2)), coverages=[0.5]),
            r"shape \(n_samples, 2, n_coverages\), got shape \(4, 2\) for 1 coverages",
        ),
    ],
)
def test_errors_say_what_is_wrong_and_where(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("n_samples", [1, 7, 100, 5000])
@pytest.mark.parametrize("coverage", [0.5, 0.95, 0.99])
def test_band_of_chance_holds_as_much_as_it_says(n_samples, coverage):
    low, high = metrics.coverage_band(n_samples, coverage, confidence=0.9)
    inside = binom(n_samples, coverage)
    first, last = round(float(low) * n_samples), round(float(high) * n_samples)
    assert inside.cdf(last) - inside.cdf(first - 1) >= 0.9 - 1e-12
    assert inside.cdf(first - 1) <= 0.05
    assert inside.sf(last) <= 0.05


def test_pit_band_is_that_of_one_bar():
    low, high = metrics.pit_band(60, 6, confidence=0.9)
    inside = binom(60, 1 / 6)
    assert inside.cdf(round(low * 10) - 1) <= 0.05 < inside.cdf(round(low * 10))
    assert inside.sf(round(high * 10)) <= 0.05 < inside.sf(round(high * 10) - 1)
    assert metrics.pit_band(60, 1) == (1, 1)


def test_p_value_is_the_exact_test():
    expected = [2 * binom.cdf(k, 50, 0.9) for k in (30, 40, 43)] + [2 * binom.sf(49, 50, 0.9)]
    found = metrics.coverage_p_value(np.array([30, 40, 43, 50]) / 50, 50, 0.9)
    np.testing.assert_allclose(found, expected)
    assert metrics.coverage_p_value(0.9, 50, 0.9) == 1


def test_coverage_by_value():
    value = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 4.0])
    lower, upper = np.zeros(6), np.array([1, 9, 9, 9, 1, 1])
    result = metrics.coverage_by_value(np.full(6, 2.0), lower, upper, value, n_bins=2)
    assert result.group.tolist() == [2.0, 4.0]
    assert result.coverage_rate.tolist() == [1.0, 0.0]
    assert result.mean_width.tolist() == [9.0, 1.0]
    assert result.n_samples.tolist() == [3, 3]
    same = metrics.coverage_by_value(np.full(6, 2.0), lower, upper, np.ones(6), n_bins=3)
    assert same.group.tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.coverage_band(0, 0.9), "n_samples must be a whole number"),
        (lambda: metrics.coverage_band([3, 2.5], 0.9), "got 2.5 at index"),
        (lambda: metrics.coverage_band(10, 1.0), "coverage must be above 0 and below 1"),
        (lambda: metrics.pit_band(10, 0), "n_bins must be a whole number, at least 1, got 0"),
        (lambda: metrics.coverage_p_value(1.2, 10, 0.9), "coverage_rate must be between 0 and 1"),
        (lambda: metrics.coverage_by_value([0], [0], [1], [0], n_bins=0), "n_bins"),
    ],
)
def test_chance_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_worst_slab_finds_where_coverage_is_lost_and_nothing_where_it_is_not():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3))
    y = rng.standard_normal(4000)
    even = metrics.worst_slab_coverage(y, y * 0 - 1.645, y * 0 + 1.645, X)
    assert 0.8 < even < 0.95  # 200 rows and more: five standard errors
    wild = np.where(X[:, 0] + X[:, 1] > 1.6, 4.0, 1.0) * y
    assert metrics.worst_slab_coverage(wild, y * 0 - 1.645, y * 0 + 1.645, X) < 0.6
    with pytest.raises(ValueError, match="share must be above 0"):
        metrics.worst_slab_coverage(y, y, y, X, share=0.7)
    with pytest.raises(ValueError, match="X must have 4000 rows"):
        metrics.worst_slab_coverage(y, y, y, X[:5])


def test_weights_of_the_worst_slab_are_repetitions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 2))
    y = np.where(X[:, 0] > 1.2, 3.0, 1.0) * rng.standard_normal(6000)
    weights = np.where(np.abs(y) > 1.645, rng.integers(2, 4, 6000), rng.integers(0, 2, 6000))
    data, repeated = (y, y * 0 - 1.645, y * 0 + 1.645, X), np.repeat(np.arange(6000), weights)
    found = metrics.worst_slab_coverage(*data, sample_weight=weights)
    again = metrics.worst_slab_coverage(*(part[repeated] for part in data))
    assert abs(found - again) < 0.05  # four standard errors of a rate of 300 rows
    assert found < metrics.worst_slab_coverage(*data) - 0.1
    present = weights > 0
    kept = [part[present] for part in data]
    assert metrics.worst_slab_coverage(*kept, sample_weight=weights[present]) == found
    alike = metrics.worst_slab_coverage(*data, sample_weight=np.full(6000, 0.25))
    assert alike == metrics.worst_slab_coverage(*data)


@pytest.mark.parametrize("weight", [0.1, 3.3])
def test_equal_weights_do_not_change_the_worst_slab(weight):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 3))
        data = (rng.standard_normal(300), np.full(300, -1.5), 1.5 + np.fmax(X[:, 0], 0), X)
        options = {"n_directions": 30, "random_state": seed}
        alike = metrics.worst_slab_coverage(*data, **options, sample_weight=np.full(300, weight))
        assert alike == pytest.approx(metrics.worst_slab_coverage(*data, **options))


def test_a_slab_of_weighted_rows_is_that_of_repeated_rows():
    rng = np.random.default_rng(0)
    X, search = rng.standard_normal((500, 2)), rng.random(500) < 0.5
    inside = rng.random(500) < np.where(X[:, 0] > 1, 0.5, 0.9)
    search[np.flatnonzero(search)[200:]] = False
    found = [
        _lowest_rate(X[rows], X[:30], inside[rows], np.full(len(rows), weight), search[rows], 0.1)
        for rows, weight in ((np.arange(500), 3.0), (np.repeat(np.arange(500), 3), 1.0))
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0] < inside.mean() - 0.1
