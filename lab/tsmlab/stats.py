"""The statistics of a comparison, as pure functions on numpy arrays.

Each step from noisy numbers to an answer is small enough to be checked by hand, by scipy and by
simulation. No sample is dropped (outliers are flagged), and there is no verdict if the data do not
support one.

The design is a randomised complete block design: a round is a block in which every allocator runs
once. A candidate is compared with the reference through the log-ratio *within* each round, so
whatever slows a whole round (frequency, neighbours, drift) cancels. docs/design/lab.md has the
details. References:

  [BH]   Box, Hunter & Hunter, Statistics for Experimenters, 2nd ed., 2005, ch. 4 (blocking).
  [ET]   Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13 (percentile interval).
  [He]   Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician 69(4),
         2015, sec. 3.3 (the expanded percentile interval, for small samples).
  [Ho]   Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Stat. 6, 1979.
  [IH]   Iglewicz & Hoaglin, How to Detect and Handle Outliers, ASQC, 1993.
  [Se]   Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63, 1968.
  [We]   Welch, The Generalization of "Student's" Problem, Biometrika 34, 1947.
  [Kr]   Kruschke, Rejecting or Accepting Parameter Values in Bayesian Estimation, 2018 (the rule
         "decide only when the whole interval lies on one side of the margin").
  [Ash]  Ashman, Bird & Zepf, Detecting Bimodality in Astronomical Datasets, Astron. J. 108, 1994.
  [AS]   Abramowitz & Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 26.7.4.
"""

import bisect
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Key = TypeVar("Key")

CONFIDENCE = 0.95
# The chance of a verdict "better" or "worse" if there is no difference, at one look.
FALSE_VERDICT = 0.0025
RESAMPLES = 10_000
DEFAULT_MARGIN = 0.01

# [IH]: a sample whose modified z-score is beyond 3.5 is labelled a potential outlier.
OUTLIER_Z = 3.5
# The 0.75 quantile of the standard normal: makes the MAD comparable to a standard deviation.
MAD_TO_SIGMA = NormalDist().inv_cdf(0.75)
# E|X| / sigma of a normal variable; the scale that [IH] falls back on when the MAD is zero.
MEAN_DEVIATION_TO_SIGMA = math.sqrt(2.0 / math.pi)
# A resampled mean cannot leave the range of the data. So for n symmetric samples no bootstrap
# interval of the mean can cover more often than 1 - 2^(1-n) (93.75% at n = 5). Below this many
# rounds the interval is Student's, which has no such limit.
MIN_BOOTSTRAP_ROUNDS = 10
# Beyond this many rounds the mean is as good as normal, Student's interval agrees with the
# bootstrap's, and the resampling would take gigabytes.
MAX_BOOTSTRAP_ROUNDS = 500
# Beyond this, "about N more rounds" is not useful advice.
MAX_ROUNDS_ADVICE = 10_000
# With more degrees of freedom, Student's t is close enough to normal for this purpose.
NORMAL_DEGREES = 200
# Ashman's D of the best cut of a *single* mode is about 2.7 (normal) or 3.5 (uniform). From 20
# samples on, fewer than 1 in 100 normal, uniform, log-normal or exponential samples exceed 6
# (simulated in the tests).
BIMODAL_ASHMAN_D = 6.0
BIMODAL_MIN_SAMPLES = 20
BIMODAL_MIN_SHARE = 0.2


# --- one sample -----------------------------------------------------------------------------------


