"""From the suite's runs to ratios: each allocator against the best of its peers, and the means.

Why: "the best peer" is a different one in each workload and for each quantity, so a ratio to it is
the hardest comparison there is: an allocator that is at 1.00 everywhere is as good as all of its
rivals together. Pairing, intervals and summaries are compare's own (analysis.py, stats.py).
Refuses to: let a failure pass for a result. An allocator that failed a single run of a workload is
no best peer in it and has no ratio there. Each mean says how many workloads it lacks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tsmlab import stats
from tsmlab.analysis import LogsByRound, log_ratios, logs_by_round, row_of
from tsmlab.metrics import BUILT_IN, CUSTOM, PEAK_MEMORY, TIME, MetricSpec
from tsmlab.results import MetricSummary
from tsmlab.stats import RatioEstimate
from tsmlab.suite_results import Mean, Overall, Score, SuiteAnalysis, WorkloadAnalysis, WorkloadRuns
from tsmlab.workloads import Workload

# Little memory is no merit in a peer that is much slower: any peer could have that at that price.
QUICK = 1.5


@dataclass(frozen=True)
class Field:
    """What takes part: all allocators, which of them are peers, and whose goals are judged."""

    allocators: tuple[str, ...]
    peers: tuple[str, ...]
    candidate: str | None
    seed: int


def time_metric(workload: Workload) -> MetricSpec:
    """Where the workload's time is found in a sample: what it printed, or the wall time."""
    if workload.time == "seconds":
        return MetricSpec(CUSTOM, "time", "seconds", judged=True)
    return next(spec for spec in BUILT_IN if spec.key == TIME)


def analyse(runs: Sequence[WorkloadRuns], field: Field) -> SuiteAnalysis:
    """The whole analysis; workloads are in the order of `runs`."""
    workloads = [_Workload(each, field) for each in runs]
    analyses = [each.analysis() for each in workloads]
    with_memory = [each for each in workloads if each.memory]
    overall = [
        Overall(
            name,
            _mean([each.time_pairs(name) for each in workloads]),
            _mean([each.memory_pairs(name) for each in with_memory]),
        )
        for name in field.allocators
    ]
    quick = None
    if field.candidate is not None:
        quick = _mean([each.quick_memory_pairs(field.candidate) for each in with_memory])
    measured = {s.round for each in runs for s in each.samples if s.phase == "measured"}
    return SuiteAnalysis(len(measured), analyses, sorted(overall, key=_standing), quick)


def _standing(overall: Overall) -> tuple[int, float]:
    """For sorting: what lacks many workloads may lack the hard ones."""
    mean = overall.time
    return mean.possible - mean.workloads, math.inf if mean.ratio is None else mean.ratio


class _Workload:
    """One workload's logarithms by allocator and round, and the best in it."""

    def __init__(self, runs: WorkloadRuns, field: Field) -> None:
        workload = runs.workload
        self._name = workload.name
        self._field = field
        self._seed = field.seed
        self._floor_names = workload.floors
        self._samples = runs.samples
        self._time = time_metric(workload)
        self.memory = workload.memory
        names = (*field.allocators, *workload.floors)
        metrics = [self._time, *(spec for spec in BUILT_IN if spec.key == PEAK_MEMORY)]
        self._rows = {name: row_of(name, runs.samples, metrics) for name in names}
        self._times = {name: self._logs(name, self._time.key) for name in names}
        self._peaks = {name: self._logs(name, PEAK_MEMORY) for name in field.allocators}
        peers = self._clean(field.peers)
        self._fastest = _least(self._times, peers)
        self._smallest = self._smallest_quick = None
        if workload.memory:
            self._smallest = _least(self._peaks, peers)
            self._smallest_quick = _least(self._peaks, [n for n in peers if self._is_quick(n)])
        self._best_floor = _least(self._times, self._clean(workload.floors))

    def _clean(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._rows[name].failures == 0]

    def _logs(self, name: str, key: str) -> LogsByRound:
        """The logarithm of a metric by round. Empty for one with a failed run, and where a number
        has no logarithm: such a number means nothing."""
        logs = logs_by_round(self._samples, name, key)
        summary = self._rows[name].metrics.get(key)
        whole = summary is not None and summary.runs == len(logs)
        return logs if whole and self._rows[name].failures == 0 else {}

    def _is_quick(self, name: str) -> bool:
        ratio = self._ratio(self.time_pairs(name))
        return ratio is not None and ratio.ratio <= QUICK

    def time_pairs(self, name: str) -> LogsByRound:
        """The logarithm of the ratio to the fastest peer in each round; empty if there is none."""
        return _against(self._times, name, self._fastest)

    def memory_pairs(self, name: str) -> LogsByRound:
        return _against(self._peaks, name, self._smallest)

    def quick_memory_pairs(self, name: str) -> LogsByRound:
        return _against(self._peaks, name, self._smallest_quick)

    def analysis(self) -> WorkloadAnalysis:
        candidate = self._field.candidate
        return WorkloadAnalysis(
            workload=self._name,
            scores=[self._score(name) for name in self._field.allocators],
            floors=[self._score(name) for name in self._floor_names],
            fastest_peer=self._fastest,
            smallest_peer=self._smallest,
            smallest_quick_peer=self._smallest_quick,
            best_floor=self._best_floor,
            quick_memory=self._ratio(self.quick_memory_pairs(candidate)) if candidate else None,
        )

    def _score(self, name: str) -> Score:
        row = self._rows[name]
        memory = None
        if self.memory and name not in self._floor_names:
            memory = self._summary(name, PEAK_MEMORY, self.memory_pairs(name))
        return Score(
            name=name,
            attempts=row.attempts,
            failures=row.failures,
            failure=row.failure,
            gave_up=row.gave_up,
            time=self._summary(name, self._time.key, self.time_pairs(name)),
            memory=memory,
            to_floor=self._ratio(_against(self._times, name, self._best_floor)),
        )

    def _summary(self, name: str, key: str, pairs: LogsByRound) -> MetricSummary | None:
        summary = self._rows[name].metrics.get(key)
        return None if summary is None else replace(summary, ratio=self._ratio(pairs))

    def _ratio(self, pairs: LogsByRound) -> RatioEstimate | None:
        return stats.estimate_ratio(list(pairs.values()), self._seed) if pairs else None


def _least(logs: Mapping[str, LogsByRound], names: Sequence[str]) -> str | None:
    """The one with the lowest geometric mean, over the rounds that all of them have; None if there
    is no such round, as long as not all of them have been measured."""
    common = set.intersection(*(set(logs[name]) for name in names)) if names else set()
    if not common:
        return None
    return min(names, key=lambda name: sum(logs[name][number] for number in common))


def _against(logs: Mapping[str, LogsByRound], name: str, other: str | None) -> LogsByRound:
    return {} if other is None else log_ratios(logs[name], logs[other])


def _mean(workloads: Sequence[LogsByRound]) -> Mean:
    """The geometric mean over workloads of the ratios, and its interval from round to round: each
    round has all workloads once, so its own mean is one measurement of the whole."""
    present = [pairs for pairs in workloads if pairs]
    if not present:
        return Mean(None, None, None, 0, len(workloads))
    centre = sum(sum(pairs.values()) / len(pairs) for pairs in present) / len(present)
    complete = sorted(set.intersection(*(set(pairs) for pairs in present)))
    low = high = None
    if len(complete) > 1:
        means = [sum(pairs[number] for pairs in present) / len(present) for number in complete]
        estimate = stats.estimate_ratio(means)
        low, high = estimate.low, estimate.high
    return Mean(math.exp(centre), low, high, len(present), len(workloads))
