"""Laws fitted to logarithms of measurements: Amdahl's, and growth with an exponent.

Each round is fitted separately, so a slow round only changes its own constant, and the interval of
a fitted number is that of a mean over rounds (stats.mean_interval). Tables have a row for each
round and a column for each value of the parameter, in rising order.

  Amdahl, Validity of the single processor approach ..., AFIPS 1967.
  Gustafson, Reevaluating Amdahl's law, CACM 31(5), 1988.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tsmlab import stats
from tsmlab.results import Estimate
from tsmlab.stats import Vector

Table = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# exp() of anything larger overflows.
MAX_LOG = 700.0


def table_of(columns: Sequence[Mapping[int, float]]) -> Table:
    """The rounds that every column has."""
    common = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    found = np.array([[column[number] for column in columns] for number in common])
    return found.reshape(len(common), len(columns))


def mean_estimate(values: Sequence[float] | Vector) -> Estimate:
    vector = stats.as_vector(values)
    center = float(np.mean(vector))
    if len(vector) < 2:
        return Estimate(center, None, None)
    _, low, high = stats.mean_interval(vector)
    return Estimate(center, low, high)


# --- Amdahl's law ---------------------------------------------------------------------------------


# The search range for log g: from far below perfect scaling to 50 times slower than one thread.
LOWEST_BELOW_PERFECT = 3.0
HIGHEST = 4.0
# Each grid spans two steps of the one before, so that the last one's step is below 1e-9.
GRID = 64
GRIDS = 7
# A law with less error than this describes the curve well enough.
LAW_MARGIN = 0.05


@dataclass(frozen=True)
class Amdahl:
    """serial: the fraction, between 0 and 1. limit: "below" if the work sped up by more than the
    threads, "above" if it became slower, else "". left: the first number of threads at which the
    prediction is shown to be wrong by more than the margin, and the ratio of measured to predicted
    time."""

    serial: Estimate
    limit: str
    predicted: list[float]
    left: tuple[float, Estimate] | None


def amdahl(threads: Sequence[float], logs: Table, processors: int | None) -> Amdahl | None:
    """T(n) = T(1) * (s + (1 - s) / n), for n limited to the processors: more threads have to share
    them. None if fewer than two numbers of threads can be fitted.

    The fit is over g = s + (1 - s) / M, the share of T(1) that is predicted at the largest M: log g
    is close to a difference of logarithms of times, so that its mean has an interval; s follows."""
    n = np.asarray(threads, dtype=np.float64)
    used = n if processors is None else np.minimum(n, float(processors))
    # Beyond the processors the law predicts no change, so those points are only used if too few are
    # below.
    within = used == n
    if len(np.unique(used[within])) < 2:
        within = np.full(len(n), fill_value=True)
    if len(logs) == 0 or len(np.unique(used[within])) < 2 or used.min() < 1.0:
        return None
    largest = float(used[within].max())
    by_round = _log_shares(logs[:, within], used[within], largest)
    serial, limit = _serial(mean_estimate(by_round), largest)
    model = np.log(serial.value + (1.0 - serial.value) / used)
    center = float(np.mean(logs[:, within] - model[within]))
    each = np.clip(_serial_of(np.exp(by_round), largest), 0.0, 1.0)
    return Amdahl(
        serial,
        limit,
        [float(x) for x in np.exp(center + model)],
        _departure(n, logs, used, within, each),
    )


def _serial_of(share: Vector | Table, largest: float) -> Table:
    """The s for which s + (1 - s) / M is the share."""
    return np.asarray((share - 1.0 / largest) / (1.0 - 1.0 / largest))


def _log_shares(unit: Table, used: Vector, largest: float) -> Vector:
    """The least-squares log g of each row, by ever finer grids around the best one."""

    def misfit(log_share: Table) -> Table:
        """Each row has its own candidates: rows by candidates."""
        serial = _serial_of(np.exp(log_share), largest)[..., None]
        model = np.log(np.maximum(serial + (1.0 - serial) / used, 1e-300))
        return np.asarray(np.var(unit[:, None, :] - model, axis=-1))

    rows = np.arange(len(unit))
    low = np.full(len(unit), -math.log(largest) - LOWEST_BELOW_PERFECT)
    high = np.full(len(unit), HIGHEST)
    for _ in range(GRIDS):
        grid = np.linspace(low, high, GRID, axis=1)
        best, step = grid[rows, np.argmin(misfit(grid), axis=1)], (high - low) / (GRID - 1)
        low, high = best - step, best + step
    return np.asarray((low + high) / 2.0)


def _serial(log_share: Estimate, largest: float) -> tuple[Estimate, str]:
    """Converts the estimate of log g to an estimate of s, limited to 0..1."""

    def held(value: float) -> float:
        return float(np.clip(_serial_of(np.exp(np.array([value])), largest)[0], 0.0, 1.0))

    raw = float(_serial_of(np.exp(np.array([log_share.value])), largest)[0])
    limit = "below" if raw < 0.0 else "above" if raw > 1.0 else ""
    low, high = (None if v is None else held(min(v, 50.0)) for v in (log_share.low, log_share.high))
    return Estimate(held(log_share.value), low, high), limit


def _departure(
    n: Vector, logs: Table, used: Vector, within: Mask, serial: Vector
) -> tuple[float, Estimate] | None:
    """Compares each round with its own fit, so a round that is slow as a whole is not a departure.
    Holm's family: the numbers of threads."""
    if len(logs) < 2:
        return None
    model = np.log(serial[:, None] + (1.0 - serial[:, None]) / used)
    first = np.mean(logs[:, within] - model[:, within], axis=1, keepdims=True)
    rest = logs - model - first
    adjusted = stats.holm_adjust([stats.mean_is_zero_p(column) for column in rest.T])
    for place in range(1, len(n)):
        log = mean_estimate(rest[:, place])
        assert log.low is not None
        assert log.high is not None
        beyond = log.low > math.log1p(LAW_MARGIN) or log.high < -math.log1p(LAW_MARGIN)
        if beyond and adjusted[place] < 1.0 - stats.CONFIDENCE:
            value, low, high = (math.exp(min(v, MAX_LOG)) for v in (log.value, log.low, log.high))
            return float(n[place]), Estimate(value, low, high)
    return None


