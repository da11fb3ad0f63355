"""How much of the work is serial, and where does the measured curve leave Amdahl's law?

Why: report E's curve falls, turns and rises; the law says how far it could have fallen, and the
counts at the point where it is left say what the law does not know.
Refuses to: call a departure what the rounds do not show, or to name a cause that was not counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsmlab import stats
from tsmlab.experiments import amdahl, phrases, reasons
from tsmlab.experiments.amdahl import AmdahlFit, Departure
from tsmlab.experiments.estimates import complete_rounds
from tsmlab.experiments.measured import Measured, Series, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, FittedCurve
from tsmlab.experiments.outcome import Outcome, cannot_tell
from tsmlab.experiments.printed import printed
from tsmlab.wording import share

# A law that is off by less than this describes the curve well enough.
LAW_MARGIN = 0.05
FITS_TOLD = 3
# An interval of a serial fraction that is wider than this says nothing.
WIDEST = 0.5
PER_THREAD = "per-thread"


@dataclass(frozen=True)
class Fitted:
    """One allocator's curve with the law fitted to it. label: the allocator, and the other
    parameters' values if there are any."""

    allocator: str
    label: str
    series: Series
    law: AmdahlFit
    left: Departure | None
    least: float
    beside_least: list[float]


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "Amdahl's law is about a parameter, and none is swept.", names)
    per_thread = request.options.get("work") == PER_THREAD
    margin = number_option(request, "margin", LAW_MARGIN)
    found, lost = [], []
    for series in data.series(parameter):
        numeric = data.numeric(series)
        for name in names:
            fitted = _fitted(data, numeric, name, metric.name, per_thread, margin)
            (found.append(fitted) if fitted else lost.append(name))
    if not found:
        return cannot_tell(
            request,
            f"Amdahl's law cannot be fitted: that takes two numbers of "
            f"{phrases.noun(parameter)} below the number of processors or at it, with "
            f"figures above 0 in a common round.",
            names,
        )
    return _Scaling(data, request, found, margin, per_thread).outcome(lost)


def _fitted(
    data: Measured, series: Series, name: str, metric: str, per_thread: bool, margin: float
) -> Fitted | None:
    columns = {point: data.logs(point, name, metric) for point in series.points}
    columns = {point: logs for point, logs in columns.items() if logs}
    rounds, table = complete_rounds(list(columns.values()))
    if not rounds:
        return None
    kept = Series(series.parameter, series.fixed, tuple(columns))
    threads = data.x(kept)
    law = amdahl.fit(threads, table, data.processors, per_thread)
    if law is None:
        return None
    unit = table - (np.log(threads) if per_thread else 0.0)
    least = int(np.argmin(unit.mean(axis=0)))
    beside = [threads[i] for i in _ties(unit, least)]
    return Fitted(
        name,
        phrases.label(data, name, series.fixed),
        kept,
        law,
        amdahl.leaves(law, margin),
        threads[least],
        beside,
    )


def _ties(table: amdahl.Table, least: int) -> list[int]:
    """The points not told apart from the least, or further from it by the margin at most. Which
    one is the least was seen in the same data, so Holm's correction is over all pairs of points."""
    count = table.shape[1]
    others = [i for i in range(count) if i != least]
    if len(table) < 2:
        return others
    pairs = list(itertools.combinations(range(count), 2))
    found = [stats.mean_is_zero_p(table[:, a] - table[:, b]) for a, b in pairs]
    adjusted = dict(zip(pairs, stats.holm_adjust(found), strict=True))
    means = table.mean(axis=0)
    return [
        i
        for i in others
        if adjusted[min(i, least), max(i, least)] >= 1.0 - stats.CONFIDENCE
        or means[i] - means[least] <= math.log1p(stats.DEFAULT_MARGIN)
    ]