def as_vector(values: Sequence[float] | Vector) -> Vector:
    """A float vector; rejects NaN and infinities, which would silently poison every statistic."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"expected one dimension, got {vector.ndim}")
    if not np.all(np.isfinite(vector)):
        raise ValueError("samples must be finite numbers")
    return vector


def median(values: Sequence[float] | Vector) -> float:
    return float(np.median(as_vector(values)))


def median_absolute_deviation(values: Sequence[float] | Vector) -> float:
    vector = as_vector(values)
    return float(np.median(np.abs(vector - np.median(vector))))


def modified_z_scores(values: Sequence[float] | Vector) -> Vector:
    """[IH] robust z-scores. If over half the samples are equal, the MAD is 0 and the mean absolute
    deviation replaces it; if that is 0 too (all equal), every score is 0."""
    vector = as_vector(values)
    deviations = vector - np.median(vector)
    mad = float(np.median(np.abs(deviations)))
    if mad > 0.0:
        return MAD_TO_SIGMA * deviations / mad
    mean_deviation = float(np.mean(np.abs(deviations)))
    if mean_deviation > 0.0:
        return MEAN_DEVIATION_TO_SIGMA * deviations / mean_deviation
    return np.zeros_like(vector)


def outlier_flags(values: Sequence[float] | Vector) -> npt.NDArray[np.bool_]:
    """True for samples that look unlike the others. Only a flag: every statistic includes them."""
    return np.abs(modified_z_scores(values)) > OUTLIER_Z


def looks_bimodal(values: Sequence[float] | Vector) -> bool:
    """A hint that runs fall into two groups: the cut that minimises the spread within both halves
    (exact two-means in one dimension) leaves two sizeable groups far apart by [Ash]'s D."""
    vector = np.sort(as_vector(values))
    count = len(vector)
    if count < BIMODAL_MIN_SAMPLES or vector[0] == vector[-1]:
        return False
    smallest = max(2, math.ceil(BIMODAL_MIN_SHARE * count))
    spreads = {
        cut: float(np.var(vector[:cut]) * cut + np.var(vector[cut:]) * (count - cut))
        for cut in range(smallest, count - smallest + 1)
    }
    cut = min(spreads, key=spreads.__getitem__)
    distance = float(np.mean(vector[cut:]) - np.mean(vector[:cut]))
    within = math.sqrt(float(np.var(vector[:cut], ddof=1) + np.var(vector[cut:], ddof=1)))
    return distance > 0.0 and math.sqrt(2.0) * distance > BIMODAL_ASHMAN_D * within


# --- Student's t for whole degrees of freedom -----------------------------------------------------


