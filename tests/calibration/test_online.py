"""Calibration that follows a stream: coverage at every level, the alarm, storage.

Long-run coverage is not a matter of chance: whatever a stream does, it is off by a constant over
its length.
"""

import numpy as np
import pytest

from calipers._schema import SchemaError
from calipers.calibration import AdaptiveCoverage
from calipers.calibration._martingale import Martingale
from calipers.distributions import SplitNormal, SplitNormalMixture, Support, latent_targets

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def drifts(n):
    """Streams of targets around a model that predicts N(0, 1), by name."""
    rng = np.random.default_rng(0)
    noise, t = rng.standard_normal(n), np.arange(n)
    autoregressive = np.zeros(n)
    for i in range(1, n):
        autoregressive[i] = 0.95 * autoregressive[i - 1] + noise[i]
    return {
        "none": noise,
        "mean": noise + 4.0 * (t >= n // 2),
        "scale": noise * np.where(t >= n // 2, 5.0, 1.0),
        "narrow": noise * np.where(t >= n // 2, 0.1, 1.0),
        "trend": noise + 0.01 * t,
        "season": noise * (1.2 + np.sin(t / 40.0)) + 2.0 * np.sin(t / 60.0),
        "autoregressive": autoregressive,
        "heavy": rng.standard_t(2, n),
        "skewed": rng.exponential(2.0, n),
        "growth": np.exp(t / 50.0) * (1.0 + 0.1 * noise),
    }


def standard(n):
    return SplitNormalMixture(SplitNormal(np.zeros((1, n)), 1.0, 1.0))


@pytest.fixture(scope="module")
def learned():
    n = 1000
    start = AdaptiveCoverage.start(base_rows=1000)
    return {name: start.learn(standard(n), y) for name, y in drifts(n).items()}


@pytest.mark.long
@pytest.mark.parametrize("name", drifts(10))
def test_long_run_coverage_at_every_level(learned, name):
    found = learned[name]
    for coverage in COVERAGES:
        assert abs(found.coverage(coverage) - coverage) <= 0.01
    assert abs(found.coverage(0.99) - 0.99) <= 0.01


@pytest.mark.long
def test_far_levels_are_found_where_one_row_in_ten_is_thirty_times_as_far_off():
    rng, n = np.random.default_rng(1), 2000
    y = rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 30.0, 1.0)
    found = AdaptiveCoverage.start(base_rows=1000).learn(standard(n), y)
    for coverage in (0.9, 0.95, 0.99):
        assert abs(found.coverage(coverage) - coverage) <= 0.015


@pytest.mark.long
@pytest.mark.parametrize("name", drifts(10))
def test_no_window_is_far_off(learned, name):
    found = learned[name]
    lower, upper = found.intervals(0.9).T
    hits = (lower <= found.y) & (found.y <= upper)
    assert np.convolve(hits, np.ones(200) / 200, "valid").min() >= 0.85


@pytest.mark.long
def test_quantiles_never_cross(learned):
    for found in learned.values():
        quantiles = found.quantiles(np.linspace(0.001, 0.999, 41))
        assert (np.diff(quantiles, axis=1) >= 0).all()


@pytest.mark.long
def test_a_stream_without_drift_costs_little(learned):
    found = learned["none"]
    lower, upper = found.intervals(0.9).T
    beyond = np.maximum(lower - found.y, 0) + np.maximum(found.y - upper, 0)
    score = np.mean(upper - lower + 20 * beyond)
    right = 2 * 1.6449
    missed = np.maximum(np.abs(found.y) - 1.6449, 0)
    assert score <= 1.05 * (right + 20 * missed.mean())


@pytest.mark.long
def test_intervals_follow_a_shift_of_the_mean(learned):
    found = learned["mean"]
    lower, upper = found.intervals(0.9)[-500:].T
    assert abs(np.mean(0.5 * (lower + upper)) - 4.0) < 0.2
    assert np.mean(upper - lower) < 1.15 * 2 * 1.645


@pytest.mark.long
@pytest.mark.parametrize("jump", [3.0, 10.0, 30.0])
def test_a_jump_is_followed_within_a_hundred_rows(jump):
    rng = np.random.default_rng(3)
    X, noise = rng.standard_normal((1000, 2)), rng.standard_normal(1000)
    start = AdaptiveCoverage.start(300, np.zeros(2), np.ones(2))
    found = start.learn(standard(1000), noise + jump * (np.arange(1000) >= 400), X)
    late = found.quantiles([0.05, 0.5, 0.95])[-500:]
    assert np.abs(late[:, 1] - jump).mean() < 0.4
    assert np.mean(late[:, 2] - late[:, 0]) < 1.25 * 2 * 1.645
    assert abs(found.coverage(0.9) - 0.9) <= 0.01


@pytest.mark.parametrize("inputs", [0, 1])
def test_a_shift_is_the_same_for_rows_of_all_scales(inputs):
    rng = np.random.default_rng(5)
    x, noise = rng.uniform(-1, 1, 600), rng.standard_normal(600)
    scale = 0.1 * 4.0**x
    dist = SplitNormalMixture(SplitNormal(np.zeros((1, 600)), scale, scale))
    start = AdaptiveCoverage.start(300, np.zeros(inputs), np.ones(inputs))
    found = start.learn(dist, scale * noise + 3.0, np.tile(x[:, None], inputs))
    grid = np.array([-1.0, 0.0, 1.0])
    own = 0.1 * 4.0**grid
    at = SplitNormalMixture(SplitNormal(np.zeros((1, 3)), own, own))
    moved = found.state.calibrated(at, np.tile(grid[:, None], inputs))
    lower, upper = moved.interval(0.9)
    assert (np.abs(moved.median - 3.0) / own).max() < 0.4
    assert ((upper - lower) / own).max() < 1.25 * 2 * 1.645


def test_a_shift_in_proportion_to_the_scale_is_followed():
    rng = np.random.default_rng(5)
    scale = 4.0 ** rng.uniform(-1, 1, 600)
    dist = SplitNormalMixture(SplitNormal(np.zeros((1, 600)), scale, scale))
    found = AdaptiveCoverage.start(300).learn(dist, scale * (rng.standard_normal(600) + 3.0))
    late = found.quantiles([0.05, 0.5, 0.95])[300:] / scale[300:, None]
    assert np.abs(late[:, 1] - 3.0).mean() < 0.3
    assert np.diff(late[:, [0, 2]]).mean() < 1.25 * 2 * 1.645


@pytest.mark.long
def test_coverage_is_that_of_predictions_made_before_a_delay(learned):
    n, delay = 2000, 30
    y = drifts(n)["autoregressive"]
    start, soon = AdaptiveCoverage.start(base_rows=1000), learned["autoregressive"]
    late = start.learn(standard(n), y, delay=delay)
    for coverage in COVERAGES:
        assert abs(late.coverage(coverage) - coverage) <= 0.01
    # What is known 30 rows later is worth less: intervals are wider, as they were when made.
    width = [np.diff(found.intervals(0.9)).mean() for found in (late, soon)]
    assert width[0] > 1.5 * width[1]
    parts = start.learn(standard(delay), y[:delay], delay=delay)
    np.testing.assert_array_equal(parts.intervals(0.9), late.intervals(0.9)[:delay])


def late_coverage(n, known):
    """Coverage of intervals as predicted, where labels arrive forty rows late and out of order."""
    block = 40
    y, rng = drifts(n)["autoregressive"], np.random.default_rng(4)
    state, past, hits = AdaptiveCoverage.start(base_rows=1000), [], np.zeros(n, bool)
    for t in range(n):
        lower, upper = state.calibrated(standard(1)).interval(0.9)
        hits[t] = lower[0] <= y[t] <= upper[0]
        past.append(state)
        if t % block == block - 1 and t >= 2 * block:
            come = rng.permutation(np.arange(t - 2 * block + 1, t - block + 1))
            states = [past[i] for i in come] if known else None
            state = state.learn(standard(block), y[come], predicted_by=states).state
    return hits[200:].mean()


@pytest.mark.long
def test_labels_that_come_late_count_for_the_intervals_that_were_made():
    assert abs(late_coverage(2000, known=True) - 0.9) <= 0.03
    assert late_coverage(600, known=False) < 0.8


def test_targets_with_atoms_are_covered_as_by_the_right_model():
    """Half of the rows are 0 for certain; others are censored at 0, and twice as far off.

    With the right scale, 0 is more than a quarter of the distribution of these others, so that
    their intervals begin there and miss the upper tail alone.
    """
    n, rng = 1500, np.random.default_rng(6)
    night = np.arange(n) % 2 == 0
    loc, support = np.where(night, -9.0, 1.0), Support(low=0.0)
    y = support.observe(loc + 2.0 * rng.standard_normal(n))
    dist = SplitNormalMixture(SplitNormal(loc[None], 1.0, 1.0))
    latent, cells = (
        latent_targets(support, dist, y, rng),
        (support.lower_edge(y), support.upper_edge(y)),
    )
    found = AdaptiveCoverage.start(300).learn(dist, latent, cells=np.array(cells))
    for coverage in COVERAGES:
        lower, upper = support.observe(found.intervals(coverage)).T
        held = (lower <= y) & (y <= upper)
        assert held[night].mean() > 0.99
        assert abs(held[~night].mean() - (1.0 + coverage) / 2.0) <= 0.05


def test_rows_at_once_or_one_by_one_are_the_same():
    y = drifts(60)["mean"]
    whole = AdaptiveCoverage.start(100).learn(standard(60), y)
    state, bounds = AdaptiveCoverage.start(100), []
    for value in y:
        bounds.append(state.calibrated(standard(1)).interval(0.8))
        state = state.learn(standard(1), [value]).state
    np.testing.assert_allclose(np.array(bounds)[:, :, 0], whole.intervals(0.8), rtol=1e-9)
    np.testing.assert_array_equal(state.levels.shape, whole.state.levels.shape)
    assert state.alarm.log_capital == whole.state.alarm.log_capital


def test_learning_leaves_the_state_before_as_it_was():
    start = AdaptiveCoverage.start(100)
    before = {name: array.copy() for name, array in start.to_arrays().items()}
    start.learn(standard(20), np.full(20, 9.0))
    for name, array in start.to_arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.long
def test_a_linear_drift_in_the_inputs_is_corrected():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 2))
    y = 3.0 * X[:, 0] + rng.standard_normal(1000)  # of a model that has not seen the slope
    plain = AdaptiveCoverage.start(100).learn(standard(1000), y)
    inputs = AdaptiveCoverage.start(100, np.zeros(2), np.ones(2)).learn(standard(1000), y, X)
    width = [np.diff(found.intervals(0.9)[-500:]).mean() for found in (plain, inputs)]
    assert width[1] < 0.45 * width[0]
    assert abs(inputs.coverage(0.9) - 0.9) <= 0.01


