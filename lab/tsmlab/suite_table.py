"""The suite's one table: a workload's lines are its time, its memory, and its distance to a floor.

Why: a wall of absolute numbers shows nothing; beside the best peer of its line each number says at
once how good it is, whichever peer that happens to be.
Refuses to: compute, and to leave a hole. Who failed or was not measured has a word in its cell.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.render import full_name
from tsmlab.results import MetricSummary
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.suite_results import Mean, Score, SuiteResults, WorkloadAnalysis
from tsmlab.tables import STYLES, Cell, Column, Layout
from tsmlab.wording import quantity, share, three_digits

MEAN = "geometric mean"
BY_DEFINITION = "the best of all peers"


@dataclass(frozen=True)
class Number:
    """A ratio with its interval, where known, and a word: beside it, or in its place."""

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
        """0.92 ±1 %: the farther end of the interval"""
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
    """One line of the table: what 1.00 is in it, and each allocator's number."""

    workload: str
    quantity: str
    best: str
    numbers: Mapping[str, Number]
    goal: str = ""
    style: str = ""  # of the candidate's number and goal


def table_columns(suite: SuiteResults, layout: Layout) -> list[Column]:
    """Workload, quantity, who is 1.00, the candidate with its goal, then all others: the fastest in
    the mean first. Compact: no intervals, no versions."""
    lines = [*_workload_lines(suite), *_mean_lines(suite)]
    infos = suite.allocators
    titles = {info.name: info.name if layout.compact else full_name(info) for info in infos}
    columns = [
        Column("workload", [Cell(line.workload) for line in lines], left=True),
        Column("of", [Cell(line.quantity) for line in lines], left=True),
        Column("1.00 is", [Cell(line.best) for line in lines], left=True, expendable=1),
    ]
    for name in _order(suite):
        numbers = [line.numbers.get(name, NOT_MEASURED) for line in lines]
        if name == suite.candidate:
            form = Number.plain if layout.compact else Number.with_interval
            cells = [Cell(form(n), line.style) for n, line in zip(numbers, lines, strict=True)]
            header = titles[name] if layout.compact else f"{titles[name]} [95 % CI]"
            columns.append(Column(header, cells))
            goals = [Cell(line.goal, line.style) for line in lines]
            columns.append(Column(f"{name}'s goal", goals, left=True, expendable=2))
        else:
            form = Number.plain if layout.compact else Number.with_spread
            columns.append(Column(titles[name], [Cell(form(number)) for number in numbers]))
    return columns


def _order(suite: SuiteResults) -> list[str]:
    """The candidate first."""
    names = [each.name for each in suite.analysis.overall]
    return sorted(names, key=lambda name: name != suite.candidate)


def verdict(estimate: RatioEstimate | None) -> Verdict | None:
    """Whether a ratio to somebody is better or worse than 1, by compare's margin."""
    return stats.judge(estimate).verdict if estimate else None


def goal_of_time(suite: SuiteResults, workload: WorkloadAnalysis) -> Verdict | None:
    """The candidate against the fastest peer; None without candidate or ratio."""
    if suite.candidate is None:
        return None
    time = workload.score(suite.candidate).time
    return verdict(time.ratio if time else None)


def _workload_lines(suite: SuiteResults) -> Iterator[_Line]:
    for runs, workload in zip(suite.runs, suite.analysis.workloads, strict=True):
        yield _time_line(suite, workload)
        if runs.workload.memory:
            yield _memory_line(workload)
        if workload.floors:
            yield _floor_line(workload)


def _time_line(suite: SuiteResults, workload: WorkloadAnalysis) -> _Line:
    goal = goal_of_time(suite, workload)
    return _Line(
        workload=workload.workload,
        quantity="time",
        best=_best(workload, workload.fastest_peer, "time"),
        numbers=_numbers(workload, workload.fastest_peer, lambda score: score.time),
        goal=goal.value if goal else "",
        style=STYLES.get(goal, "") if goal else "",
    )


def _memory_line(workload: WorkloadAnalysis) -> _Line:
    quick = workload.quick_memory
    found = verdict(quick)
    goal = ""
    if quick and found:
        ratio = Number(quick.ratio, quick.low, quick.high).with_interval()
        goal = f"{ratio} to {workload.smallest_quick_peer}, {found.value}"
    return _Line(
        workload="",
        quantity="memory",
        best=_best(workload, workload.smallest_peer, "memory"),
        numbers=_numbers(workload, workload.smallest_peer, lambda score: score.memory),
        goal=goal,
        style=STYLES.get(found, "") if found else "",
    )


def _floor_line(workload: WorkloadAnalysis) -> _Line:
    """The floors that failed are told below the table, with the others."""
    numbers = {
        score.name: _estimate(score.to_floor) if not score.failures else FAILED
        for score in workload.scores
    }
    return _Line("", "to floor", _best(workload, workload.best_floor, "time"), numbers)


def _best(workload: WorkloadAnalysis, name: str | None, which: str) -> str:
    """Whose number is 1.00, and its median."""
    if name is None:
        return "-"
    score = workload.score(name)
    if which == "memory":
        return f"{name} {quantity(score.memory.median, 'bytes')}" if score.memory else name
    return f"{name} {quantity(score.time.median, 'seconds')}" if score.time else name


def _numbers(
    workload: WorkloadAnalysis, best: str | None, pick: Callable[[Score], MetricSummary | None]
) -> dict[str, Number]:
    """Each allocator's number; the best peer's own is 1.00 by definition and has no spread."""
    numbers = {}
    for score in workload.scores:
        summary = pick(score)
        numbers[score.name] = _estimate(summary.ratio if summary else None)
        if score.failures:
            numbers[score.name] = FAILED
        elif score.name == best:
            numbers[score.name] = Number(1.0)
    return numbers


def _estimate(estimate: RatioEstimate | None) -> Number:
    if estimate is None:
        return NOT_MEASURED
    return Number(estimate.ratio, estimate.low, estimate.high)


def _mean_lines(suite: SuiteResults) -> Iterator[_Line]:
    overall = suite.analysis.overall
    yield _Line(
        MEAN, "time", BY_DEFINITION, {each.name: mean_number(each.time) for each in overall}
    )
    if not any(runs.workload.memory for runs in suite.runs):
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