def student_two_sided_p(t: float, degrees: int) -> float:
    """P(|T| >= |t|), by the finite series of [AS] 26.7.3/4: exact for whole degrees of freedom, so
    the lab needs no scipy at run time."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if math.isinf(t):
        return 0.0
    theta = math.atan(abs(t) / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees % 2 == 1:
        total, term = 0.0, cosine
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2.0 / math.pi * (theta + sine * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = sine * total
    return min(1.0, max(0.0, 1.0 - inside))


@lru_cache(maxsize=1024)
def student_critical(alpha: float, degrees: int) -> float:
    """The t with P(|T| >= t) = alpha, by bisection: cheap, monotone and exact enough (1e-10)."""
    if not 0.0 < alpha < 1.0:
        raise ValueError("alpha must lie strictly between 0 and 1")
    low, high = 0.0, 2.0
    while student_two_sided_p(high, degrees) > alpha:
        high *= 2.0
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2.0
        if student_two_sided_p(middle, degrees) > alpha:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


# --- paired ratios --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatioEstimate:
    """A geometric-mean ratio with its confidence interval; low and high are None for one pair,
    which has no spread to judge by. p_value: two-sided paired t-test of "the ratio is 1"."""

    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    pairs: int
    method: Literal["none", "student", "bootstrap"]

    @property
    def inverse(self) -> "RatioEstimate":
        low, high = (None if each is None else 1.0 / each for each in (self.high, self.low))
        return replace(self, ratio=1.0 / self.ratio, low=low, high=high)


@lru_cache(maxsize=2)
def _resampling_weights(count: int, seed: int) -> Vector:
    """Row b says how often each round was drawn in resample b, as shares that sum to 1. The same
    draws are used for every allocator: the *rounds* are resampled, as the design requires."""
    generator = np.random.default_rng([seed, count])
    counts = generator.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
    return np.asarray(counts / count, dtype=np.float64)


def bootstrap_mean_interval(values: Sequence[float] | Vector, seed: int = 0) -> tuple[float, float]:
    """The expanded percentile interval [He] of the mean. The percentile interval [ET] of n samples
    is too narrow by sqrt((n-1)/n) and uses normal instead of t quantiles; using wider percentiles
    corrects both."""
    vector = as_vector(values)
    count = len(vector)
    if count < 2:
        raise ValueError("an interval needs at least two samples")
    if vector.min() == vector.max():
        return float(vector[0]), float(vector[0])
    critical = student_critical(1.0 - CONFIDENCE, count - 1)
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * critical)
    means = _resampling_weights(count, seed) @ vector
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def student_mean_interval(values: Sequence[float] | Vector) -> tuple[float, float]:
    center, error, degrees = _mean_and_error(values)
    half = student_critical(1.0 - CONFIDENCE, degrees) * error
    return center - half, center + half


def _mean_and_error(values: Sequence[float] | Vector) -> tuple[float, float, int]:
    """The mean, its standard error, and the degrees of freedom of that."""
    vector = as_vector(values)
    count = len(vector)
    if count < 2:
        raise ValueError("a spread needs at least two samples")
    return float(np.mean(vector)), float(np.std(vector, ddof=1) / math.sqrt(count)), count - 1


def mean_interval(
    vector: Vector, seed: int = 0
) -> tuple[Literal["student", "bootstrap"], float, float]:
    """The interval of the mean of at least two samples, by the appropriate method for their
    number."""
    if MIN_BOOTSTRAP_ROUNDS <= len(vector) <= MAX_BOOTSTRAP_ROUNDS:
        return "bootstrap", *bootstrap_mean_interval(vector, seed=seed)
    return "student", *student_mean_interval(vector)


def mean_is_zero_p(values: Sequence[float] | Vector) -> float:
    """Two-sided one-sample t-test of "the mean is 0"; on log-ratios this is the paired test. A
    sign-flip test would assume less, but its smallest p is 2^(1-n): with 5 rounds and 22 candidates
    not even a factor of ten could pass Holm's correction."""
    center, error, degrees = _mean_and_error(values)
    # A spread that is only the mean's rounding error counts as none.
    if error <= 1e-15 * abs(center):
        return 1.0 if center == 0.0 else 0.0
    return student_two_sided_p(center / error, degrees)


def estimate_ratio(log_ratios: Sequence[float] | Vector, seed: int = 0) -> RatioEstimate:
    """The geometric-mean ratio of paired log-ratios, one per round."""
    vector = as_vector(log_ratios)
    count = len(vector)
    if count == 0:
        raise ValueError("no pairs to estimate a ratio from")
    ratio = math.exp(float(np.mean(vector)))
    if count == 1:
        return RatioEstimate(ratio, None, None, None, 1, "none")
    method, low, high = mean_interval(vector, seed)
    return RatioEstimate(
        ratio, math.exp(low), math.exp(high), mean_is_zero_p(vector), count, method
    )


def unpaired_ratio(
    candidate: Sequence[float] | Vector, baseline: Sequence[float] | Vector
) -> RatioEstimate:
    """The ratio of two geometric means from logarithms without common rounds, with Welch's interval
    [We]: each side has its own spread."""
    one, other = as_vector(candidate), as_vector(baseline)
    center = float(np.mean(one) - np.mean(other))
    pairs = min(len(one), len(other))
    if pairs < 2:
        return RatioEstimate(math.exp(center), None, None, None, pairs, "none")
    return _welch(center, (one, other), 1.0, pairs)


def stratified_ratio(strata: Sequence[Sequence[float] | Vector], seed: int = 0) -> RatioEstimate:
    """Paired log-ratios from several kinds of machine: each kind has the same weight, however many
    rounds it made, and its own spread. For one kind, the same as estimate_ratio; a kind with one
    round has no spread, and then there is no interval."""
    groups = [as_vector(group) for group in strata if len(group)]
    if len(groups) == 1:
        return estimate_ratio(groups[0], seed)
    pairs = sum(map(len, groups))
    center = float(np.mean([np.mean(group) for group in groups]))
    if not groups or min(map(len, groups)) < 2:
        return RatioEstimate(math.exp(center), None, None, None, pairs, "none")
    return _welch(center, groups, 1.0 / len(groups), pairs)


