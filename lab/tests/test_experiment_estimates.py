"""Intervals of medians, slopes and rankings: scipy as the oracle, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from tsmlab.experiments import estimates
from tsmlab.experiments.estimates import Interval
from tsmlab.experiments.model import Estimate

VALUES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40)


@pytest.mark.parametrize("count", range(1, 60))
def test_the_rank_is_the_binomial_distributions(count: int) -> None:
    """The k-th smallest and the k-th largest miss the median if fewer than k lie on one side."""
    rank = estimates.order_rank(count)
    assert 2.0 * scipy.stats.binom.cdf(rank - 1, count, 0.5) <= 0.05
    assert 2.0 * scipy.stats.binom.cdf(rank, count, 0.5) > 0.05


def test_six_values_are_the_first_with_an_exact_interval() -> None:
    assert estimates.median_interval([3.0, 1.0, 2.0, 5.0, 4.0]).method == "student"
    found = estimates.median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    assert found == Interval(1.0, 6.0, "order")


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 1.0], [-1.0, 1.0, 2.0]])
def test_what_gives_no_interval(values: list[float]) -> None:
    assert estimates.median_interval(values) == estimates.NO_INTERVAL


def test_students_interval_of_few_values_is_scipys_on_their_logarithms() -> None:
    values = [1.0, 1.2, 0.9, 1.1]
    logs = np.log(values)
    low, high = scipy.stats.t.interval(0.95, 3, logs.mean(), scipy.stats.sem(logs))
    found = estimates.median_interval(values)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))


@given(VALUES)
def test_the_interval_holds_the_median_of_its_sample(values: list[float]) -> None:
    found = estimates.median_interval(values)
    if found.low is not None and found.high is not None:
        assert found.low <= float(np.median(values)) * (1.0 + 1e-12)
        assert found.high >= float(np.median(values)) * (1.0 - 1e-12)


@pytest.mark.parametrize("count", [3, 5, 6, 9, 20])
def test_the_interval_of_a_median_covers_it(count: int) -> None:
    generator = np.random.default_rng(count)
    hits = 0
    for _ in range(400):
        found = estimates.median_interval(list(generator.lognormal(0.0, 0.1, count)))
        hits += found.low <= 1.0 <= found.high
    assert hits >= 0.92 * 400


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12))
def test_kendalls_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    first, second = ([float(x) for x in column] for column in zip(*pairs, strict=True))
    found = estimates.kendall_tau(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(scipy.stats.kendalltau(first, second).statistic)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_one_alone_has_no_order(values: list[float]) -> None:
    assert estimates.kendall_tau(values, values) is None


@given(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=12))
def test_the_slope_is_scipys(y: list[float]) -> None:
    assume(max(y) - min(y) > 1e-3)
    x = np.log(np.arange(1.0, len(y) + 1.0))
    expected = scipy.stats.linregress(x, y)
    found = estimates.slope_estimate(x, np.array(y))
    assert found.value == pytest.approx(expected.slope, abs=1e-9)
    half = scipy.stats.t.isf(0.025, len(y) - 2) * expected.stderr
    assert found.low is not None
    assert found.low == pytest.approx(expected.slope - half, abs=1e-6)


def test_few_points_have_estimates_without_intervals() -> None:
    found = estimates.slope_estimate(np.array([0.0, 2.0]), np.array([1.0, 5.0]))
    assert found == Estimate(2.0, None, None)
    assert estimates.ratio_of({1: 1000.0, 2: 1000.0}) is None
    assert estimates.ratio_of({1: -1000.0, 2: -1000.0}) is None
    assert estimates.ratio_of({1: -1381.0}) is None
    assert estimates.ratio_of({1: -400.0, 2: -1000.0}) is None
    assert estimates.ratio_of({}) is None


def test_only_complete_rounds_are_rows() -> None:
    common, table = estimates.complete_rounds([{1: 1.0, 2: 2.0, 3: 3.0}, {3: 6.0, 2: 4.0}])
    assert common == [2, 3]
    assert table.tolist() == [[2.0, 4.0], [3.0, 6.0]]
    assert estimates.complete_rounds([])[0] == []
    assert estimates.complete_rounds([{1: 1.0}, {2: 1.0}])[1].shape == (0, 2)
