"""Does a metric, or the ratio of two, stay at or below a limit at every point?

Why: blow-up is a promise broken at some point: peak memory over live bytes that is bounded for one
allocator grows with the number of threads, or of rounds, for another.
Refuses to: call a limit kept where the interval reaches beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.experiments import phrases
from tsmlab.experiments.estimates import median_interval
from tsmlab.experiments.growth import TOLERANCE, grown
from tsmlab.experiments.measured import Measured, is_number
from tsmlab.experiments.model import AnalysisRequest, Estimate
from tsmlab.experiments.outcome import UNRESOLVED, Outcome, cannot_tell

KEEPS = "kept"
BREAKS = "broken"
# More than these are summed up.
TOLD = 4


@dataclass(frozen=True)
class Level:
    """The metric of one cell against the limit. runs: how many it rests on."""

    point: int
    allocator: str
    value: Estimate
    runs: int

    def verdict(self, limit: float) -> str:
        """By the interval; by the value alone where it was counted once, which is told."""
        low = self.value.value if self.value.low is None else self.value.low
        high = self.value.value if self.value.high is None else self.value.high
        if high <= limit:
            return KEEPS
        return BREAKS if low > limit else UNRESOLVED


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = data.names_for(request)
    over = request.options.get("over")
    other = over if isinstance(over, str) else None
    levels = [
        level
        for name in names
        for point in data.chosen
        if (level := _level(data, point, name, request.metric, other)) is not None
    ]
    if not levels:
        return cannot_tell(
            request, f"No point has figures of {_title(data, request, other)}.", names
        )
    limit = request.options.get("limit")
    number = float(limit) if is_number(limit) else None
    return _Bounds(data, request, levels, other).outcome(number, names)


def _level(data: Measured, point: int, name: str, metric: str, over: str | None) -> Level | None:
    values = list(data.quotients(point, name, metric, over).values())
    if not values:
        return None
    counted = data.is_counted(metric) and (over is None or data.is_counted(over))
    interval = median_interval(values) if not counted else median_interval([])
    return Level(
        point, name, Estimate(stats.median(values), interval.low, interval.high), len(values)
    )


def _title(data: Measured, request: AnalysisRequest, over: str | None) -> str:
    title = phrases.lower(data.metric(request.metric).title)
    return title if over is None else f"{title} over {phrases.lower(data.metric(over).title)}"


class _Bounds:
    def __init__(
        self,
        data: Measured,
        request: AnalysisRequest,
        levels: Sequence[Level],
        over: str | None,
    ) -> None:
        self.data = data
        self.request = request
        self.levels = levels
        self.over = over
        self.title = _title(data, request, over)

    def outcome(self, limit: float | None, names: Sequence[str]) -> Outcome:
        verdict, lead = self._without_limit() if limit is None else self._against(limit, names)
        return Outcome(
            self.request,
            verdict,
            names,
            self._estimates(),
            lead=lead,
            details=[*self._growth(names)],
            doubts=self._doubts(names),
        )

    def _text(self, level: Level) -> str:
        unit = "number" if self.over is not None else self.data.metric(self.request.metric).unit
        return phrases.measure_with_interval(level.value, unit)

    def _at(self, level: Level) -> str:
        return phrases.at(self.data, self.data.points[level.point])

    # --- the answer -------------------------------------------------------------------------------

    def _without_limit(self) -> tuple[str, list[str]]:
        ordered = sorted(self.levels, key=lambda level: level.value.value)
        least, most = ordered[0], ordered[-1]
        return "measured", [
            (
                f"{phrases.capital(self.title)} is between {self._text(least)} ({least.allocator}"
                f"{self._at(least)}) and {self._text(most)} ({most.allocator}{self._at(most)})."
            )
        ]

    def _against(self, limit: float, names: Sequence[str]) -> tuple[str, list[str]]:
        whole = len(self.levels) == len(self.data.chosen) * len(names)
        by_name: dict[str, dict[str, list[Level]]] = {}
        for level in self.levels:
            of_name = by_name.setdefault(level.allocator, {})
            of_name.setdefault(level.verdict(limit), []).append(level)
        broken = {n: v[BREAKS] for n, v in by_name.items() if BREAKS in v}
        open_ones = [n for n, v in by_name.items() if UNRESOLVED in v and n not in broken]
        kept = [n for n in by_name if n not in broken and n not in open_ones]
        everywhere = " at every point" if whole else " at the points with figures"
        where = everywhere if len(self.data.chosen) > 1 else ""
        unit = "number" if self.over is not None else self.data.metric(self.request.metric).unit
        most = phrases.measure(limit, unit)
        if not broken and not open_ones:
            top = max(self.levels, key=lambda level: level.value.value)
            who = "all" if whole and len(kept) > 1 else phrases.some(kept)
            return KEEPS, [
                (
                    f"{phrases.capital(self.title)} stays within {most}{where} under "
                    f"{who}; the most is {self._text(top)} "
                    f"({top.allocator}{self._at(top)})."
                )
            ]
        sentences = [self._who_breaks(broken, most)] if broken else []
        if open_ones:
            undecided = phrases.some(open_ones)
            what = "It" if broken else f"Whether {self.title} stays within {most}"
            sentences.append(
                f"{what} is not decided for {undecided}, with the limit in an interval."
            )
        if kept:
            what = "It" if sentences else phrases.capital(self.title)
            sentences.append(f"{what} stays within that{where} under {phrases.some(kept)}.")
        return (BREAKS if broken else UNRESOLVED), sentences

    def _who_breaks(self, broken: dict[str, list[Level]], most: str) -> str:
        """Each with its worst point and how often; those with the highest figures first."""
        worst = {n: max(own, key=lambda level: level.value.value) for n, own in broken.items()}
        ordered = sorted(worst, key=lambda name: -worst[name].value.value)
        texts = []
        for name in ordered[:TOLD]:
            count = len(broken[name])
            points = len({level.point for level in self.levels if level.allocator == name})
            often = f" at {count} of {points} points, most" if points > 1 and count > 1 else ""
            texts.append(f"{name}{often}{self._at(worst[name])} ({self._text(worst[name])})")
        if len(ordered) > TOLD:
            texts.append(f"{len(ordered) - TOLD} more")
        return f"{phrases.capital(self.title)} goes beyond {most} under {phrases.and_list(texts)}."

    # --- beside it --------------------------------------------------------------------------------

    def _growth(self, names: Sequence[str]) -> list[str]:
        """How it grows with the parameter, if one is asked about: a bound that is only not reached
        yet shows itself by its exponent."""
        if self.request.parameter is None:
            return []
        parameter = self.data.swept(self.request)
        if parameter is None:
            return []
        growing, others = [], 0
        for series in self.data.series(parameter):
            for name in names:
                growth = grown(self.data, series, name, self.request.metric, self.over)
                if growth is None:
                    continue
                low = growth.exponent.low
                if low is not None and low > TOLERANCE:
                    exponent = phrases.with_interval(growth.exponent)
                    label = phrases.label(self.data, name, series.fixed)
                    growing.append((growth.exponent.value, f"{label} {exponent}"))
                else:
                    others += 1
        title = phrases.noun(parameter)
        if not growing:
            said = f"Nobody's is shown to grow with {title}, by an exponent above {TOLERANCE}."
            return [said] if others else []
        texts = [text for _, text in sorted(growing, reverse=True)]
        return [f"It grows with {title}, with these exponents: {phrases.some(texts, TOLD)}."]

    def _doubts(self, names: Sequence[str]) -> list[str]:
        sentences = []
        if all(level.value.low is None for level in self.levels):
            sentences.append("There is one figure for each point, and so no interval.")
        failed = [
            name
            for name in names
            if any(self.data.failures(point, name) for point in self.data.chosen)
        ]
        if failed:
            sentences.append(f"Left out where runs failed: {phrases.some(failed)}.")
        return sentences

    def _estimates(self) -> dict[str, Estimate]:
        return {
            phrases.key(self.data, level.allocator, self.data.points[level.point]): level.value
            for level in self.levels
        }
