"""A bench as text and tables: the headline, a line for each workload, means, failures.

Every number here was computed by bench.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tsmlab import stats
from tsmlab.bench import QUICK
from tsmlab.metrics import Unit
from tsmlab.render import failure_lines, full_name
from tsmlab.results import MetricSummary
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.study import Mean, Study, Suite, WorkloadAnalysis, given
from tsmlab.tables import STYLES, Block, Cell, Column
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


MEAN = "geometric mean"
BY_DEFINITION = "the best of all peers"


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


@dataclass(frozen=True)
class _Line:
    """One line of the table: what 1.00 means in it, and each allocator's number."""

    workload: str
    quantity: str
    best: str
    numbers: Mapping[str, Number]
    goal: str = ""
    style: str = ""  # for the candidate's number and goal


def table_columns(study: Study) -> list[Column]:
    """Workload, quantity, the peer at 1.00, the candidate with its goal, then all others, the
    fastest on average first. Compact: no intervals, no versions."""
    suite = given(study.suite)
    lines = [*_workload_lines(suite), *_mean_lines(suite)]
    columns = [
        Column("workload", [Cell(line.workload) for line in lines], left=True),
        Column("of", [Cell(line.quantity) for line in lines], left=True),
        Column("1.00 is", [Cell(line.best) for line in lines], left=True, drop_priority=1),
    ]
    for name in in_order(suite):
        title = full_name(study.comparison.allocator(name))
        numbers = [(line.numbers.get(name, NOT_MEASURED), line.style) for line in lines]
        if name == suite.candidate:
            cells = [Cell(n.with_interval(), style, short=n.plain()) for n, style in numbers]
            columns.append(Column(f"{title} [95% CI]", cells, short=name))
            goals = [Cell(line.goal, line.style) for line in lines]
            columns.append(Column(f"{name}'s goal", goals, left=True, drop_priority=2))
        else:
            cells = [Cell(n.with_spread(), short=n.plain()) for n, _ in numbers]
            columns.append(Column(title, cells, short=name))
    return columns


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


def _workload_lines(suite: Suite) -> Iterator[_Line]:
    for each, workload in zip(suite.workloads, suite.analysis.workloads, strict=True):
        goal = goal_of_time(suite, workload)
        text = goal.value if goal else ""
        yield _workload_line(workload, "time", workload.fastest_peer, goal, text)
        if each.memory:
            goal = verdict(workload.quick_memory)
            ratio = number_of(workload.quick_memory).with_interval()
            text = f"{ratio} to {workload.smallest_quick_peer}, {goal.value}" if goal else ""
            yield _workload_line(workload, "memory", workload.smallest_peer, goal, text)


def _workload_line(
    workload: WorkloadAnalysis,
    what: Literal["time", "memory"],
    best: str | None,
    goal: Verdict | None,
    goal_text: str,
) -> _Line:
    """The best peer's own number is 1.00 by definition and has no spread."""
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
    return _Line(
        workload=workload.workload if what == "time" else "",
        quantity=what,
        best=f"{best} {quantity(at_best.median, unit)}" if at_best else best or "-",
        numbers=numbers,
        goal=goal_text,
        style=STYLES.get(goal, "") if goal else "",
    )


def number_of(estimate: RatioEstimate | None) -> Number:
    if estimate is None:
        return NOT_MEASURED
    return Number(estimate.ratio, estimate.low, estimate.high)


def _mean_lines(suite: Suite) -> Iterator[_Line]:
    overall = suite.analysis.overall
    yield _Line(
        MEAN, "time", BY_DEFINITION, {each.name: mean_number(each.time) for each in overall}
    )
    if not any(workload.memory for workload in suite.workloads):
        return
    quick = suite.analysis.quick_memory
    yield _Line(
        workload="",
        quantity="memory",
        best=BY_DEFINITION,
        numbers={each.name: mean_number(each.memory) for each in overall},
        goal=f"{mean_number(quick).with_interval()} to the smallest quick" if quick else "",
    )


def mean_number(mean: Mean) -> Number:
    """A mean that lacks workloads says so."""
    if mean.ratio is None:
        return NOT_MEASURED
    lacks = f"({mean.workloads} of {mean.possible})" if mean.workloads < mean.possible else ""
    return Number(mean.ratio, mean.low, mean.high, lacks)
