"""Is one allocator better than another, paired by rounds, and why?

Why: the reports' central question (a heap per thread against one lock) and every one like it.
Refuses to: decide where the rounds do not, or to explain a difference that was not shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.experiments import phrases, reasons
from tsmlab.experiments.estimates import Logs, as_estimate, inverse, paired_ratio, ratio_of
from tsmlab.experiments.measured import Measured, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, Metric
from tsmlab.experiments.outcome import UNRESOLVED, Outcome, cannot_tell
from tsmlab.experiments.printed import printed
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.wording import share, three_digits

# The ratios of so many points that are not decided are told one by one.
POINTS_TOLD = 3
# Below this ratio it is worth saying what both have in common.
SMALL_RATIO = 1.5


@dataclass(frozen=True)
class Versus:
    """The first against the second at one point. verdict: the first is better, worse, ..."""

    point: int
    ratio: RatioEstimate
    verdict: Verdict
    rounds_more: int | None

    @property
    def estimate(self) -> Estimate:
        return as_estimate(self.ratio)


def versus(
    logs: Mapping[int, tuple[Logs, Logs]], metric: Metric, margin: float
) -> dict[int, Versus]:
    """By point, as far as rounds have both. Holm's family: the points."""
    ratios = {
        point: ratio
        for point, (first, second) in logs.items()
        if (ratio := ratio_of(paired_ratio(first, second))) is not None
    }
    tested = [point for point, ratio in ratios.items() if ratio.p_value is not None]
    p_values = stats.holm_adjust([ratios[point].p_value or 0.0 for point in tested])
    adjusted = dict(zip(tested, p_values, strict=True))
    found = {}
    for point, ratio in ratios.items():
        judgement = stats.judge(
            ratio,
            margin,
            adjusted.get(point),
            comparisons=len(tested),
            higher_is_better=metric.higher_is_better,
        )
        found[point] = Versus(point, ratio, judgement.verdict, judgement.rounds_more)
    return found