# --- growth ---------------------------------------------------------------------------------------


# Both models have two parameters, so it takes three points to judge them.
POINTS_FOR_MODELS = 3


@dataclass(frozen=True)
class Growth:
    """The exponent k of metric ~ parameter^k. log_better: how much smaller a logarithmic law's
    squared residuals are than the power law's; None below three points."""

    exponent: Estimate
    log_better: Estimate | None
    power: list[float]
    logarithm: list[float]


def growth(xs: Sequence[float], logs: Table) -> Growth | None:
    """None without two different xs above 0, or without rounds."""
    if len(logs) == 0 or len(xs) < 2:
        return None
    x = np.log(np.asarray(xs, dtype=np.float64))
    slopes, intercepts = np.polyfit(x, logs.T, 1)
    a, b = _logarithm(x, logs.mean(axis=0))
    log_better = None
    if len(xs) >= POINTS_FOR_MODELS:
        gains = [
            _squares(row, k * x + c) - _misfit_of_logarithm(x, row)
            for k, c, row in zip(slopes, intercepts, logs, strict=True)
        ]
        log_better = mean_estimate(np.maximum(gains, -1e12))
    return Growth(
        mean_estimate(slopes),
        log_better,
        [float(v) for v in np.exp(np.minimum(intercepts.mean() + slopes.mean() * x, MAX_LOG))],
        [float(v) for v in np.clip(a + b * x, 0.0, 1e300)],
    )


def _logarithm(x: Vector, log_y: Vector) -> tuple[float, float]:
    """a and b of metric = a + b * log(parameter), weighted by 1 / metric^2: residuals are relative
    to the metric, as in the power law's fit of logarithms."""
    scale = float(log_y.max())
    weight = 1.0 / np.maximum(np.exp(log_y - scale), 1e-150)
    left = np.stack([weight, weight * x], axis=1)
    (a, b), *_ = np.linalg.lstsq(left, weight * np.exp(log_y - scale), rcond=None)
    factor = math.exp(min(scale, MAX_LOG))
    return float(a) * factor, float(b) * factor


def _misfit_of_logarithm(x: Vector, log_y: Vector) -> float:
    """Squared residuals of logarithms; infinite if the line is not above 0."""
    a, b = _logarithm(x, log_y)
    predicted = a + b * x
    if float(predicted.min()) <= 0.0 or not np.all(np.isfinite(predicted)):
        return 1e12
    return _squares(log_y, np.log(predicted))


def _squares(measured: Vector, predicted: Vector) -> float:
    rest = measured - predicted
    return float(rest @ rest)


# --- what was expected ----------------------------------------------------------------------------


EXPONENTS = {"constant": 0.0, "linear": 1.0}
LOGARITHMIC = "logarithmic"
CONFIRMED, REFUTED, UNRESOLVED = "confirmed", "refuted", "unresolved"


def judge_growth(found: Growth, expected: str, tolerance: float) -> str:
    """Confirmed if the exponent's interval lies within the tolerance around the expected value,
    refuted if it lies outside, otherwise unresolved."""
    if expected == LOGARITHMIC:
        return _judge_logarithmic(found, tolerance)
    exponent = EXPONENTS[expected]
    low, high = found.exponent.low, found.exponent.high
    if low is None or high is None:
        return UNRESOLVED
    if exponent - tolerance <= low and high <= exponent + tolerance:
        return CONFIRMED
    apart = high < exponent - tolerance or low > exponent + tolerance
    return REFUTED if apart else UNRESOLVED


def _judge_logarithmic(found: Growth, tolerance: float) -> str:
    """Whether it grows logarithmically, or not at all. Refuted only if a power law fits better and
    its exponent is above the tolerance."""
    if judge_growth(found, "constant", tolerance) == CONFIRMED:
        return CONFIRMED
    gain, low = found.log_better, found.exponent.low
    if gain is None or gain.low is None or gain.high is None:
        return UNRESOLVED
    if gain.low > 0.0:
        return CONFIRMED
    return REFUTED if gain.high < 0.0 and low is not None and low > tolerance else UNRESOLVED