class _Scaling:
    def __init__(
        self,
        data: Measured,
        request: AnalysisRequest,
        found: Sequence[Fitted],
        margin: float,
        per_thread: bool,
    ) -> None:
        self.data = data
        self.request = request
        self.found = found
        self.margin = margin
        self.per_thread = per_thread
        self.metric = data.metric(request.metric)
        self.parameter = found[0].series.parameter

    def outcome(self, lost: Sequence[str]) -> Outcome:
        return Outcome(
            self.request,
            self._verdict(),
            list(dict.fromkeys(each.allocator for each in self.found)),
            {f"serial fraction of {each.label}": each.law.serial for each in self.found},
            [self._curve(each) for each in self.found],
            lead=[*self._serial(), *self._left()],
            why=self._why(),
            reported=self._reported(),
            details=[*self._in_full(), *self._least(), self._assumption()],
            doubts=self._doubts(lost),
        )

    def _curve(self, fitted: Fitted) -> FittedCurve:
        law = fitted.law
        points = [list(pair) for pair in zip(law.threads, law.predicted, strict=True)]
        label = f"Amdahl's law, s = {phrases.fixed(law.serial.value)}"
        label = f"{label}{fitted.label.removeprefix(fitted.allocator)}"
        return FittedCurve(fitted.allocator, self.metric.name, label, points)

    # --- the answer -------------------------------------------------------------------------------

    def _verdict(self) -> str:
        left = [each for each in self.found if each.left]
        if len(self.found) == 1:
            only = self.found[0]
            text = f"s = {phrases.with_interval(only.law.serial)}"
            return f"{text}, left at {self._setting(only.left.threads)}" if only.left else text
        return f"the law is left by {len(left)} of {len(self.found)}"

    def _setting(self, threads: float) -> str:
        return phrases.setting(self.parameter, int(threads) if threads % 1 == 0 else threads)

    def _serial(self) -> list[str]:
        ordered = sorted(self.found, key=lambda each: each.law.serial.value)
        known = [each for each in ordered if _is_determined(each.law.serial)]
        open_ones = [each for each in ordered if not _is_determined(each.law.serial)]
        sentences = []
        if 0 < len(known) <= FITS_TOLD:
            texts = [self._serial_of(each, first=i == 0) for i, each in enumerate(known)]
            sentences.append(f"{'; '.join(texts)}.")
        elif known:
            least, most = known[0], known[-1]
            sentences.append(
                f"The serial fraction by Amdahl's law is between "
                f"{phrases.with_interval(least.law.serial)} ({least.label}) and "
                f"{phrases.with_interval(most.law.serial)} ({most.label})."
            )
        if open_ones:
            names = phrases.some([each.label for each in open_ones], 4)
            sentences.append(
                f"These rounds do not determine the serial fraction of {names}: the interval is "
                f"wider than a half."
            )
        return sentences

    def _serial_of(self, fitted: Fitted, first: bool) -> str:
        law = fitted.law
        serial = phrases.with_interval(law.serial)
        beyond = {
            "": "",
            "above": ", the law's limit, since it becomes slower with more threads",
            "below": ", the law's limit, since it gains more than the law allows",
        }[law.limit]
        if first:
            return f"By Amdahl's law {fitted.label} has a serial fraction of {serial}{beyond}"
        return f"{fitted.label} {serial}{beyond}"

    def _left(self) -> list[str]:
        left = [each for each in self.found if each.left]
        if all(each.law.rounds < 2 for each in self.found):
            return ["One round does not show where the measured curve leaves it."]
        if not left:
            return [f"Nothing is shown to leave the law by more than {share(self.margin)}."]
        if len(left) > FITS_TOLD:
            worst = max(left, key=lambda each: _distance(each.left))
            return [
                (
                    f"{len(left)} of {len(self.found)} leave the law, {worst.label} by most: "
                    f"{' '.join(self._size_of(worst))} at {self._setting(_threads(worst))}."
                )
            ]
        groups: dict[tuple[float, str], list[Fitted]] = {}
        for each in left:
            groups.setdefault((_threads(each), self._size_of(each)[1]), []).append(each)
        texts = []
        for (threads, than), group in sorted(groups.items()):
            names = phrases.and_list([each.label for each in group])
            verb = "leaves" if len(group) == 1 else "leave"
            sizes = phrases.and_list([self._size_of(each)[0] for each in group])
            texts.append(f"{names} {verb} the law at {self._setting(threads)}: {sizes} {than}")
        return [phrases.clause(self.data, "; ".join(texts))]

    def _size_of(self, fitted: Fitted) -> tuple[str, str]:
        """How far the time is from the law's: the figure, and what it is of."""
        assert fitted.left is not None
        ratio = fitted.left.ratio
        if ratio.value >= phrases.TIMES_FROM:
            return phrases.times(ratio), "the time predicted"
        if ratio.value > 1.0:
            return phrases.excess(ratio), "longer than predicted"
        return phrases.shortfall(ratio), "less than predicted"

    def _why(self) -> list[str]:
        """What grew, for the one that is slower than the law by most."""
        slower = [e for e in self.found if e.left is not None and e.left.ratio.value > 1.0]
        if not slower:
            return []
        return self._grew(max(slower, key=lambda each: _distance(each.left)))

    def _grew(self, fitted: Fitted) -> list[str]:
        """The counts where the law was left, or behind it, against those before."""
        assert fitted.left is not None
        threads = self.data.x(fitted.series)
        sides = [
            (x, point)
            for x, point in zip(threads, fitted.series.points, strict=True)
            if (cell := self.data.cell(point, fitted.allocator)) and cell.causes is not None
        ]
        before = [side for side in sides if side[0] < fitted.left.threads]
        after = [side for side in sides if side[0] >= fitted.left.threads]
        if not before or not after:
            return ["What grew there cannot be told: it was not counted on both sides of it."]
        (low_x, low), (high_x, high) = before[-1], after[0]
        departure = next(d for d in fitted.law.departures if d.threads == high_x)
        summary = self.data.summary(high, fitted.allocator, self.metric.name)
        gap = None
        if summary is not None and self.metric.unit == "seconds" and departure.ratio.value > 1.0:
            gap = summary.median * (1.0 - 1.0 / departure.ratio.value)
        found = reasons.reasons(
            reasons.causes_of(self.metric),
            self._side(fitted, high, high_x),
            self._side(fitted, low, low_x),
            gap,
        )
        if not found.named:
            return [f"The counts do not show why {fitted.label} leaves it."]
        per = ", for each thread" if self.per_thread else ""
        return [f"What grew with it{per}: {'; '.join(found.named)}."]

    def _side(self, fitted: Fitted, point: int, threads: float) -> reasons.Side:
        counts = self.data.counts(point, fitted.allocator)
        if self.per_thread:
            counts = {name: count / threads for name, count in counts.items()}
        return reasons.Side(f"{fitted.allocator} at {self._setting(threads)}", counts)

    # --- beside it --------------------------------------------------------------------------------

    def _in_full(self) -> list[str]:
        if len(self.found) <= FITS_TOLD:
            return []
        ordered = sorted(self.found, key=lambda each: each.law.serial.value)
        texts = [f"{e.label} {phrases.with_interval(e.law.serial)}" for e in ordered]
        return [f"Serial fractions: {', '.join(texts)}."]

    def _least(self) -> list[str]:
        """Where each curve has its least time (or most work in a time)."""
        by_place: dict[tuple[float, tuple[float, ...]], list[Fitted]] = {}
        for each in self.found:
            by_place.setdefault((each.least, tuple(each.beside_least)), []).append(each)
        what = "does most work in a time" if self.per_thread else "is fastest"
        texts = []
        for (threads, tied), group in sorted(by_place.items()):
            names = phrases.some([each.label for each in group], 4)
            few = len(tied) <= FITS_TOLD
            words = [phrases.plain(_whole(x)) for x in tied]
            others = phrases.and_list(words) if few else f"{len(tied)} other points"
            beside = f" (not told apart from {others})"
            verb = what if len(group) == 1 else what.replace("does", "do").replace("is", "are")
            texts.append(f"{names} {verb} at {self._setting(threads)}{beside if tied else ''}")
        return [phrases.clause(self.data, "; ".join(texts))]

    def _assumption(self) -> str:
        law = self.found[0].law
        fitted = phrases.and_list([phrases.plain(_whole(x)) for x in law.fitted])
        words = phrases.noun(self.parameter)
        kind = (
            "Each thread does its own amount of work, so the law is fitted to the time divided "
            "by the threads. "
            if self.per_thread
            else ""
        )
        if self.data.processors is None:
            return (
                f"{kind}The number of processors is not known; the fit rests on {fitted} {words}."
            )
        return (
            f"{kind}The fit rests on {fitted} {words}; beyond the {self.data.processors} "
            f"processors of this machine the law predicts no further change."
        )

    def _doubts(self, lost: Sequence[str]) -> list[str]:
        if not lost:
            return []
        names = phrases.some(list(dict.fromkeys(lost)))
        return [f"No law could be fitted to {names}: a run failed, or a figure is missing or zero."]

    # --- the reports ------------------------------------------------------------------------------

    def _reported(self) -> list[str]:
        """Where the report's curves have their least time, beside ours."""
        names = list(dict.fromkeys(each.allocator for each in self.found))
        tables = printed(self.data.definition, names, self.metric)
        sentences = []
        for table in tables:
            curves = {
                name: curve for name in names if len(curve := table.curve(name, self.parameter)) > 1
            }
            if not curves:
                continue
            least = {name: min(curve, key=lambda p: p[1])[0] for name, curve in curves.items()}
            sentences.append(self._beside(table.name, least))
        return sentences

    def _beside(self, name: str, least: dict[str, float]) -> str:
        same: list[Fitted] = []
        other: list[Fitted] = []
        for fitted in self.found:
            theirs = least.get(fitted.allocator)
            if theirs is not None:
                alike = theirs == fitted.least or theirs in fitted.beside_least
                (same if alike else other).append(fitted)
        theirs_text = phrases.and_list([self._setting(x) for x in sorted(set(least.values()))])
        text = f"The least time of {name} is at {theirs_text}"
        if not other:
            return f"{text}; ours is there, too, or cannot be told apart from it."
        ours = phrases.and_list([self._setting(x) for x in sorted({e.least for e in other})])
        if not same:
            return f"{text}, ours at {ours}: that shape is refuted here."
        labels = phrases.some([each.label for each in other], 4)
        rest = "the others there or not told apart from it"
        return f"{text}; {labels} have theirs at {ours}, {rest}."


def _is_determined(serial: Estimate) -> bool:
    """Whether its interval leaves something to be said; one round has none and is told as it is."""
    return serial.low is None or serial.high is None or serial.high - serial.low <= WIDEST


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value


def _threads(fitted: Fitted) -> float:
    assert fitted.left is not None
    return fitted.left.threads


def _distance(departure: Departure | None) -> float:
    return 0.0 if departure is None else abs(math.log(departure.ratio.value))
