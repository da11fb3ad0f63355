"""Amdahl's law, fitted to times over a number of threads.

Why: how much of the work is serial is what report E's curve asks for and does not say. The law,
T(n) = T(1) * (s + (1 - s) / n), holds while each thread has a processor; more threads than
processors share these, so that the prediction stays flat from there on: n is limited to them.
Where each thread does its own amount of work, all the work grows with n. What obeys the law is T(n)
/ n, the time for one thread's amount (Gustafson's view of it: the same law per unit of work).

The fit is by least squares on log T, each round by itself, so that a slow round only moves T(1).
It is made over g = s + (1 - s) / M, the predicted share of T(1) at the largest M fitted: log g is
close to a difference of logarithms of times, so that its mean over rounds has Student's interval,
or the bootstrap's; s follows from g.

  Amdahl, Validity of the single processor approach ..., AFIPS 1967.
  Gustafson, Reevaluating Amdahl's law, CACM 31(5), 1988.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tsmlab import stats
from tsmlab.experiments import words
from tsmlab.experiments.estimates import complete_rounds, mean_estimate
from tsmlab.experiments.measured import Measured, Series, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, FittedCurve, Parameter
from tsmlab.experiments.words import cannot_tell, row
from tsmlab.stats import Vector

Table = npt.NDArray[np.float64]

# The search for log g: from far below perfect scaling to 50 times slower than one thread.
LOWEST_BELOW_PERFECT = 3.0
HIGHEST = 4.0
GRID = 64
GOLDEN_STEPS = 48
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class Departure:
    """How far the measured time at a point is from the prediction: a ratio, from 1 up if slower.
    p_adjusted: Holm's, over the points; None with one round."""

    threads: float
    ratio: Estimate
    p_adjusted: float | None


@dataclass(frozen=True)
class AmdahlFit:
    """serial: between 0 and 1. limit: what the least squares say beyond these, "below" if the work
    sped up by more than the threads, "above" if it became slower, else "".

    fitted: the numbers of threads that the fit rests on. predicted: at all of them, in order."""

    serial: Estimate
    limit: str
    fitted: list[float]
    threads: list[float]
    predicted: list[float]
    departures: list[Departure]
    rounds: int


def share_of_one(serial: Vector | float, processors: Vector) -> Vector:
    """T(n) / T(1) by the law, for n limited to the processors."""
    return np.asarray(serial + (1.0 - serial) / processors, dtype=np.float64)


def fit(
    threads: Sequence[float], logs: Table, processors: int | None, per_thread: bool
) -> AmdahlFit | None:
    """logs: of the times, rows are rounds and columns the numbers of threads, in rising order."""
    n = np.asarray(threads, dtype=np.float64)
    used = n if processors is None else np.minimum(n, float(processors))
    # Beyond the processors the law says "no change": only where too few points lie below does the
    # fit need these.
    within = used == n
    if len(np.unique(used[within])) < 2:
        within = np.full(len(n), fill_value=True)
    if len(logs) == 0 or len(np.unique(used[within])) < 2 or used.min() < 1.0:
        return None
    work = np.log(n) if per_thread else np.zeros(len(n))
    unit = logs - work
    largest = float(used[within].max())
    by_round = _fit_log_share(unit[:, within], used[within], largest)
    serial, limit = _serial(mean_estimate(by_round), largest)
    each = np.clip(_serial_of(by_round, largest), 0.0, 1.0)
    center = float(np.mean(unit[:, within] - np.log(share_of_one(serial.value, used[within]))))
    predicted = np.exp(center + np.log(share_of_one(serial.value, used)) + work)
    return AmdahlFit(
        serial=serial,
        limit=limit,
        fitted=[float(x) for x in n[within]],
        threads=[float(x) for x in n],
        predicted=[float(x) for x in predicted],
        departures=_departures(n, unit, used, within, each),
        rounds=len(logs),
    )