def test_support_grows_with_the_rows():
    start = AdaptiveCoverage.start(base_rows=20)
    assert not start.supports(0.005)
    assert start.learn(standard(200), np.zeros(200)).state.supports(0.005)


def test_no_false_alarm_more_often_than_promised():
    # Ville: at most 1 in 100 of exchangeable streams; 5 or more of 100 by chance 1 in 250.
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(100):
        martingale = Martingale.start()
        martingale.learn(rng.standard_normal(300))
        alarms += martingale.alarm
    assert alarms <= 4


@pytest.mark.parametrize("change", [lambda z: z + 1.0, lambda z: 2.5 * z, lambda z: 0.3 * z])
def test_alarm_after_a_change(change):
    rng = np.random.default_rng(2)
    martingale = Martingale.start()
    martingale.learn(rng.standard_normal(500))
    assert not martingale.alarm
    martingale.learn(change(rng.standard_normal(200)))
    assert martingale.alarm


@pytest.mark.parametrize("unit", [1e-60, 1e60, 1e120])
def test_a_stream_in_any_unit_is_the_same_and_stored(unit):
    y = drifts(40)["mean"]
    dist = SplitNormalMixture(SplitNormal(np.zeros((1, 40)), unit, unit))
    plain = AdaptiveCoverage.start(50).learn(standard(40), y).state
    state = AdaptiveCoverage.start(50).learn(dist, unit * y).state
    again = AdaptiveCoverage.from_arrays(state.to_arrays())
    np.testing.assert_allclose(again.shift.weights, plain.shift.weights, rtol=1e-6)


