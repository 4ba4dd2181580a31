"""The score means what the design says: values worked out by hand, intervals held to coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from harness.results.scoring import (
    interquartile_mean,
    interval,
    normalise,
    rank_ranges,
    score,
)


def test_a_return_is_normalised_between_floor_and_ceiling_and_cut_at_the_floor_only():
    # floor -200, ceiling 1000: (400 + 200) / 1200 = 0.5; 1600 -> 1.5 is kept; -500 is cut to 0.
    z = normalise([400.0, 1600.0, -500.0, -200.0, 1000.0], -200.0, 1000.0)
    np.testing.assert_allclose(z, [0.5, 1.5, 0.0, 0.0, 1.0])


def test_each_environment_has_its_own_scale():
    returns = [[0.0, 5.0], [-100.0, -50.0]]  # 0, 5 of 10; and -100, -50 on the way from -100 to 0
    z = normalise(returns, [[0.0], [-100.0]], [[10.0], [0.0]])
    np.testing.assert_allclose(z, [[0.0, 0.5], [0.0, 0.5]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_return_that_is_no_finite_number_is_zero(value):
    np.testing.assert_array_equal(normalise([value, 5.0], 0.0, 10.0), [0.0, 0.5])


def test_a_scale_without_width_is_refused():
    with pytest.raises(ValueError, match="ceiling"):
        normalise([1.0], 3.0, 3.0)


def test_the_score_is_a_mean_of_means_in_percent():
    # Means over seeds: 0.5, 0.9 and 0 -> 1.4 / 3 = 0.46667.
    assert score([[0.4, 0.6], [1.0, 0.8], [0.0, 0.0]]) == pytest.approx(46.6666666667)


def test_the_interval_of_two_seeds_worked_out_by_hand():
    # Environment 1: 1.0, 1.2: mean 1.1, variance 0.02, over n: 0.01. Environment 2: no variance.
    # Standard error sqrt(0.01) / 2 = 0.05; degrees of freedom 0.01^2 / (0.01^2 / 1) = 1, for which
    # the t quantile is tan(pi (0.975 - 0.5)) = 12.7062. Centre (1.1 + 0.9) / 2 = 1.
    low, high = interval([[1.0, 1.2], [0.9, 0.9]])
    assert low == pytest.approx(100 - 100 * 0.05 * math.tan(math.pi * 0.475))
    assert high == pytest.approx(100 + 100 * 0.05 * math.tan(math.pi * 0.475))


def test_degrees_of_freedom_worked_out_by_hand():
    # Variances over n: 1/3 and 16/3; (17/3)^2 / ((1/9 + 256/9) / 2) = 578 / 257 = 2.24903.
    # At level 0.5 and by symmetry, half the width over the standard error is that t quantile.
    z = np.array([[11.0, 12.0, 13.0], [10.0, 14.0, 18.0]])
    low, high = interval(z, level=0.5)
    standard_error = math.sqrt(17 / 3) / 2
    assert (high - low) / 200 / standard_error == pytest.approx(stats.t.ppf(0.75, 578 / 257))


def test_the_interval_agrees_with_an_independent_welch_test():
    # Welch's interval of a difference of means, with one sample's sign turned, is that of a sum.
    rng = np.random.default_rng(5)
    one, two = rng.normal(1.0, 0.1, 7), rng.normal(2.0, 0.4, 7)
    other = stats.ttest_ind(one, -two, equal_var=False).confidence_interval(0.95)
    expected = [50 * other.low, 50 * other.high]
    np.testing.assert_allclose(interval([one, two]), expected)


def test_the_interval_of_one_environment_is_students():
    values = [0.81, 0.92, 0.87, 0.99]
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(interval([values]), [100 * expected.low, 100 * expected.high])


def test_one_seed_has_no_interval():
    assert np.isnan(interval([[0.5], [0.7]])).all()


def test_seeds_that_agree_give_an_interval_without_width():
    np.testing.assert_allclose(interval([[0.25, 0.25], [0.75, 0.75]]), [50.0, 50.0])
    np.testing.assert_array_equal(interval(np.zeros((3, 2))), [0.0, 0.0])


def test_a_vanishing_spread_does_not_underflow():
    z = np.array([[0.0, 1e-170], [0.0, 1e-170]])  # variances 5e-341 are below the smallest double
    assert np.isfinite(interval(z)).all()
    tiny = interval(
        [[0.0, 1e-100], [0.0, 1e-100]]
    )  # squares of its variances underflow, it must not
    # Two equal variances of 2 seeds have 2 degrees of freedom: quantile 4.30265, centre 0.5e-100,
    # standard error sqrt(2 x 0.25e-200) / 2 = 0.35355e-100.
    assert tiny[1] == pytest.approx(100 * (0.5 + 4.30265 * math.sqrt(0.5) / 2) * 1e-100, rel=1e-5)


def test_a_run_without_a_score_widens_the_interval():
    whole = interval([[0.9, 1.0, 1.1]])
    failed = interval([[0.9, 1.0, 0.0]])
    assert failed[1] - failed[0] > whole[1] - whole[0]


def test_the_low_end_is_cut_where_no_score_lies():
    low, high = interval([[0.0, 1.0]])  # 50 +- 100 x 0.5 x 12.7062
    assert low == 0.0
    assert high == pytest.approx(685.31, abs=0.01)


def test_many_at_once_are_the_same_as_one_by_one():
    z = np.random.default_rng(1).random((4, 3, 5))
    np.testing.assert_allclose(interval(z), [interval(each) for each in z])


@pytest.mark.parametrize(
    "z", [[0.5, 0.5], np.zeros((0, 3)), np.zeros((3, 0)), [[0.1, math.nan]], [[0.1, -0.1]]]
)
def test_gaps_and_other_shapes_are_refused(z):
    for function in (score, interval, interquartile_mean):
        with pytest.raises(ValueError, match="z"):
            function(z)


def _coverage(z: np.ndarray, truth: float) -> float:
    """Share in percent of the intervals of z, (repetitions, environments, seeds), that hold it."""
    low, high = interval(z).T
    return 100 * float(np.mean((low <= 100 * truth) & (100 * truth <= high)))


REPETITIONS = 8000
"""The standard error of a coverage of 95 % is then 0.24 %."""


@pytest.mark.parametrize("seeds", range(2, 11))
@pytest.mark.parametrize("environments", range(1, 6))
def test_the_interval_covers_with_unequal_variances(environments, seeds):
    rng = np.random.default_rng(1000 * environments + seeds)
    mean = np.linspace(0.8, 1.6, environments)[:, None]
    spread = 0.02 * np.arange(1, environments + 1)[:, None]
    z = mean + spread * rng.standard_normal((REPETITIONS, environments, seeds))
    assert 93 < _coverage(z, float(mean.mean())) < 98


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("environments", [2, 5])
def test_the_interval_covers_where_one_environment_dominates(environments, seeds):
    rng = np.random.default_rng(1000 * environments + seeds)
    spread = 0.002 * 3.0 ** np.arange(environments)[:, None]
    z = 1 + spread * rng.standard_normal((REPETITIONS, environments, seeds))
    assert 93 < _coverage(z, 1.0) < 98


def test_with_two_seeds_and_equal_variances_the_interval_is_a_little_wide():
    # The one corner of normal z outside 93-98 %: 98.3 % (40,000 repetitions), on the safe side.
    rng = np.random.default_rng(2)
    z = 1 + 0.05 * rng.standard_normal((REPETITIONS, 5, 2))
    assert 97.5 < _coverage(z, 1.0) < 99


def test_failures_that_were_not_drawn_are_not_in_the_interval():
    # A limit that the interval's docstring and every report state: 76.4 % (40,000 repetitions).
    rng = np.random.default_rng(3)
    shape = (REPETITIONS, 3, 3)
    z = np.where(rng.random(shape) < 0.1, 0.0, 1 + 0.1 * rng.standard_normal(shape))
    assert 74 < _coverage(z, 0.9) < 79


matrices = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(float, shape, elements=st.floats(0, 10))
)


@given(z=matrices, data=st.data())
@settings(max_examples=100, deadline=None)
def test_failing_any_run_never_raises_a_score(z, data):
    failing = data.draw(arrays(bool, z.shape))
    assert score(np.where(failing, 0.0, z)) <= score(z) + 1e-9


@given(
    returns=arrays(float, (2, 3), elements=st.floats(-1e6, 1e6)),
    floor=st.floats(-1e5, 1e5),
    width=st.floats(1, 1e5),
    failing=arrays(bool, (2, 3)),
)
@settings(max_examples=100, deadline=None)
def test_failing_a_run_below_the_floor_gains_nothing_either(returns, floor, width, failing):
    whole = score(normalise(returns, floor, floor + width))
    failed = np.where(failing, np.nan, returns)
    assert score(normalise(failed, floor, floor + width)) <= whole * (1 + 1e-12)


@given(z=matrices)
@settings(max_examples=50, deadline=None)
def test_the_score_lies_in_its_interval(z):
    low, high = interval(z)
    if z.shape[1] > 1:
        assert low - 1e-9 <= score(z) <= high + 1e-9


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    # Of 8 runs, 2 at each end go: (0.2 + 0.3 + 0.4 + 0.5) / 4 = 0.35, whatever the extremes are.
    assert interquartile_mean([[0.0, 0.1, 0.2, 0.3], [0.4, 0.5, 6.0, 7.0]]) == pytest.approx(35.0)
    # Of 15, floor(15 / 4) = 3: 3 seeds of one environment given up leave the figure as it was.
    whole, given_up = np.ones((5, 3)), np.ones((5, 3))
    given_up[0] = 0.0
    assert interquartile_mean(given_up) == interquartile_mean(whole) == pytest.approx(100.0)
    assert score(given_up) == pytest.approx(80.0)


def test_rank_ranges_count_the_intervals_wholly_above_and_below():
    #            A 80-90   B 70-85   C 50-60   D 60-65   E 10-20
    intervals = [(80, 90), (70, 85), (50, 60), (60, 65), (10, 20)]
    # C and D touch at 60: overlap. E has four above.
    assert rank_ranges(intervals) == [(1, 2), (1, 2), (3, 4), (3, 4), (5, 5)]


def test_an_entry_without_an_interval_may_hold_any_rank_and_changes_no_other():
    assert rank_ranges([(80, 90), (math.nan, math.nan), (10, 20)]) == [(1, 2), (1, 3), (2, 3)]


def test_no_entries_have_no_ranks_and_other_shapes_are_refused():
    assert rank_ranges([]) == []
    with pytest.raises(ValueError, match="shape"):
        rank_ranges([(1, 2, 3)])
