"""Statistics that experiments need beside those of a comparison, as pure functions on numbers.

Why: a sweep asks for more than a ratio: a median with its interval from few runs, an exponent, a
share between 0 and 1, how alike two rankings are. Each is small enough to be checked by scipy or by
simulation (lab/tests/test_experiment_estimates.py).

References beside those of stats.py:
  [Co] Conover, Practical Nonparametric Statistics, 3rd ed., 1999, sec. 3.2 (an interval for a
       quantile) and 5.4 (Kendall's tau-b).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tsmlab import stats
from tsmlab.experiments.model import Estimate, IntervalMethod
from tsmlab.stats import RatioEstimate, Vector

# By round.
Logs = dict[int, float]


@dataclass(frozen=True)
class Interval:
    """low and high are None where the method is "none"."""

    low: float | None
    high: float | None
    method: IntervalMethod


NO_INTERVAL = Interval(None, None, "none")


def median_interval(values: Sequence[float]) -> Interval:
    """95 % confidence interval of a median [Co]: the k-th smallest and the k-th largest value, for
    the largest k whose chance to miss the median is at most 5 %; no distribution is assumed. Below
    six values there is no such k, and the interval is Student's on logarithms (exact where they
    are normal), which needs two positive values."""
    ordered = sorted(values)
    count = len(ordered)
    rank = order_rank(count)
    if rank > 0:
        return Interval(ordered[rank - 1], ordered[count - rank], "order")
    if count < 2 or ordered[0] <= 0.0:
        return NO_INTERVAL
    if ordered[0] == ordered[-1]:
        return Interval(ordered[0], ordered[0], "student")
    low, high = stats.student_mean_interval([math.log(value) for value in ordered])
    try:
        # Student's interval is the geometric mean's; the median always lies within the runs.
        middle = stats.median(ordered)
        return Interval(min(math.exp(low), middle), max(math.exp(high), middle), "student")
    except OverflowError:
        return NO_INTERVAL


def order_rank(count: int, confidence: float = stats.CONFIDENCE) -> int:
    """The largest k for which the k-th smallest and the k-th largest of `count` values hold the
    median with the confidence; 0 where not even the whole range does."""
    rank, missed = 0, 0.0
    while rank < count // 2:
        missed += math.comb(count, rank) / 2**count
        if missed > (1.0 - confidence) / 2.0:
            break
        rank += 1
    return rank


def mean_estimate(values: Sequence[float] | Vector) -> Estimate:
    """A mean over rounds with its interval: Student's for few rounds, else the bootstrap's, as in
    stats.estimate_ratio."""
    vector = stats.as_vector(values)
    center = float(np.mean(vector))
    if len(vector) < 2:
        return Estimate(center, None, None)
    _, low, high = stats.mean_interval(vector)
    return Estimate(center, low, high)


def ratio_of(logs: Mapping[int, float]) -> RatioEstimate | None:
    """The geometric mean ratio with its interval; None without rounds or beyond all numbers."""
    if not logs:
        return None
    try:
        ratio = stats.estimate_ratio(list(logs.values()))
    except OverflowError:
        return None
    # Where exp() is 0, the ratio has no logarithm and no inverse.
    return None if 0.0 in (ratio.ratio, ratio.low, ratio.high) else ratio


def as_estimate(ratio: RatioEstimate) -> Estimate:
    return Estimate(ratio.ratio, ratio.low, ratio.high)


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x by least squares; `misfit` is the sum of squared residuals."""

    slope: float
    intercept: float
    misfit: float


def fit_line(x: Vector, y: Vector) -> Line:
    """Needs two different x."""
    spread = x - float(np.mean(x))
    slope = float(spread @ y) / float(spread @ spread)
    intercept = float(np.mean(y)) - slope * float(np.mean(x))
    residuals = y - intercept - slope * x
    return Line(slope, intercept, float(residuals @ residuals))


def slope_estimate(x: Vector, y: Vector) -> Estimate:
    """The slope with Student's interval from the scatter of the points around the line."""
    line = fit_line(x, y)
    degrees = len(x) - 2
    if degrees < 1:
        return Estimate(line.slope, None, None)
    spread = x - float(np.mean(x))
    error = math.sqrt(line.misfit / degrees / float(spread @ spread))
    half = stats.student_critical(1.0 - stats.CONFIDENCE, degrees) * error
    return Estimate(line.slope, line.slope - half, line.slope + half)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Tau-b [Co]: 1 for the same order, -1 for the opposite one; None where one of them has no
    order at all, since all its values are equal."""
    count = len(first)
    upper = np.triu_indices(count, k=1)
    signs = [
        np.sign(np.subtract.outer(np.asarray(values), np.asarray(values)))[upper]
        for values in (first, second)
    ]
    weight = math.sqrt(float(signs[0] @ signs[0]) * float(signs[1] @ signs[1])) if count > 1 else 0
    return float(signs[0] @ signs[1]) / weight if weight > 0 else None


def complete_rounds(
    columns: Sequence[Mapping[int, float]],
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """The rounds that every column has, and their values: rows are rounds, columns as given."""
    common = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    table = np.array([[column[number] for column in columns] for number in common])
    return common, table.reshape(len(common), len(columns))
