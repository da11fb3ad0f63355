"""How does a metric grow with a parameter, and is that what was expected?

Why: "every search is linear, so the whole is superlinear" (report E) is a claim about an exponent,
and an exponent can be measured, with an interval, and confirmed or refuted.
Refuses to: call a curve a power law because a line was drawn through it. Where the exponents at
the two ends of the sweep differ, they are told; and logarithmic growth is only found where a
logarithm fits better than a power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsmlab.experiments import phrases
from tsmlab.experiments.estimates import (
    Line,
    complete_rounds,
    fit_line,
    mean_estimate,
    slope_estimate,
)
from tsmlab.experiments.measured import Measured, Series, is_number, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, FittedCurve, Parameter
from tsmlab.experiments.outcome import CONFIRMED, REFUTED, UNRESOLVED, Outcome, cannot_tell
from tsmlab.experiments.printed import Printed, printed
from tsmlab.stats import Vector

EXPONENTS = {"constant": 0.0, "linear": 1.0, "quadratic": 2.0}
LOGARITHMIC = "logarithmic"
# Exponents this close are the same shape: 0.1 is 26 % over a factor of ten.
TOLERANCE = 0.1
# The two models have two numbers each, so that a third point is the first that can judge them.
POINTS_FOR_MODELS = 3
CURVES_TOLD = 3


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
    lines = [fit_line(x, row) for row in table]
    by_rounds = len(table) > 1
    if by_rounds:
        exponent = mean_estimate([line.slope for line in lines])
    else:
        exponent = slope_estimate(x, table[0])
    mean = table.mean(axis=0)
    whole = fit_line(x, mean)
    logarithm = _fit_logarithm(x, mean)
    log_better = None
    if len(xs) >= POINTS_FOR_MODELS:
        gains = [
            line.misfit - _misfit(row, _fit_logarithm(x, row), x)
            for line, row in zip(lines, table, strict=True)
        ]
        log_better = mean_estimate([max(-1e12, gain) for gain in gains])
    return Growth(
        exponent,
        mean_estimate((table[:, 1] - table[:, 0]) / (x[1] - x[0])),
        mean_estimate((table[:, -1] - table[:, -2]) / (x[-1] - x[-2])),
        by_rounds,
        log_better,
        list(xs),
        [float(v) for v in np.exp(np.minimum(whole.intercept + whole.slope * x, 700.0))],
        [float(v) for v in np.clip(logarithm.intercept + logarithm.slope * x, 0.0, 1e300)],
    )


def _fit_logarithm(x: Vector, log_y: Vector) -> Line:
    """metric = a + b * log(parameter), with weights 1 / metric^2: residuals count by their share
    of the metric, as they do on the logarithms of the power law."""
    scale = float(log_y.max())
    y = np.exp(log_y - scale)
    weight = 1.0 / np.maximum(y, 1e-150)
    left = np.stack([weight, weight * x], axis=1)
    (a, b), *_ = np.linalg.lstsq(left, weight * y, rcond=None)
    factor = math.exp(min(scale, 700.0))
    return Line(float(b) * factor, float(a) * factor, 0.0)


def _misfit(log_y: Vector, line: Line, x: Vector) -> float:
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


def grown(
    data: Measured, series: Series, name: str, metric: str, over: str | None = None
) -> Growth | None:
    """The growth of one allocator's metric (over another one, if that is asked for)."""
    numeric = data.numeric(series)
    columns = {point: data.quotient_logs(point, name, metric, over) for point in numeric.points}
    columns = {point: logs for point, logs in columns.items() if logs}
    if len(columns) < 2:
        return None
    rounds, table = complete_rounds(list(columns.values()))
    xs = data.x(Series(series.parameter, series.fixed, tuple(columns)))
    if not rounds:
        means = [sum(logs.values()) / len(logs) for logs in columns.values()]
        table = np.array([means])
    return fit(xs, table)


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "Growth is over a parameter, and none is swept.", names)
    expected = request.options.get("expected")
    tolerance = number_option(request, "tolerance", TOLERANCE)
    found, lost = [], []
    for series in data.series(parameter):
        for name in names:
            growth = grown(data, series, name, metric.name)
            if growth is None:
                lost.append(name)
                continue
            label = phrases.label(data, name, series.fixed)
            found.append(Grown(name, label, growth, _verdict(growth, expected, tolerance)))
    if not found:
        return cannot_tell(
            request,
            f"How {phrases.lower(metric.title)} grows cannot be told: that takes two values of "
            f"{phrases.noun(parameter)} with figures above 0.",
            names,
        )
    return _Growths(data, request, found, parameter, tolerance).outcome(lost)


def _verdict(growth: Growth, expected: object, tolerance: float) -> str:
    if expected == LOGARITHMIC:
        return compare_logarithmic(growth, tolerance)
    exponent = exponent_of(expected)
    return "" if exponent is None else compare(growth.exponent, exponent, tolerance)