class _Pair:
    """One request, with the words for its two allocators."""

    def __init__(self, data: Measured, request: AnalysisRequest) -> None:
        self.data = data
        self.request = request
        self.first = str(request.options.get("first"))
        self.second = str(request.options.get("second"))
        self.metric = data.metric(request.metric)
        self.margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
        self.points = data.chosen
        self.found = versus(
            {
                point: (
                    data.logs(point, self.first, self.metric.name),
                    data.logs(point, self.second, self.metric.name),
                )
                for point in self.points
            },
            self.metric,
            self.margin,
        )

    # --- verdict ----------------------------------------------------------------------------------

    def at(self, verdict: Verdict) -> list[Versus]:
        return [each for each in self.found.values() if each.verdict is verdict]

    def verdict(self) -> str:
        better, worse = self.at(Verdict.BETTER), self.at(Verdict.WORSE)
        if better and worse:
            return "depends on the point"
        if better or worse:
            name = self.first if better else self.second
            count = len(better or worse)
            everywhere = count == len(self.found)
            return f"{name} better" + ("" if everywhere else f" at {count} of {len(self.found)}")
        return "equal" if len(self.at(Verdict.EQUAL)) == len(self.found) else UNRESOLVED

    # --- sentences --------------------------------------------------------------------------------

    def lead(self) -> list[str]:
        return [
            *self._won(Verdict.BETTER, self.first),
            *self._won(Verdict.WORSE, self.second),
            *self._equal(),
            *self._unresolved(),
        ]

    def _won(self, verdict: Verdict, winner: str) -> list[str]:
        """Where one of them is better, and by how much at its two extremes."""
        group = sorted(self.at(verdict), key=lambda each: -abs(math.log(each.ratio.ratio)))
        if not group:
            return []
        where = phrases.at_points(self.data, sorted(each.point for each in group))
        most, least = group[0], group[-1]
        if len(group) == 1:
            return [phrases.clause(self.data, f"{self._compared(most)}{where}")]
        best = f"{winner} is {self._word()}{where}, most{self._at(most)}"
        return [
            (
                f"{best}, where {self._compared(most)}, and least{self._at(least)}, "
                f"where {self._compared(least)}."
            )
        ]

    def _word(self) -> str:
        if phrases.is_duration(self.metric):
            return "faster"
        return "smaller" if self.metric.unit == "bytes" else "better"

    def _compared(self, each: Versus) -> str:
        return phrases.compared(self.first, self.second, each.estimate, self.metric)

    def _at(self, each: Versus) -> str:
        return phrases.at(self.data, self.data.points[each.point])

    def _equal(self) -> list[str]:
        group = self.at(Verdict.EQUAL)
        if not group:
            return []
        where = phrases.at_points(self.data, [each.point for each in group])
        ratio = f": ratio {_ratio(group[0].estimate)}" if len(group) == 1 else ""
        return [
            (
                f"{self.first} and {self.second} are equal within "
                f"{share(self.margin)} in {phrases.lower(self.metric.title)}"
                f"{where}{ratio}."
            )
        ]

    def _unresolved(self) -> list[str]:
        group = self.at(Verdict.UNRESOLVED)
        if not group:
            return []
        where = phrases.at_points(self.data, [each.point for each in group], denied=True)
        names = f"{self.first} and {self.second}"
        title = phrases.in_metric(self.metric)
        widest = max(group, key=lambda each: abs(math.log(each.ratio.ratio)))
        if all(each.ratio.pairs == 1 for each in group):
            once = self.data.is_counted(self.metric.name)
            reason = "it was counted once" if once else "there was one round"
            said = phrases.clause(self.data, f"{self._compared(widest)}{self._at(widest)}")
            return [
                (
                    f"Between {names} nothing is decided{title}{where}, since {reason}, which "
                    f"gives no interval; as it is: {said}"
                )
            ]
        ratio = f"the ratio of {self.first} to {self.second}"
        if len(group) > POINTS_TOLD:
            return [
                (
                    f"{names} are not told apart{title}{where}; {ratio} is farthest from 1"
                    f"{self._at(widest)}, {_ratio(widest.estimate)}."
                )
            ]
        if len(group) > 1:
            texts = [f"{_ratio(each.estimate)}{self._at(each)}" for each in group]
            return [f"{names} are not told apart{title}{where}; {ratio} is {'; '.join(texts)}."]
        more = widest.rounds_more
        advice = f"; about {more:,} more rounds might do" if more is not None else ""
        return [
            (
                f"{names} are not told apart{title}{where}: {ratio} is {_ratio(widest.estimate)} "
                f"after {widest.ratio.pairs} rounds{advice}."
            )
        ]

    def why(self) -> list[str]:
        """At the point with the largest shown difference each way, among those with counts."""
        if not reasons.causes_of(self.metric):
            return []
        shown = [v for v in (Verdict.BETTER, Verdict.WORSE) if self.at(v)]
        if not shown:
            points = list(self.found)
            return [*self._differences(points), *self._in_common(points)]
        if not any(self._known(each.point) for v in shown for each in self.at(v)):
            return [f"Why cannot be told: nothing was counted of {self.first} and {self.second}."]
        return [sentence for verdict in shown for sentence in self._why(verdict)]

    def _why(self, verdict: Verdict) -> list[str]:
        group = [each for each in self.at(verdict) if self._known(each.point)]
        if not group:
            return []
        counted = [each for each in group if self._is_counted(each.point)]
        each = max(counted or group, key=lambda one: abs(math.log(one.ratio.ratio)))
        # Of what is better when it is higher, the smaller figure is to be explained.
        first_needs_more = (each.ratio.ratio > 1.0) is not self.metric.higher_is_better
        sides = self._sides(each.point)
        more, less = sides if first_needs_more else sides[::-1]
        found = reasons.reasons(
            reasons.causes_of(self.metric),
            more,
            less,
            self._gap(each.point, more.name, less.name),
            self._show(),
        )
        sentences = reasons.why(found, more, less, self._at(each) if len(self.found) > 1 else "")
        if max(each.ratio.ratio, 1.0 / each.ratio.ratio) < SMALL_RATIO:
            sentences += self._in_common([each.point])
        return sentences

    def _differences(self, points: Sequence[int]) -> list[str]:
        """Counts that differ by what could be a part of the time that matters, where the time was
        not shown to differ: facts, and no reasons."""
        point = next((p for p in points if self._is_counted(p)), None)
        if point is None:
            return []
        first, second = self._sides(point)
        summary = self.data.summary(point, self.first, self.metric.name)
        size = None if summary is None else summary.median
        found = reasons.reasons(reasons.causes_of(self.metric), first, second, size, self._show())
        differ = "; ".join([*found.named, *found.against])
        where = phrases.at(self.data, self.data.points[point]) if len(self.found) > 1 else ""
        sentences = [f"The counts differ all the same{where}: {differ}."] if differ else []
        if found.shown:
            sentences.append(f"Counted beside it: {'; '.join(found.shown)}.")
        return sentences

    def _show(self) -> list[str]:
        """Causes whose counts are told in any case."""
        show = self.request.options.get("show")
        return [str(name) for name in show] if isinstance(show, list) else []

    def _sides(self, point: int) -> tuple[reasons.Side, reasons.Side]:
        return (
            reasons.Side(self.first, self.data.counts(point, self.first)),
            reasons.Side(self.second, self.data.counts(point, self.second)),
        )

    def _is_counted(self, point: int) -> bool:
        cells = [self.data.cell(point, name) for name in (self.first, self.second)]
        return all(cell is not None and cell.causes is not None for cell in cells)

    def _known(self, point: int) -> bool:
        """Whether anything that may be a cause is known of both."""
        sides = self._sides(point)
        causes = reasons.causes_of(self.metric)
        return any(all(c.amount(s.counts) is not None for s in sides) for c in causes)

    def _gap(self, point: int, more: str, less: str) -> float | None:
        """The difference to be explained, in seconds or bytes."""
        name = self.metric.name
        if self.metric.higher_is_better or self.metric.unit not in ("seconds", "bytes"):
            name = "wall_seconds"
        summaries = [self.data.summary(point, who, name) for who in (more, less)]
        if summaries[0] is None or summaries[1] is None:
            return None
        gap = summaries[0].median - summaries[1].median
        return gap if gap > 0.0 else None

    def _in_common(self, points: Sequence[int]) -> list[str]:
        """Only for a time: why two allocators are close to each other."""
        counted = [point for point in points if self._is_counted(point)]
        if not counted or not phrases.is_duration(self.metric):
            return []
        where = ""
        if len(self.found) > 1:
            where = phrases.at(self.data, self.data.points[counted[0]])
        return reasons.common_ground(*self._sides(counted[0]), where)

    # --- the reports ------------------------------------------------------------------------------

    def reported(self) -> list[str]:
        """Whose result this is, where a table has one figure of each of the two."""
        tables = printed(self.data.definition, [self.first, self.second], self.metric)
        theirs = {
            each.name: ratio
            for each in tables
            if (ratio := each.ratio(self.first, self.second)) is not None
        }
        if not theirs:
            return []
        decided = [v for v in (Verdict.BETTER, Verdict.WORSE) if self.at(v)]
        if not decided:
            sides = [self._found_there(theirs, sign) for sign in (1, -1, 0)]
            told = "; ".join(side for side in sides if side)
            equal = len(self.at(Verdict.EQUAL)) == len(self.found)
            alike = [name for name, ratio in theirs.items() if self._sign(ratio) == 0]
            if equal and alike:
                return [f"This is the result of {phrases.and_list(alike)}."]
            return [f"What was reported is neither confirmed nor refuted: {told}."]
        return [self._whose(verdict, theirs) for verdict in decided]

    def _sign(self, ratio: float) -> int:
        """Which of the two has more; 0 within the margin."""
        log = math.log(ratio)
        return 0 if abs(log) <= math.log1p(self.margin) else 1 if log > 0.0 else -1

    def _whose(self, verdict: Verdict, theirs: Mapping[str, float]) -> str:
        """Of the points at which one of the two is better: which reports say the same."""
        group = self.at(verdict)
        best = max(group, key=lambda each: abs(math.log(each.ratio.ratio)))
        ours = 1 if best.ratio.ratio > 1.0 else -1
        same = {name: ratio for name, ratio in theirs.items() if self._sign(ratio) == ours}
        opposite = {name: ratio for name, ratio in theirs.items() if self._sign(ratio) == -ours}
        equal = {name: ratio for name, ratio in theirs.items() if self._sign(ratio) == 0}
        everywhere = len(group) == len(self.found)
        where = "" if everywhere else phrases.at_points(self.data, [each.point for each in group])
        parts = [
            f"the result of {_sizes(same)}{_size(best, list(same.values()))}" if same else "",
            f"the opposite of that of {_sizes(opposite)}" if opposite else "",
            f"not that of {phrases.and_list(list(equal))}, where the two are equal"
            if equal
            else "",
        ]
        start = f"{phrases.capital(where.strip())} this" if where else "This"
        return f"{start} is {', and '.join(part for part in parts if part)}."

    def _found_there(self, theirs: Mapping[str, float], sign: int) -> str:
        """The reports in which the first (1) or the second (-1) has the larger figure, or none."""
        same = {name: ratio for name, ratio in theirs.items() if self._sign(ratio) == sign}
        if not same:
            return ""
        if sign == 0:
            return f"the two are equal in {phrases.and_list(list(same))}"
        who = self.first if sign > 0 else self.second
        verb = "takes longer" if phrases.is_duration(self.metric) else "has more"
        return f"{who} {verb} in {_sizes(same)}"

    def doubts(self) -> list[str]:
        lost = [point for point in self.points if point not in self.found]
        if not lost:
            return []
        failed = [
            name
            for name in (self.first, self.second)
            if any(self.data.failures(point, name) for point in lost)
        ]
        because = (
            f"runs of {phrases.and_list(failed)} failed"
            if failed
            else "a figure is missing or zero"
        )
        where = phrases.at_points(self.data, lost)
        return [f"There is no ratio of {self.first} to {self.second}{where}: {because}."]

    def estimates(self) -> dict[str, Estimate]:
        return {
            phrases.key(self.data, "ratio", self.data.points[each.point]): each.estimate
            for each in self.found.values()
        }


