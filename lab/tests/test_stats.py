"""Known answers, scipy as the oracle, invariances that must hold for any data, and simulations."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tsmlab import stats
from tsmlab.stats import Judgement, RatioEstimate, Verdict

LOGS = st.lists(st.floats(-2.0, 2.0), min_size=2, max_size=25)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_mad_is_scipys(sample):
    expected = scipy.stats.median_abs_deviation(sample)
    assert stats.median_absolute_deviation(sample) == pytest.approx(expected)


def test_an_outlier_is_flagged_even_where_the_mad_is_zero():
    assert stats.outlier_flags([5.0] * 9 + [6.0]).tolist() == [False] * 9 + [True]
    assert not stats.outlier_flags([5.0] * 10).any()
    # Median 3, MAD 1: the score of 10 is 0.6745 * 7.
    scores = stats.modified_z_scores([2.0, 3.0, 4.0, 3.0, 10.0, 2.0, 4.0])
    assert scores[4] == pytest.approx(0.6745 * 7.0, rel=1e-4)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            stats.median([bad, 1.0])


@pytest.mark.parametrize("count", [20, 60])
@pytest.mark.parametrize(
    ("distribution", "parameters"),
    [("normal", ()), ("uniform", ()), ("lognormal", (0.0, 0.5)), ("exponential", ())],
)
def test_single_modes_are_rarely_called_bimodal(count, distribution, parameters):
    draw = getattr(np.random.default_rng(count), distribution)
    assert sum(stats.looks_bimodal(draw(*parameters, size=count)) for _ in range(250)) <= 6


def test_two_separate_modes_are_called_bimodal_and_a_few_outliers_are_not():
    normal = np.random.default_rng(3).normal
    modes = np.concatenate([normal(1.2, 0.01, 18), normal(1.0, 0.01, 12)])
    assert stats.looks_bimodal(modes)
    assert not stats.looks_bimodal(np.concatenate([normal(1.0, 0.01, 30), [2.0, 2.1]]))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 50, 100, 299])
def test_student_p_and_critical_value_are_scipys(degrees):
    for t in (0.0, 0.1, 1.0, 2.5, 7.0, 30.0):
        expected = 2.0 * scipy.stats.t.sf(t, degrees)
        assert stats.student_two_sided_p(t, degrees) == pytest.approx(expected, abs=1e-12)
        assert stats.student_two_sided_p(-t, degrees) == stats.student_two_sided_p(t, degrees)
    for alpha in (0.5, 0.05, 0.05 / 22):
        expected = scipy.stats.t.isf(alpha / 2.0, degrees)
        assert stats.student_critical(alpha, degrees) == pytest.approx(expected, rel=1e-8)


@given(LOGS)
def test_the_student_interval_and_p_are_scipys(logs):
    if np.ptp(logs) < 1e-6:
        return
    low, high = stats.student_mean_interval(logs)
    test = scipy.stats.ttest_1samp(logs, 0.0)
    expected = test.confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)
    assert stats.mean_is_zero_p(logs) == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)


def test_the_bootstrap_interval_is_scipys_at_the_expanded_level():
    sample = np.random.default_rng(5).lognormal(0.0, 0.4, 20)
    critical = scipy.stats.t.isf(0.025, 19)
    level = 1.0 - 2.0 * scipy.stats.norm.cdf(-math.sqrt(20 / 19) * critical)
    expected = scipy.stats.bootstrap(
        (sample,), np.mean, confidence_level=level, method="percentile", n_resamples=10_000, rng=6
    ).confidence_interval
    width = expected.high - expected.low
    got = stats.bootstrap_mean_interval(sample)
    assert got == pytest.approx((expected.low, expected.high), abs=0.05 * width)


def test_the_bootstrap_repeats_itself_with_its_seed():
    def interval(seed):
        return stats.bootstrap_mean_interval(list(range(15)), seed=seed)

    assert interval(3) == interval(3) != interval(4)


def test_the_method_changes_with_the_number_of_rounds():
    least, most = stats.MIN_BOOTSTRAP_ROUNDS, stats.MAX_BOOTSTRAP_ROUNDS
    logs = np.random.default_rng(1).normal(0.1, 0.02, most + 1)
    methods = {n: stats.estimate_ratio(logs[:n]).method for n in (least - 1, least, most, most + 1)}
    assert list(methods.values()) == ["student", "bootstrap", "bootstrap", "student"]


def test_ratios_of_identical_pairs_and_of_one():
    for count in (4, 20):
        estimate = stats.estimate_ratio([math.log(2.0)] * count)
        assert (estimate.low, estimate.high) == pytest.approx((2.0, 2.0))
        assert estimate.p_value == 0.0
        assert stats.estimate_ratio([0.0] * count).p_value == 1.0
    assert stats.estimate_ratio([math.log(2.0), math.log(8.0)]).ratio == pytest.approx(4.0)
    estimate = stats.estimate_ratio([math.log(0.5)])
    assert estimate == RatioEstimate(estimate.ratio, None, None, None, 1, "none")
    assert estimate.ratio == pytest.approx(0.5)
    assert stats.judge(estimate) == Judgement(Verdict.UNRESOLVED, None)
    with pytest.raises(ValueError, match="no pairs"):
        stats.estimate_ratio([])


@pytest.mark.parametrize("rounds", [5, 8, 12, 30])
def test_the_interval_covers_the_truth_as_often_as_it_claims(rounds):
    generator = np.random.default_rng(100 + rounds)
    hits = 0
    for _ in range(600):
        estimate = stats.estimate_ratio(generator.normal(0.05, 0.02, rounds))
        hits += estimate.low <= math.exp(0.05) <= estimate.high
    assert 0.925 <= hits / 600 <= 0.975


def test_holm_agrees_with_a_calculation_by_hand():
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert stats.holm_adjust([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm_adjust([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p_values):
    adjusted = stats.holm_adjust(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, p * len(p_values)) + 1e-15
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert [q for _, q in pairs] == sorted(adjusted)


def test_twenty_two_equal_allocators_seldom_have_a_winner():
    """The family-wise error rate, without the help of a margin: of A/A comparisons with 22
    candidates, hardly any calls even one of them better or worse."""
    generator = np.random.default_rng(9)
    wrong, trials = 0, 200
    for _ in range(trials):
        logs = generator.normal(0.0, 0.02, (23, 7))
        estimates = [stats.estimate_ratio(candidate - logs[0]) for candidate in logs[1:]]
        adjusted = stats.holm_adjust([e.p_value or 0.0 for e in estimates])
        verdicts = {
            stats.judge(estimate, margin=1e-9, p_adjusted=p, comparisons=22).verdict
            for estimate, p in zip(estimates, adjusted, strict=True)
        }
        wrong += bool(verdicts & {Verdict.BETTER, Verdict.WORSE})
    assert wrong / trials <= 0.01


def estimate_of(low, center, high, pairs=10):
    return RatioEstimate(center, low, high, 0.001, pairs, "bootstrap")


@pytest.mark.parametrize(
    ("low", "center", "high", "verdict", "if_higher_is_better"),
    [
        (0.80, 0.85, 0.90, Verdict.BETTER, Verdict.WORSE),
        (1.10, 1.15, 1.20, Verdict.WORSE, Verdict.BETTER),
        (0.995, 1.0, 1.005, Verdict.EQUAL, Verdict.EQUAL),
        # Not zero, but perhaps within the margin.
        (0.97, 0.985, 0.995, Verdict.UNRESOLVED, Verdict.UNRESOLVED),
        (0.95, 1.00, 1.05, Verdict.UNRESOLVED, Verdict.UNRESOLVED),
        (0.90, 1.05, 1.20, Verdict.UNRESOLVED, Verdict.UNRESOLVED),
    ],
)
def test_the_verdict_needs_the_whole_interval_on_one_side(
    low, center, high, verdict, if_higher_is_better
):
    estimate = estimate_of(low, center, high)
    assert stats.judge(estimate).verdict is verdict
    assert stats.judge(estimate, higher_is_better=True).verdict is if_higher_is_better


def test_what_neither_correction_nor_noise_floor_confirms_is_unresolved():
    clear, near = estimate_of(0.80, 0.85, 0.90), estimate_of(0.93, 0.95, 0.97)
    for estimate, how, verdict in (
        (clear, {"p_adjusted": 0.003}, Verdict.UNRESOLVED),
        (clear, {"p_adjusted": 0.002}, Verdict.BETTER),
        (near, {"floor": 0.10}, Verdict.UNRESOLVED),
        (near, {"floor": 0.02}, Verdict.BETTER),
    ):
        assert stats.judge(estimate, **how).verdict is verdict


@given(st.integers(2, 30), st.floats(0.1, 3.0), st.sampled_from([0.05, 0.0025, 1e-4]))
def test_the_advice_is_the_least_number_that_suffices(pairs, reach, alpha):
    rounds = int(stats.rounds_until(pairs, 1.0, reach, alpha))
    spread = math.sqrt(pairs) / scipy.stats.t.ppf(0.975, pairs - 1)

    def surplus(count):
        quantile = scipy.stats.t.ppf(1 - alpha / 2, min(count - 1, stats.NORMAL_DEGREES))
        return reach * math.sqrt(count) / (spread * quantile)

    assert surplus(rounds) > 1 - 1e-9
    assert rounds == 2 or surplus(rounds - 1) < 1 + 1e-9


def test_margins_must_be_positive_and_hopeless_cases_get_no_number():
    at_the_margin = math.log(1.01) + 1e-6
    estimate = estimate_of(math.exp(-0.05), math.exp(at_the_margin), math.exp(0.07))
    assert stats.judge(estimate) == Judgement(Verdict.UNRESOLVED, None)
    with pytest.raises(ValueError, match="margin"):
        stats.judge(estimate_of(0.8, 0.9, 0.95), margin=0.0)


def test_the_noise_floor_is_the_farther_end_of_the_control():
    assert stats.noise_floor(estimate_of(0.99, 1.0, 1.02)) == pytest.approx(0.02)
    assert stats.noise_floor(estimate_of(0.95, 1.0, 1.02)) == pytest.approx(1 / 0.95 - 1)
    assert stats.noise_floor(stats.estimate_ratio([0.1])) is None


def test_round_effects_are_what_all_share_and_the_first_one_is_told():
    effects = np.array([0.3, 0.0, 0.0, -0.1, 0.0])
    speeds = np.array([[1.0], [5.0], [2.0]])
    assert stats.round_effects(speeds + effects) == pytest.approx(effects)
    failed = np.array([[0.5, 0.0, 0.0, 0.0], [0.5, 0.0, np.nan, 0.0]])
    assert stats.round_effects(failed)[0] == pytest.approx(0.5)
    rest = np.random.default_rng(2).normal(0.0, 0.01, 12)
    assert stats.first_round_effect([0.2, *rest]) == pytest.approx(0.2, abs=0.02)
    assert stats.first_round_effect(rest) is None
    assert stats.first_round_effect([0.2, 0.0, 0.0]) is None  # too few to tell


@given(st.lists(st.floats(-10.0, 10.0), min_size=5, max_size=30))
def test_theil_sen_is_scipys(values):
    trend = stats.theil_sen(values)
    expected = scipy.stats.theilslopes(values, alpha=0.95)
    assert trend.slope == pytest.approx(expected.slope, abs=1e-9)
    assert trend.low == pytest.approx(expected.low_slope, abs=1e-9)
    assert trend.high == pytest.approx(expected.high_slope, abs=1e-9)


def test_drift_is_found_and_noise_seldom_taken_for_it():
    generator = np.random.default_rng(8)
    drifting = stats.theil_sen(generator.normal(0.0, 0.01, 20) + 0.01 * np.arange(20))
    assert drifting.significant
    assert drifting.slope == pytest.approx(0.01, abs=0.002)
    steady = [stats.theil_sen(generator.normal(0.0, 0.01, 20)) for _ in range(200)]
    assert sum(trend is not None and trend.significant for trend in steady) <= 20
    assert stats.theil_sen([1.0, 2.0, 3.0]) is None
