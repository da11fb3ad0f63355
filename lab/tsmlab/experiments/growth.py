"""How does a metric grow with a parameter, and is that what was expected?

Why: "every search is linear, so the whole is superlinear" (report E) is a claim about an exponent.
An exponent can be measured, with an interval, and confirmed or refuted.
Refuses to: call a curve a power law because a line was drawn through it. Where the exponents at
the two ends of the sweep differ, they are told; and logarithmic growth is only found where a
logarithm fits better than a power.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsmlab.experiments import estimates, words
from tsmlab.experiments.measured import Measured, Series, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, FittedCurve
from tsmlab.experiments.words import CONFIRMED, REFUTED, UNRESOLVED, cannot_tell, row
from tsmlab.stats import Vector
from tsmlab.toml_tables import is_number
from tsmlab.wording import names

EXPONENTS = {"constant": 0.0, "linear": 1.0, "quadratic": 2.0}
LOGARITHMIC = "logarithmic"
# Exponents this close are the same shape: 0.1 is 26 % over a factor of ten.
TOLERANCE = 0.1
# The two models have two numbers each, so that a third point is the first that can judge them.
POINTS_FOR_MODELS = 3


@dataclass(frozen=True)
class Growth:
    """The exponent k of metric ~ parameter^k, its interval, and the exponents of the first and the
    last step of the sweep.

    by_rounds: whether the interval comes from rounds; else it is from the points' scatter.
    log_better: how much smaller the squared residuals of a logarithm are than those of a power law,
    with its interval; None below three points."""

    exponent: Estimate
    first: Estimate
    last: Estimate
    by_rounds: bool
    log_better: Estimate | None
    xs: list[float]
    power: list[float]
    logarithm: list[float]


def fit(xs: Sequence[float], table: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Growth:
    """table: logarithms of the metric, rows are rounds and columns the points, in rising order of
    two or more different xs."""
    x = np.log(np.asarray(xs, dtype=np.float64))
    lines = [estimates.fit_line(x, row) for row in table]
    by_rounds = len(table) > 1
    if by_rounds:
        exponent = estimates.mean_estimate([line.slope for line in lines])
    else:
        exponent = estimates.slope_estimate(x, table[0])
    mean = table.mean(axis=0)
    whole = estimates.fit_line(x, mean)
    logarithm = _fit_logarithm(x, mean)
    log_better = None
    if len(xs) >= POINTS_FOR_MODELS:
        gains = [
            line.misfit - _misfit(row, _fit_logarithm(x, row), x)
            for line, row in zip(lines, table, strict=True)
        ]
        log_better = estimates.mean_estimate([max(-1e12, gain) for gain in gains])
    return Growth(
        exponent,
        estimates.mean_estimate((table[:, 1] - table[:, 0]) / (x[1] - x[0])),
        estimates.mean_estimate((table[:, -1] - table[:, -2]) / (x[-1] - x[-2])),
        by_rounds,
        log_better,
        list(xs),
        [float(v) for v in np.exp(np.minimum(whole.intercept + whole.slope * x, 700.0))],
        [float(v) for v in np.clip(logarithm.intercept + logarithm.slope * x, 0.0, 1e300)],
    )


def _fit_logarithm(x: Vector, log_y: Vector) -> estimates.Line:
    """metric = a + b * log(parameter), with weights 1 / metric^2: residuals count by their share
    of the metric, as they do on the logarithms of the power law."""
    scale = float(log_y.max())
    y = np.exp(log_y - scale)
    weight = 1.0 / np.maximum(y, 1e-150)
    left = np.stack([weight, weight * x], axis=1)
    (a, b), *_ = np.linalg.lstsq(left, weight * y, rcond=None)
    factor = math.exp(min(scale, 700.0))
    return estimates.Line(float(b) * factor, float(a) * factor, 0.0)


def _misfit(log_y: Vector, line: estimates.Line, x: Vector) -> float:
    """Squared residuals of logarithms; without bound where the line is not above 0."""
    predicted = line.intercept + line.slope * x
    if float(predicted.min()) <= 0.0 or not np.all(np.isfinite(predicted)):
        return 1e12
    rest = log_y - np.log(predicted)
    return float(rest @ rest)


# --- the verdict ----------------------------------------------------------------------------------


def compare(exponent: Estimate, expected: float, tolerance: float) -> str:
    """Confirmed if the interval lies within the tolerance around the expectation, refuted if it
    does not touch that, else unresolved."""
    if exponent.low is None or exponent.high is None:
        return UNRESOLVED
    if expected - tolerance <= exponent.low and exponent.high <= expected + tolerance:
        return CONFIRMED
    if exponent.high < expected - tolerance or exponent.low > expected + tolerance:
        return REFUTED
    return UNRESOLVED


def compare_logarithmic(growth: Growth, tolerance: float) -> str:
    """Whether it grows as a logarithm, or not at all. Refuted only where a power law fits better
    and its exponent is above the tolerance."""
    if compare(growth.exponent, 0.0, tolerance) == CONFIRMED:
        return CONFIRMED
    gain = growth.log_better
    if gain is None or gain.low is None or gain.high is None:
        return UNRESOLVED
    if gain.low > 0.0:
        return CONFIRMED
    low = growth.exponent.low
    return REFUTED if gain.high < 0.0 and low is not None and low > tolerance else UNRESOLVED


# --- the analysis ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grown:
    """One curve with its exponent. verdict: "" where nothing was expected."""

    allocator: str
    label: str
    growth: Growth
    verdict: str


def grown(data: Measured, series: Series, name: str, metric: str) -> Growth | None:
    """The growth of one allocator's metric."""
    xs, columns = data.curve(series, name, metric)
    if len(columns) < 2:
        return None
    rounds, table = estimates.complete_rounds(columns)
    if not rounds:
        table = np.array([[sum(logs.values()) / len(logs) for logs in columns]])
    return fit(xs, table)


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    allocators = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "No parameter is swept.", allocators)
    expected = request.options.get("expected")
    tolerance = number_option(request, "tolerance", TOLERANCE)
    found = [
        Grown(
            name,
            words.label(data, name, series.fixed),
            growth,
            _verdict(growth, expected, tolerance),
        )
        for series in data.series(parameter)
        for name in allocators
        if (growth := grown(data, series, name, metric.name)) is not None
    ]
    over = words.noun(parameter)
    if not found:
        why = f"That takes two values of {over} with figures above 0."
        return cannot_tell(request, why, allocators)
    told = [
        (each.growth.exponent.value, f"{each.label} {words.with_interval(each.growth.exponent)}")
        for each in found
    ]
    bent = [each.label for each in found if _is_bent(each.growth, tolerance)]
    shape = f" No pure power law: {names(bent)}." if bent else ""
    asked = "" if not found[0].verdict else f" (expected: {expected})"
    return row(
        request,
        _whole_verdict(found),
        [each.allocator for each in found],
        f"{metric.title} ~ {over}^k{asked}, k: {words.figures(told)}.{shape}",
        {f"exponent of {each.label}": each.growth.exponent for each in found},
        [_curve(each, metric.name, expected) for each in found],
    )


