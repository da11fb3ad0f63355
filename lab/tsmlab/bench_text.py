"""A bench as text and tables: the headline, a line for each workload, means, failures.

Every number here was computed by bench.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tsmlab import stats
from tsmlab.bench import QUICK
from tsmlab.metrics import Unit
from tsmlab.render import failure_lines, full_name
from tsmlab.results import MetricSummary
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.study import Mean, Study, Suite, WorkloadAnalysis, given
from tsmlab.tables import STYLES, Block, Cell, Column, columns_of
from tsmlab.wording import counted, quantity, rounds, share, three_digits

HASH_DIGITS = 12


def blocks(study: Study) -> Iterator[Block]:
    yield Block(lines=list(headline(given(study.suite))), style="bold")
    yield Block(lines=list(heading(study)))
    yield Block(table=table_columns(study), fails=failed_lines(study))
    yield Block(lines=list(_versions(study)), where="markdown")


def heading(study: Study) -> Iterator[str]:
    found, suite = study.comparison, given(study.suite)
    yield (
        f"{counted(len(suite.workloads), 'workload')}, {rounds(suite.analysis.rounds)}, "
        f"seed {found.settings.seed}; stopped: {study.stop.text}"
    )
    yield f"peers: {', '.join(full_name(found.allocator(name)) for name in suite.peers)}"
    yield (
        "ratios to the best peer of each row (geometric mean over the rounds, paired; 95% "
        "confidence): below 1.00 beats every peer"
    )


def headline(suite: Suite) -> Iterator[str]:
    name, analysis = suite.candidate, suite.analysis
    overall = next((each for each in analysis.overall if each.name == name), None)
    if overall is None:
        yield "No candidate took part, so no goal was judged."
        return
    verdicts = Counter(goal_of_time(suite, each) for each in analysis.workloads)
    words = [f"{each.value} in {verdicts[each]}" for each in Verdict if verdicts[each]]
    if verdicts[None]:
        words.append(f"without a result in {verdicts[None]}")
    yield (
        f"Time: {name} at {mean_number(overall.time).with_interval()} of the fastest peer of each "
        f"workload: {', '.join(words)}"
    )
    if analysis.quick_memory is None or overall.memory.possible == 0:
        return
    quick = mean_number(analysis.quick_memory).with_interval()
    yield (
        f"Memory: {name} at {mean_number(overall.memory).with_interval()} of the smallest peer, "
        f"at {quick} of the smallest quick one (which takes at most {QUICK:g} times the best time)"
    )


def failed_lines(study: Study) -> list[str]:
    """Every failure, by workload; a mean lacks a workload because of one of these, or because the
    run was interrupted."""
    return [
        line
        for each in given(study.suite).analysis.workloads
        for score in each.scores
        for line in failure_lines(f"{each.workload}: {score.name}", score)
    ]


def _versions(study: Study) -> Iterator[str]:
    for info in study.comparison.allocators:
        source = f", package {info.package}" if info.package else ""
        digest = f", SHA-256 {info.sha256[:HASH_DIGITS]}" if info.sha256 else ""
        settings = "".join(f", {key}={value}" for key, value in info.env.items())
        yield f"{info.name} {info.version}{source}{digest}{settings}"


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A ratio with its interval, where known, and a word next to it or in its place."""

    ratio: float | None
    low: float | None = None
    high: float | None = None
    word: str = ""

    def with_interval(self) -> str:
        """0.92 [0.91, 0.93]"""
        known = self.low is not None and self.high is not None
        interval = f"[{three_digits(self.low or 0)}, {three_digits(self.high or 0)}]"
        return self._joined(interval if known else "")

    def with_spread(self) -> str:
        """0.92 ±1%: the end of the interval that is farther away"""
        if self.ratio is None or self.low is None or self.high is None:
            return self._joined("")
        spread = max(self.high / self.ratio, self.ratio / self.low) - 1.0
        return self._joined(f"±{share(spread)}")

    def plain(self) -> str:
        return self._joined("")

    def _joined(self, spread: str) -> str:
        ratio = "" if self.ratio is None else three_digits(self.ratio)
        return " ".join(part for part in (ratio, spread, self.word) if part)


NOT_MEASURED = Number(None, word="-")
FAILED = Number(None, word="failed")


Line = list[str | Cell]