def test_stored_and_made_again():
    first = AdaptiveCoverage.start(50, np.zeros(1), np.ones(1))
    y = drifts(40)["mean"]
    state = first.learn(standard(40), y, np.ones((40, 1))).state
    again = AdaptiveCoverage.from_arrays(state.to_arrays())
    ends = [s.learn(standard(40), y, np.ones((40, 1))).intervals(0.9) for s in (state, again)]
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("base_rows", None, "lack"),
        ("levels.shape", np.zeros((2, 3)), "of shape"),
        ("levels.scale", np.zeros(30), "numbers from"),
        ("levels.weights", np.ones((30, 25)), "add up to 1"),
        ("shift.center", np.zeros((2, 2)), "a list"),
        ("shift.center", np.zeros(1000), "fewer inputs"),
        ("alarm.counts", np.full(200, np.nan), "finite"),
    ],
)
def test_refuses_stored_states_that_are_none(name, value, message):
    arrays = AdaptiveCoverage.start(50).to_arrays()
    arrays[name] = value
    if value is None:
        del arrays[name]
    with pytest.raises(SchemaError, match=message):
        AdaptiveCoverage.from_arrays(arrays)


def test_refuses_a_stored_state_of_other_inputs():
    state = AdaptiveCoverage.start(50, np.zeros(2), np.ones(2))
    state.check_inputs(2)
    with pytest.raises(SchemaError, match="of 3 inputs, or none"):
        state.check_inputs(3)


def test_late_targets_of_any_size_leave_a_state_that_can_be_stored():
    rng, state = np.random.default_rng(0), AdaptiveCoverage.start(100)
    for _ in range(10):
        y = rng.choice([0.0, 1.0, 5e-324, 1e149, -1e149], 300)
        dist = SplitNormalMixture(SplitNormal(np.zeros((1, 300)), 1.0, 1.0))
        state = state.learn(dist, y, predicted_by=[state] * 300).state
    again = AdaptiveCoverage.from_arrays(state.to_arrays())
    assert np.isfinite(again.level_map().from_score(np.zeros(1))).all()


def test_a_row_of_no_scale_does_not_end_a_stream():
    state = AdaptiveCoverage.start(50, np.zeros(1), np.ones(1))
    for scale in (1e-200, 1.0, 1.0):
        dist = SplitNormalMixture(SplitNormal(np.zeros((1, 1)), scale, scale))
        state = state.learn(dist, np.full(1, 0.5 * scale), np.ones((1, 1))).state
    assert np.isfinite(state.shift.slope).all()


def test_refuses_what_it_has_not():
    with pytest.raises(ValueError, match=r"updated online cannot be exported to ONNX: its corr"):
        AdaptiveCoverage.start(10).onnx(None, None, None)