def _whole_verdict(found: Sequence[Grown]) -> str:
    verdicts = [each.verdict for each in found]
    if not verdicts[0]:
        only = found[0].growth.exponent
        return f"exponent {words.with_interval(only)}" if len(found) == 1 else "measured"
    if len(set(verdicts)) == 1:
        return verdicts[0]
    told = REFUTED if REFUTED in verdicts else CONFIRMED
    return f"{told} for {verdicts.count(told)} of {len(found)}"


def _is_bent(growth: Growth, tolerance: float) -> bool:
    """The intervals of the two ends do not touch, and the ends differ by the tolerance."""
    first, last = growth.first, growth.last
    if first.low is None or first.high is None or last.low is None or last.high is None:
        return False
    apart = first.high < last.low or last.high < first.low
    return apart and abs(first.value - last.value) > tolerance


def _curve(each: Grown, metric: str, expected: object) -> FittedCurve:
    growth = each.growth
    better = growth.log_better
    as_log = better is not None and better.low is not None and better.low > 0.0
    if expected == LOGARITHMIC and as_log:
        label, values = "a + b log x", growth.logarithm
    else:
        label, values = f"x^{words.fixed(growth.exponent.value)}", growth.power
    points = [list(pair) for pair in zip(growth.xs, values, strict=True)]
    return FittedCurve(
        each.allocator, metric, f"{label}{each.label.removeprefix(each.allocator)}", points
    )


def _verdict(growth: Growth, expected: object, tolerance: float) -> str:
    if expected == LOGARITHMIC:
        return compare_logarithmic(growth, tolerance)
    exponent = exponent_of(expected)
    return "" if exponent is None else compare(growth.exponent, exponent, tolerance)


def exponent_of(expected: object) -> float | None:
    if isinstance(expected, str):
        return EXPONENTS.get(expected)
    return float(expected) if is_number(expected) else None
