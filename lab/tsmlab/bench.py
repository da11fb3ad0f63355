"""`tsmalloc bench`: compares allocators over many programs, each with its best peer in each
program.

The best peer differs between workloads and quantities, so a ratio to it is the hardest comparison
there is: 1.00 means as good as the best competitor on every single workload. An allocator with a
failed run of a workload cannot be its best peer and has no ratio there; each mean says how many
workloads it lacks.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tsmlab import compare, fits, machine, stats
from tsmlab.allocators import Allocator
from tsmlab.analysis import LogsByRound, log_ratios, logs_by_round
from tsmlab.fleet import Fleet
from tsmlab.journal import Memo
from tsmlab.measuring import Executor
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.progress import Reporter
from tsmlab.results import Comparison, MetricSummary, Outcome, Row
from tsmlab.schedule import StopRule
from tsmlab.stats import RatioEstimate
from tsmlab.study import Mean, Overall, Score, Study, Suite, SuiteAnalysis, WorkloadAnalysis
from tsmlab.sweep import Parameter
from tsmlab.trial import SUBJECT, Program
from tsmlab.workloads import Workload

DEFAULT_ROUNDS = 5
MIN_ROUNDS = 3
# Workloads end by themselves, so this is only for one that hangs; some allocators take thirty times
# as long as others if threads free each other's blocks.
TIMEOUT_FACTOR = 60.0
MIN_TIMEOUT_SECONDS = 60.0
# A much slower peer gets no credit for low memory use, which any peer could buy with time.
QUICK = 1.5
# Warnings about the reference, which matters little here: ratios are to the best peer.
_NOT_OF_SUITES = frozenset({"short-runs", "few-calls", "several-processes", "waits"})


@dataclass(frozen=True)
class Options:
    """The options of a bench. peers and candidate are names of allocators; the first peer is the
    one that each workload is tried under first."""

    suite: Path
    workloads: tuple[Workload, ...]
    allocators: tuple[Allocator, ...]
    peers: tuple[str, ...]
    candidate: str | None
    seed: int
    rounds: int = DEFAULT_ROUNDS
    time_budget_seconds: float | None = None
    timeout_seconds: float | None = None
    cpus: tuple[int, ...] | None = None


def bench(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    memo: Memo,
    warm: Callable[[int], int] = machine.touch,
    fleet: Fleet | None = None,
) -> Outcome[Study]:
    """Runs the whole suite; on a fleet, whose machines are of one kind, if there is one."""
    names = [workload.name for workload in options.workloads]
    first = next(a for a in options.allocators if a.name == options.peers[0])
    asked = compare.Options(
        program=Program(
            command=("bench", *names),
            stdin=Path(os.devnull),
            subjects={workload.name: _program(workload) for workload in options.workloads},
        ),
        allocators=options.allocators,
        reference=first,
        seed=options.seed,
        rule=StopRule.fixed_rounds(options.rounds, options.time_budget_seconds),
        warmup_rounds=0,
        timeout_seconds=options.timeout_seconds,
        check_output=False,  # times are part of it
        consult_doctor=False,
        cpus=options.cpus,
        unresolved=lambda _: 1,  # only rounds and time end the suite
        unfit_warnings=_NOT_OF_SUITES,
        parameters=(Parameter(SUBJECT, SUBJECT, list(names)),),
        by_point=True,
        timeout_factor=TIMEOUT_FACTOR,
        min_timeout_seconds=MIN_TIMEOUT_SECONDS,
        warm=warm,
        one_kind=True,
    )
    outcome = compare.compare(asked, executor, reporter, memo, fleet)
    found = replace(outcome.results, name="bench")
    suite = Suite(
        file=str(options.suite),
        candidate=options.candidate,
        peers=list(options.peers),
        workloads=list(options.workloads),
        analysis=analyse(found, options.workloads, options.peers, options.candidate),
    )
    return Outcome(Study.of("bench", [found], suite=suite), outcome.error)


def _program(workload: Workload) -> Program:
    return Program(workload.command, Path(os.devnull), tells_time=workload.time == "seconds")


def analyse(
    comparison: Comparison,
    workloads: Sequence[Workload],
    peers: Sequence[str],
    candidate: str | None,
) -> SuiteAnalysis:
    """Each point of the comparison is a workload."""
    names = [info.name for info in comparison.allocators]
    each = [
        _Workload(comparison, index, workload, names, peers)
        for index, workload in enumerate(workloads)
    ]
    with_memory = [one for one in each if one.workload.memory]
    overall = [
        Overall(
            name,
            _mean([one.times[name] for one in each]),
            _mean([one.peaks[name] for one in with_memory]),
        )
        for name in names
    ]
    quick = _mean([one.quick_peaks[candidate] for one in with_memory]) if candidate else None
    return SuiteAnalysis(
        comparison.analysis.rounds,
        [one.analysis(candidate) for one in each],
        sorted(overall, key=_rank_key),
        quick,
    )


def _rank_key(overall: Overall) -> tuple[int, float]:
    """For sorting: an allocator that lacks many workloads may lack the hard ones."""
    mean = overall.time
    return mean.possible - mean.workloads, math.inf if mean.ratio is None else mean.ratio


class _Workload:
    """One workload's best peers, and each allocator's ratios to them. times, peaks, quick_peaks: to
    the fastest peer, the smallest one, and the smallest quick one; empty if there is none."""

    def __init__(
        self,
        comparison: Comparison,
        index: int,
        workload: Workload,
        names: Sequence[str],
        peers: Sequence[str],
    ) -> None:
        self.workload = workload
        self._seed = comparison.settings.seed
        self._samples = [s for s in comparison.samples if s.point == index]
        self._rows = {row.allocator: row for row in comparison.points[index].analysis.rows}
        times = {name: self._logs(name, TIME) for name in names}
        peaks = {name: self._logs(name, PEAK_MEMORY) for name in names}
        usable = [name for name in peers if self._rows[name].failures == 0]
        self._fastest = _least(times, usable)
        self.times = _ratios_to(self._fastest, times)
        quick = [n for n in usable if (r := self._ratio(self.times[n])) and r.ratio <= QUICK]
        self._smallest = _least(peaks, usable if workload.memory else [])
        self.peaks = _ratios_to(self._smallest, peaks)
        self._smallest_quick = _least(peaks, quick if workload.memory else [])
        self.quick_peaks = _ratios_to(self._smallest_quick, peaks)

    def _logs(self, name: str, key: str) -> LogsByRound:
        """The logarithm of a metric by round. Empty if a run failed, or a number has no logarithm:
        such a number means nothing."""
        logs, row = logs_by_round(self._samples, name, key), self._rows[name]
        summary = row.metrics.get(key)
        return logs if summary and summary.runs == len(logs) and row.failures == 0 else {}

    def analysis(self, candidate: str | None) -> WorkloadAnalysis:
        return WorkloadAnalysis(
            workload=self.workload.name,
            scores=[self._score(self._rows[name]) for name in self.times],
            fastest_peer=self._fastest,
            smallest_peer=self._smallest,
            smallest_quick_peer=self._smallest_quick,
            quick_memory=self._ratio(self.quick_peaks[candidate]) if candidate else None,
        )

    def _score(self, row: Row) -> Score:
        name, peak = row.allocator, None
        if self.workload.memory:
            peak = self._summary(row.metrics.get(PEAK_MEMORY), self.peaks[name])
        return Score(
            name=name,
            attempts=row.attempts,
            failures=row.failures,
            failure=row.failure,
            gave_up=row.gave_up,
            time=self._summary(row.metrics.get(TIME), self.times[name]),
            memory=peak,
        )

    def _summary(self, summary: MetricSummary | None, pairs: LogsByRound) -> MetricSummary | None:
        if summary is None:
            return None
        unjudged = replace(summary, p_adjusted=None, verdict=None, rounds_more=None)
        return replace(unjudged, ratio=self._ratio(pairs))

    def _ratio(self, pairs: LogsByRound) -> RatioEstimate | None:
        return stats.estimate_ratio(list(pairs.values()), self._seed) if pairs else None


def _least(logs: Mapping[str, LogsByRound], names: Sequence[str]) -> str | None:
    """The name with the lowest geometric mean over the rounds that all of them have; None without
    such a round, as long as some are still unmeasured."""
    common = set.intersection(*(set(logs[name]) for name in names)) if names else set()
    if not common:
        return None
    return min(names, key=lambda name: sum(logs[name][number] for number in common))


def _ratios_to(other: str | None, logs: Mapping[str, LogsByRound]) -> dict[str, LogsByRound]:
    """The logarithm of each allocator's ratio to another in each round; empty without another."""
    return {name: log_ratios(own, logs[other]) if other else {} for name, own in logs.items()}


def _mean(workloads: Sequence[LogsByRound]) -> Mean:
    """The geometric mean of the ratios over workloads, with its interval from round to round: each
    round runs every workload once, so its own mean is one measurement of the whole."""
    present = [pairs for pairs in workloads if pairs]
    if not present:
        return Mean(None, None, None, 0, len(workloads))
    centre = np.mean([np.mean(list(pairs.values())) for pairs in present])
    complete = fits.table_of(present).mean(axis=1)
    low = high = None
    if len(complete) > 1:
        estimate = stats.estimate_ratio(complete)
        low, high = estimate.low, estimate.high
    return Mean(math.exp(centre), low, high, len(present), len(workloads))