def _welch(center: float, groups: Sequence[Vector], weight: float, pairs: int) -> RatioEstimate:
    """[We]'s interval of a sum of means, each with this weight. Degrees of freedom are rounded
    down."""
    parts = [weight**2 * float(np.var(each, ddof=1)) / len(each) for each in groups]
    error = math.sqrt(sum(parts))
    if error <= 1e-15 * max(1.0, abs(center)):
        ratio = math.exp(center)
        return RatioEstimate(ratio, ratio, ratio, 1.0 if center == 0.0 else 0.0, pairs, "student")
    squares = sum(p**2 / (len(e) - 1) for p, e in zip(parts, groups, strict=True))
    degrees = max(1, int(sum(parts) ** 2 / squares))
    half = student_critical(1.0 - CONFIDENCE, degrees) * error
    return RatioEstimate(
        math.exp(center),
        math.exp(center - half),
        math.exp(center + half),
        student_two_sided_p(center / error, degrees),
        pairs,
        "student",
    )


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """[Ho] adjusted p-values: those below alpha may all be called significant. The chance of even
    one false positive is at most alpha, however the tests depend on each other."""
    count = len(p_values)
    adjusted = [0.0] * count
    running = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def holm_by_key(p_values: Mapping[Key, float | None]) -> dict[Key, float]:
    """The same for p-values by key; None represents a test that was not made."""
    tested = {key: p for key, p in p_values.items() if p is not None}
    return dict(zip(tested, holm_adjust(list(tested.values())), strict=True))


def noise_floor(control: RatioEstimate) -> float | None:
    """The A/A control: the reference does not differ from itself, so the largest difference in its
    interval is what this machine cannot distinguish from none at the moment. A relative difference
    (0.007 = 0.7%)."""
    if control.low is None or control.high is None:
        return None
    return max(control.high, 1.0 / control.low) - 1.0


# --- the verdict ----------------------------------------------------------------------------------


class Verdict(enum.StrEnum):
    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Judgement:
    """rounds_more: about how many more rounds would resolve it; None if resolved, if a single pair
    gives nothing to extrapolate from, or if not even MAX_ROUNDS_ADVICE would do."""

    verdict: Verdict
    rounds_more: int | None = None


def judge(
    estimate: RatioEstimate,
    margin: float = DEFAULT_MARGIN,
    p_adjusted: float | None = None,
    comparisons: int = 1,
    floor: float | None = None,
    higher_is_better: bool = False,
) -> Judgement:
    """Three-way verdict by [Kr]'s rule, on the log scale where "1% more" and "1% less" are mirror
    images. Better or worse: the whole interval lies beyond the margin, p (Holm's adjusted one, if
    given) is below FALSE_VERDICT, and the ratio exceeds the A/A noise floor. Equal: the whole
    interval lies within the margin. Anything else is unresolved, with the rounds that would help
    (widths shrink as 1/sqrt(n)). Equal is not corrected: it already takes two one-sided tests at
    2.5% each."""
    if margin <= 0.0:
        raise ValueError("the margin must be positive")
    if estimate.low is None or estimate.high is None:
        return Judgement(Verdict.UNRESOLVED)
    limit = math.log1p(margin)
    center, low, high = (math.log(x) for x in (estimate.ratio, estimate.low, estimate.high))
    if -limit < low and high < limit:
        return Judgement(Verdict.EQUAL)
    p_value = estimate.p_value if p_adjusted is None else p_adjusted
    significant = p_value is None or p_value < FALSE_VERDICT
    exceeds_noise = floor is None or abs(center) > math.log1p(floor)
    if significant and exceeds_noise and (low > limit or high < -limit):
        more = high < -limit if not higher_is_better else low > limit
        return Judgement(Verdict.BETTER if more else Verdict.WORSE)
    half = center - low if center > 0.0 else high - center
    alpha = FALSE_VERDICT / max(1, comparisons)
    return Judgement(
        Verdict.UNRESOLVED, _rounds_more(estimate, abs(center), half, limit, alpha, floor)
    )