def _fit_log_share(unit: Table, used: Vector, largest: float) -> Vector:
    """The least squares' log g of each row: a grid, then golden sections around its best."""

    def misfit(log_share: Table) -> Table:
        """For each row its own candidates: rows by candidates."""
        serial = _serial_of(np.exp(log_share), largest, is_log=False)
        model = np.log(np.maximum(serial[..., None] + (1.0 - serial[..., None]) / used, 1e-300))
        rest = unit[:, None, :] - model
        return np.asarray(np.var(rest, axis=-1))

    bottom, top = -math.log(largest) - LOWEST_BELOW_PERFECT, HIGHEST
    grid = np.linspace(bottom, top, GRID)
    best = np.argmin(misfit(np.broadcast_to(grid, (len(unit), GRID))), axis=1)
    step = (top - bottom) / (GRID - 1)
    low, high = grid[best] - step, grid[best] + step
    for _ in range(GOLDEN_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        values = misfit(np.stack([left, right], axis=1))
        downhill = values[:, 0] > values[:, 1]
        low, high = np.where(downhill, left, low), np.where(downhill, high, right)
    return np.asarray((low + high) / 2.0)


def _serial_of(log_share: Vector, largest: float, is_log: bool = True) -> Vector:
    """The s for which s + (1 - s) / M is the share."""
    share = np.exp(log_share) if is_log else log_share
    return np.asarray((share - 1.0 / largest) / (1.0 - 1.0 / largest))


def _serial(log_share: Estimate, largest: float) -> tuple[Estimate, str]:
    """From the estimate of log g to that of s, held between 0 and 1."""

    def one(value: float | None) -> float | None:
        if value is None:
            return None
        return float(np.clip(_serial_of(np.asarray(min(value, 50.0)), largest), 0.0, 1.0))

    raw = float(_serial_of(np.asarray(log_share.value), largest))
    limit = "below" if raw < 0.0 else "above" if raw > 1.0 else ""
    value = one(log_share.value)
    assert value is not None
    return Estimate(value, one(log_share.low), one(log_share.high)), limit


def _departures(
    n: Vector, unit: Table, used: Vector, within: npt.NDArray[np.bool_], serial: Vector
) -> list[Departure]:
    """Each round against its own fit, so that what slows a whole round is no departure."""
    model = np.log(np.stack([share_of_one(float(s), used) for s in serial]))
    first = np.mean(unit[:, within] - model[:, within], axis=1, keepdims=True)
    rest = unit - model - first
    p_values = [stats.mean_is_zero_p(rest[:, i]) for i in range(len(n))] if len(unit) > 1 else []
    adjusted = stats.holm_adjust(p_values)
    found = []
    for i, x in enumerate(n):
        log = mean_estimate(rest[:, i])
        low, high = (None if v is None else math.exp(min(v, 700.0)) for v in (log.low, log.high))
        ratio = Estimate(math.exp(log.value), low, high)
        found.append(Departure(float(x), ratio, adjusted[i] if adjusted else None))
    return found


def leaves(found: AmdahlFit, margin: float) -> Departure | None:
    """The first point behind the least number of threads, from which the law counts, at which the
    prediction is shown to be off by more than the margin."""
    for departure in found.departures[1:]:
        ratio = departure.ratio
        if ratio.low is None or ratio.high is None or departure.p_adjusted is None:
            continue
        beyond = ratio.low > 1.0 + margin or ratio.high < 1.0 / (1.0 + margin)
        if beyond and departure.p_adjusted < 1.0 - stats.CONFIDENCE:
            return departure
    return None


# --- the analysis ---------------------------------------------------------------------------------


# A law that is off by less than this describes the curve well enough.
LAW_MARGIN = 0.05
PER_THREAD = "per-thread"


@dataclass(frozen=True)
class Fitted:
    """One allocator's curve with the law fitted to it. label: the allocator, and the other
    parameters' values if there are any."""

    allocator: str
    label: str
    law: AmdahlFit
    left: Departure | None


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    allocators = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "No parameter is swept.", allocators)
    found = [
        fitted
        for series in data.series(parameter)
        for name in allocators
        if (fitted := _fitted(data, series, name, request)) is not None
    ]
    if not found:
        return cannot_tell(
            request,
            f"That takes two numbers of {words.noun(parameter)} up to the processors', with "
            "figures above 0 in a common round.",
            allocators,
        )
    told = [(each.law.serial.value, _text(each, parameter)) for each in found]
    processors = data.processors
    limit = "" if processors is None else f" on {processors} processors"
    return row(
        request,
        _verdict(found, parameter),
        [each.allocator for each in found],
        f"Serial fraction by Amdahl's law{limit}: {words.figures(told)}.",
        {f"serial fraction of {each.label}": each.law.serial for each in found},
        [_curve(each, metric.name) for each in found],
    )


def _fitted(data: Measured, series: Series, name: str, request: AnalysisRequest) -> Fitted | None:
    threads, columns = data.curve(series, name, request.metric)
    rounds, table = complete_rounds(columns)
    if not rounds:
        return None
    per_thread = request.options.get("work") == PER_THREAD
    law = fit(threads, table, data.processors, per_thread)
    if law is None:
        return None
    left = leaves(law, number_option(request, "margin", LAW_MARGIN))
    return Fitted(name, words.label(data, name, series.fixed), law, left)


def _text(fitted: Fitted, parameter: Parameter) -> str:
    law = fitted.law
    beyond = {"": "", "above": " (slower with more)", "below": " (more than the law allows)"}
    text = f"{fitted.label} {words.with_interval(law.serial)}{beyond[law.limit]}"
    if fitted.left is None:
        return text
    off = words.ratio(fitted.left.ratio)
    return f"{text}, off by {off} at {words.setting(parameter, _whole(fitted.left.threads))}"


def _verdict(found: list[Fitted], parameter: Parameter) -> str:
    left = [each for each in found if each.left]
    if len(found) > 1:
        return f"the law is left by {len(left)} of {len(found)}"
    text = f"s = {words.with_interval(found[0].law.serial)}"
    if found[0].left is None:
        return text
    return f"{text}, left at {words.setting(parameter, _whole(found[0].left.threads))}"


def _curve(fitted: Fitted, metric: str) -> FittedCurve:
    law = fitted.law
    points = [list(pair) for pair in zip(law.threads, law.predicted, strict=True)]
    label = f"Amdahl's law, s = {words.fixed(law.serial.value)}"
    label = f"{label}{fitted.label.removeprefix(fitted.allocator)}"
    return FittedCurve(fitted.allocator, metric, label, points)


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value