def exponent_of(expected: object) -> float | None:
    if isinstance(expected, str):
        return EXPONENTS.get(expected)
    return float(expected) if is_number(expected) else None


class _Growths:
    def __init__(
        self,
        data: Measured,
        request: AnalysisRequest,
        found: Sequence[Grown],
        parameter: Parameter,
        tolerance: float,
    ) -> None:
        self.data = data
        self.request = request
        self.found = found
        self.parameter = parameter
        self.over = phrases.noun(parameter)
        self.tolerance = tolerance
        self.metric = data.metric(request.metric)
        self.expected = request.options.get("expected")

    def outcome(self, lost: Sequence[str]) -> Outcome:
        return Outcome(
            self.request,
            self._verdict(),
            list(dict.fromkeys(each.allocator for each in self.found)),
            {f"exponent of {each.label}": each.growth.exponent for each in self.found},
            [self._curve(each) for each in self.found],
            lead=self._lead(),
            reported=self._reported(),
            details=[*self._in_full(), *self._models(), *self._ends()],
            doubts=self._doubts(lost),
        )

    def _curve(self, each: Grown) -> FittedCurve:
        growth = each.growth
        better = growth.log_better
        as_log = better is not None and better.low is not None and better.low > 0.0
        if self.expected == LOGARITHMIC and as_log:
            label, values = "a + b log x", growth.logarithm
        else:
            label, values = f"x^{phrases.fixed(growth.exponent.value)}", growth.power
        points = [list(pair) for pair in zip(growth.xs, values, strict=True)]
        label = f"{label}{each.label.removeprefix(each.allocator)}"
        return FittedCurve(each.allocator, self.metric.name, label, points)

    # --- the answer -------------------------------------------------------------------------------

    def _by(self, verdict: str) -> list[Grown]:
        return [each for each in self.found if each.verdict == verdict]

    def _verdict(self) -> str:
        if not self._judged():
            if len(self.found) == 1:
                return f"exponent {phrases.with_interval(self.found[0].growth.exponent)}"
            return "measured"
        for verdict in (CONFIRMED, REFUTED, UNRESOLVED):
            if len(self._by(verdict)) == len(self.found):
                return verdict
        refuted, confirmed = len(self._by(REFUTED)), len(self._by(CONFIRMED))
        if refuted:
            return f"refuted for {refuted} of {len(self.found)}"
        return f"confirmed for {confirmed} of {len(self.found)}"

    def _judged(self) -> bool:
        return self.expected == LOGARITHMIC or exponent_of(self.expected) is not None

    def _shape(self) -> str:
        title = phrases.lower(self.metric.title)
        if not isinstance(self.expected, str):
            exponent = phrases.number(exponent_of(self.expected) or 0.0)
            return f"growth of {title} over {self.over} with exponent {exponent}"
        if self.expected == "constant":
            return f"that {title} does not depend on {self.over}"
        return f"{self.expected} growth of {title} over {self.over}"

    def _lead(self) -> list[str]:
        if not self._judged():
            title = phrases.capital(phrases.lower(self.metric.title))
            few = len(self.found) <= CURVES_TOLD
            how = self._each(self.found, "with exponent ") if few else self._range(self.found)
            under = "under " if few else "with "
            return [f"{title} grows with {self.over} {under}{how}."]
        sentences: list[str] = []
        words = {CONFIRMED: "is confirmed", REFUTED: "is refuted", UNRESOLVED: "is not decided"}
        left = len(self.found)
        for verdict in (REFUTED, UNRESOLVED, CONFIRMED):
            group = self._by(verdict)
            if group:
                shape = "It" if sentences else phrases.capital(self._shape())
                sentences.append(f"{shape} {words[verdict]} for {self._who(group, left)}.")
                left -= len(group)
        return sentences

    def _who(self, group: Sequence[Grown], left: int) -> str:
        """A group with its exponents. Of many the extremes; and no names where they are all that is
        left."""
        if len(group) <= CURVES_TOLD:
            return self._each(group, "with exponent ")
        if len(group) == left:
            who = "all of them" if left == len(self.found) else f"the other {left}"
        else:
            who = phrases.some([each.label for each in group], 4)
        return f"{who}, with {self._range(group)}"

    def _each(self, group: Sequence[Grown], first: str) -> str:
        """A few, with the exponent of each."""
        ordered = sorted(group, key=lambda each: each.growth.exponent.value)
        return phrases.and_list(
            [
                f"{each.label} {'with ' if i else first}"
                f"{phrases.with_interval(each.growth.exponent)}"
                for i, each in enumerate(ordered)
            ]
        )

    def _range(self, group: Sequence[Grown]) -> str:
        """Exponents from the least to the largest."""
        ordered = sorted(group, key=lambda each: each.growth.exponent.value)
        least, most = (
            f"{phrases.with_interval(each.growth.exponent)} for {each.label}"
            for each in (ordered[0], ordered[-1])
        )
        return f"exponents from {least} to {most}"

    # --- beside it --------------------------------------------------------------------------------

    def _in_full(self) -> list[str]:
        if len(self.found) <= CURVES_TOLD:
            return []
        ordered = sorted(self.found, key=lambda each: each.growth.exponent.value)
        texts = [f"{g.label} {phrases.with_interval(g.growth.exponent)}" for g in ordered]
        return [f"Exponents: {', '.join(texts)}."]

    def _models(self) -> list[str]:
        """Logarithm against power law, where a logarithm was expected."""
        if self.expected != LOGARITHMIC:
            return []
        groups: dict[str, list[str]] = {}
        for each in self.found:
            gain = each.growth.log_better
            if gain is None:
                word = "too few points to compare a logarithm with a power"
            elif gain.low is None or gain.high is None:
                word = "one row of figures, which cannot tell a logarithm from a power"
            elif gain.low > 0.0:
                word = "a logarithm fits better than a power"
            else:
                word = (
                    "a power fits better than a logarithm"
                    if gain.high < 0.0
                    else ("a logarithm and a power fit equally well")
                )
            groups.setdefault(word, []).append(each.label)
        texts = [f"{word} ({phrases.some(labels, 4)})" for word, labels in groups.items()]
        return [f"{phrases.capital('; '.join(texts))}."]

    def _ends(self) -> list[str]:
        """Curves that are no power law: their first and last steps have other exponents."""
        bent = [each for each in self.found if self._is_bent(each.growth)]
        if not bent:
            return []
        each = max(bent, key=lambda g: abs(g.growth.last.value - g.growth.first.value))
        xs = each.growth.xs
        first, last = (phrases.with_interval(e) for e in (each.growth.first, each.growth.last))
        who = "It is" if len(self.found) == 1 else f"{phrases.some([g.label for g in bent], 4)}:"
        return [
            (
                f"{who} no pure power law; the exponent of {each.label} is {first} from "
                f"{phrases.plain(xs[0])} to {phrases.plain(xs[1])} and {last} from "
                f"{phrases.plain(xs[-2])} to {phrases.plain(xs[-1])} {self.over}."
            )
        ]

    def _is_bent(self, growth: Growth) -> bool:
        """The intervals of the two ends do not touch, and the ends differ by the tolerance."""
        first, last = growth.first, growth.last
        if first.low is None or first.high is None or last.low is None or last.high is None:
            return False
        apart = first.high < last.low or last.high < first.low
        return apart and abs(first.value - last.value) > self.tolerance

    def _doubts(self, lost: Sequence[str]) -> list[str]:
        sentences = []
        if not all(each.growth.by_rounds for each in self.found):
            one = "counted once" if self.data.is_counted(self.metric.name) else "measured once"
            sentences.append(
                f"Each point was {one}, so an interval is from the scatter of the points around "
                f"the line, if there are more than two."
            )
        if lost:
            names = phrases.some(list(dict.fromkeys(lost)))
            sentences.append(
                f"No exponent for {names}: a run failed, or a figure is missing or zero."
            )
        return sentences

    # --- the reports ------------------------------------------------------------------------------

    def _reported(self) -> list[str]:
        names = list(dict.fromkeys(each.allocator for each in self.found))
        tables = printed(self.data.definition, names, self.metric)
        return [sentence for table in tables if (sentence := self._beside(table))]

    def _beside(self, table: Printed) -> str:
        """The exponents of a report's own figures, and whether ours are the same."""
        theirs = {}
        for name in dict.fromkeys(each.allocator for each in self.found):
            curve = [(x, y) for x, y in table.curve(name, self.parameter) if x > 0.0 and y > 0.0]
            if len({x for x, _ in curve}) > 1:
                xs, ys = (np.log(np.array(column)) for column in zip(*curve, strict=True))
                theirs[name] = fit_line(xs, ys).slope
        judged = {
            each.label: compare(each.growth.exponent, theirs[each.allocator], self.tolerance)
            for each in self.found
            if each.allocator in theirs
        }
        if not judged:
            return ""
        low, high = (phrases.fixed(value) for value in (min(theirs.values()), max(theirs.values())))
        figures = f"exponent {low}" if low == high else f"exponents {low} to {high}"
        texts = []
        for verdict, word in (
            (CONFIRMED, "confirmed"),
            (REFUTED, "refuted"),
            (UNRESOLVED, "not decided"),
        ):
            labels = [label for label, own in judged.items() if own == verdict]
            if labels:
                every = "" if len(labels) == len(judged) else f" for {phrases.some(labels, 4)}"
                texts.append(f"{word}{every}")
        return f"The figures of {table.name} grow with {figures}: here that is {'; '.join(texts)}."