def _rounds_more(
    estimate: RatioEstimate,
    distance: float,
    half_width: float,
    limit: float,
    alpha: float,
    floor: float | None,
) -> int | None:
    """How many rounds until the last condition for a verdict holds, if the centre stays. alpha is
    Holm's harshest level: right for the last to be resolved, cautious for the others."""
    needed = rounds_until(estimate.pairs, half_width, abs(distance - limit))
    if distance > limit:
        needed = max(needed, rounds_until(estimate.pairs, half_width, distance, alpha))
        if floor is not None:
            needed = max(needed, estimate.pairs * (math.log1p(floor) / distance) ** 2)
    if needed > MAX_ROUNDS_ADVICE:
        return None
    return max(1, math.ceil(needed - estimate.pairs))


def rounds_until(
    pairs: int, half_width: float, reach: float, alpha: float = 1.0 - CONFIDENCE
) -> float:
    """The smallest number of rounds in which Student's interval, at 1 - alpha, is no wider than
    this to each side, if the spread stays; `half_width` is its current reach, in `pairs` rounds, at
    CONFIDENCE. Infinity beyond about MAX_ROUNDS_ADVICE."""
    if reach <= 0.0:
        return math.inf
    spread = half_width * math.sqrt(pairs) / student_critical(1.0 - CONFIDENCE, pairs - 1)

    def suffices(rounds: int) -> bool:
        degrees = min(rounds - 1, NORMAL_DEGREES)
        return student_critical(alpha, degrees) * spread <= reach * math.sqrt(rounds)

    rounds = range(2, 2 * MAX_ROUNDS_ADVICE)
    found = bisect.bisect_left(rounds, True, key=suffices)
    return float(rounds[found]) if found < len(rounds) else math.inf


# --- changes over the rounds ----------------------------------------------------------------------


def round_effects(log_values: npt.NDArray[np.float64]) -> Vector:
    """How much slower each round was than usual, over all allocators: rows are allocators, columns
    rounds, NaN where a run failed. Each row is centred on its own median, then the median over
    the rows is taken, so that one odd allocator does not look like an odd round."""
    if log_values.ndim != 2 or log_values.size == 0:
        raise ValueError("expected a non-empty table of allocators by rounds")
    centred = log_values - np.nanmedian(log_values, axis=1, keepdims=True)
    return np.asarray(np.nanmedian(centred, axis=0), dtype=np.float64)


def first_round_effect(effects: Sequence[float] | Vector) -> float | None:
    """The first round's effect if it is an outlier among the rounds (a warm-up too short)."""
    vector = as_vector(effects)
    if len(vector) < 5:
        return None
    rest = vector[1:]
    center = float(np.median(rest))
    sigma = float(np.median(np.abs(rest - center))) / MAD_TO_SIGMA
    effect = float(vector[0]) - center
    return effect if abs(effect) > OUTLIER_Z * sigma else None


@dataclass(frozen=True)
class Trend:
    """Slope per step with its confidence interval."""

    slope: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


def theil_sen(values: Sequence[float] | Vector, inflation: float = 1.0) -> Trend | None:
    """The median of all pairwise slopes, and [Se]'s interval from the distribution of Kendall's S
    (normal approximation, corrected for ties in the values). inflation: a factor for the variance,
    if neighbours are correlated. None below 5 samples."""
    vector = as_vector(values)
    count = len(vector)
    if count < 5:
        return None
    first, second = np.triu_indices(count, k=1)
    slopes = np.sort((vector[second] - vector[first]) / (second - first))
    _, ties = np.unique(vector, return_counts=True)
    variance = float(count * (count - 1) * (2 * count + 5))
    variance -= float(np.sum(ties * (ties - 1) * (2 * ties + 5)))
    deviation = math.sqrt(max(0.0, inflation * variance / 18.0))
    spread = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0) * deviation
    pairs = len(slopes)
    lower = max(0, round((pairs - spread) / 2.0) - 1)
    upper = min(pairs - 1, round((pairs + spread) / 2.0))
    return Trend(float(np.median(slopes)), float(slopes[lower]), float(slopes[upper]))