def _ratio(estimate: Estimate) -> str:
    digits = 3 if abs(math.log(estimate.value)) < 0.05 else 2
    return phrases.with_interval(estimate, digits)


def _sizes(theirs: Mapping[str, float]) -> str:
    """Reports with their ratios, from 1 up; these have no interval."""
    return phrases.and_list(
        [f"{name} ({three_digits(max(r, 1.0 / r))} times)" for name, r in theirs.items()]
    )


def _size(ours: Versus, theirs: Sequence[float]) -> str:
    """Whether ours is larger or smaller than all of theirs, if the interval says so."""
    estimate = ours.estimate if ours.ratio.ratio >= 1.0 else inverse(ours.estimate)
    sizes = [max(ratio, 1.0 / ratio) for ratio in theirs]
    if estimate.low is None or estimate.high is None:
        return ""
    if estimate.high < min(sizes):
        return ", here with a smaller difference"
    return ", here with a larger difference" if estimate.low > max(sizes) else ""


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = [str(request.options.get(each)) for each in ("first", "second")]
    absent = [name for name in names if name not in data.allocators]
    if absent:
        return cannot_tell(
            request,
            f"The comparison of {phrases.and_list(names)} was not made, since "
            f"{phrases.and_list(absent)} did not take part.",
        )
    pair = _Pair(data, request)
    if not pair.found:
        return cannot_tell(
            request, " ".join(pair.doubts()) or "No point of the sweep was chosen.", names
        )
    return Outcome(
        request,
        pair.verdict(),
        names,
        pair.estimates(),
        lead=pair.lead(),
        why=pair.why(),
        reported=pair.reported(),
        doubts=pair.doubts(),
    )