def table_columns(study: Study) -> list[Column]:
    """Workload, quantity, the peer at 1.00, the candidate with its goal, then all others, the
    fastest on average first. Compact: no intervals, no versions."""
    suite = given(study.suite)
    headers: list[str | Column] = ["workload", "of"]
    headers.append(Column("1.00 is", left=True, drop_priority=1))
    for name in in_order(suite):
        title = full_name(study.comparison.allocator(name))
        if name == suite.candidate:
            headers.append(Column(f"{title} [95% CI]", short=name))
            headers.append(Column(f"{name}'s goal", left=True, drop_priority=2))
        else:
            headers.append(Column(title, short=name))
    return columns_of(headers, [*_workload_lines(suite), *_mean_lines(suite)], left=2)


def _line(
    suite: Suite,
    start: Sequence[str],
    numbers: Mapping[str, Number],
    goal: str,
    verdict: Verdict | None = None,
) -> Line:
    """start: the workload, the quantity, and what 1.00 means. goal, verdict: of the candidate."""
    line: Line = [*start]
    style = STYLES.get(verdict, "") if verdict else ""
    for name in in_order(suite):
        number = numbers.get(name, NOT_MEASURED)
        if name == suite.candidate:
            line += [Cell(number.with_interval(), style, short=number.plain()), Cell(goal, style)]
        else:
            line.append(Cell(number.with_spread(), short=number.plain()))
    return line


def in_order(suite: Suite) -> list[str]:
    names = [each.name for each in suite.analysis.overall]
    return sorted(names, key=lambda name: name != suite.candidate)


def verdict(estimate: RatioEstimate | None) -> Verdict | None:
    return stats.judge(estimate).verdict if estimate else None


def goal_of_time(suite: Suite, workload: WorkloadAnalysis) -> Verdict | None:
    """The candidate against the fastest peer; None without candidate or ratio."""
    if suite.candidate is None:
        return None
    time = workload.score(suite.candidate).time
    return verdict(time.ratio if time else None)


def _workload_lines(suite: Suite) -> Iterator[Line]:
    for each, workload in zip(suite.workloads, suite.analysis.workloads, strict=True):
        goal, name = goal_of_time(suite, workload), workload.workload
        best, numbers = _numbers(workload, "time", workload.fastest_peer)
        yield _line(suite, (name, "time", best), numbers, goal.value if goal else "", goal)
        if each.memory:
            goal = verdict(workload.quick_memory)
            ratio = number_of(workload.quick_memory).with_interval()
            text = f"{ratio} to {workload.smallest_quick_peer}, {goal.value}" if goal else ""
            best, numbers = _numbers(workload, "memory", workload.smallest_peer)
            yield _line(suite, ("", "memory", best), numbers, text, goal)


def _numbers(
    workload: WorkloadAnalysis, what: Literal["time", "memory"], best: str | None
) -> tuple[str, dict[str, Number]]:
    """What 1.00 means, and each allocator's number: the best peer's own is 1.00 by definition and
    has no spread."""
    summaries: dict[str, MetricSummary | None] = {s.name: getattr(s, what) for s in workload.scores}
    numbers = {}
    for score in workload.scores:
        summary = summaries[score.name]
        numbers[score.name] = number_of(summary.ratio if summary else None)
        if score.failures:
            numbers[score.name] = FAILED
        elif score.name == best:
            numbers[score.name] = Number(1.0)
    at_best = summaries[best] if best else None
    unit: Unit = "seconds" if what == "time" else "bytes"
    return f"{best} {quantity(at_best.median, unit)}" if at_best else best or "-", numbers


def number_of(estimate: RatioEstimate | None) -> Number:
    if estimate is None:
        return NOT_MEASURED
    return Number(estimate.ratio, estimate.low, estimate.high)


def _mean_lines(suite: Suite) -> Iterator[Line]:
    overall, quick = suite.analysis.overall, suite.analysis.quick_memory
    best = "the best of all peers"
    times = {each.name: mean_number(each.time) for each in overall}
    yield _line(suite, ("geometric mean", "time", best), times, "")
    if any(workload.memory for workload in suite.workloads):
        memory = {each.name: mean_number(each.memory) for each in overall}
        goal = f"{mean_number(quick).with_interval()} to the smallest quick" if quick else ""
        yield _line(suite, ("", "memory", best), memory, goal)


def mean_number(mean: Mean) -> Number:
    """A mean that lacks workloads says so."""
    if mean.ratio is None:
        return NOT_MEASURED
    lacks = f"({mean.workloads} of {mean.possible})" if mean.workloads < mean.possible else ""
    return Number(mean.ratio, mean.low, mean.high, lacks)
