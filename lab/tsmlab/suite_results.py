"""What a run of the suite leaves behind: the data model of `tsmalloc bench`, and where it is kept.

Why: a ratio in a document must be traceable to the runs that it comes from, on which machine and of
which libraries. So every run is kept with all that was measured, also failed ones.
"""

from dataclasses import dataclass

from tsmlab import records
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo, Failure, MetricSummary, Sample, Stop, Stopped
from tsmlab.stats import RatioEstimate
from tsmlab.workloads import Workload

SCHEMA = "tsmalloc-bench/1"


@dataclass(frozen=True)
class SuiteSettings:
    """The options in effect; timeout_seconds and time_budget_seconds are None if not given."""

    seed: int
    rounds: int
    time_budget_seconds: float | None
    timeout_seconds: float | None
    cpus: list[int] | None


@dataclass(frozen=True)
class WorkloadRuns:
    """One workload, the limit of each of its runs, and all of them in the order they were made."""

    workload: Workload
    timeout_seconds: float
    samples: list[Sample]


@dataclass(frozen=True)
class Score:
    """One allocator (or floor) in one workload. Ratios are None where a run failed.

    time.ratio is to the fastest peer, memory.ratio to the smallest, to_floor to the best floor;
    memory is None where the workload's peak says nothing, and for floors.
    """

    name: str
    attempts: int
    failures: int
    failure: Failure | None
    gave_up: bool
    time: MetricSummary | None
    memory: MetricSummary | None
    to_floor: RatioEstimate | None


@dataclass(frozen=True)
class WorkloadAnalysis:
    """What one workload says. The names are None where no peer qualifies.

    smallest_quick_peer: the smallest of the peers that take at most QUICK times the fastest's time;
    quick_memory is the candidate's peak as a ratio to its.
    """

    workload: str
    scores: list[Score]
    floors: list[Score]
    fastest_peer: str | None
    smallest_peer: str | None
    smallest_quick_peer: str | None
    best_floor: str | None
    quick_memory: RatioEstimate | None

    def score(self, name: str) -> Score:
        return next(score for score in (*self.scores, *self.floors) if score.name == name)


@dataclass(frozen=True)
class Mean:
    """A geometric mean over `workloads` of the `possible` ones: where there are fewer, it lacks
    those that failed or were not measured. ratio is None if there are none at all; low and high
    where there are no two rounds that all of them completed."""

    ratio: float | None
    low: float | None
    high: float | None
    workloads: int
    possible: int


@dataclass(frozen=True)
class Overall:
    """An allocator's geometric means of its ratios to the best peer of each workload."""

    name: str
    time: Mean
    memory: Mean


@dataclass(frozen=True)
class SuiteAnalysis:
    """Everything that is computed from the runs. overall: the fastest first, incomplete ones last;
    quick_memory is the candidate's mean, None where there is no candidate."""

    rounds: int
    workloads: list[WorkloadAnalysis]
    overall: list[Overall]
    quick_memory: Mean | None


@dataclass(frozen=True)
class SuiteResults(Stopped):
    """A whole run of the suite, as it is saved.

    candidate: the allocator whose goals are judged; peers: the names of those that are not ours.
    changed: programs and libraries that were not the same at the end as at the beginning.
    """

    schema: str
    created: str
    tsmalloc_version: str
    suite: str
    settings: SuiteSettings
    machine: Machine
    allocators: list[AllocatorInfo]
    floors: list[AllocatorInfo]
    candidate: str | None
    peers: list[str]
    stop: Stop
    changed: list[str]
    analysis: SuiteAnalysis
    runs: list[WorkloadRuns]

    @property
    def subject(self) -> str:
        return "bench"

    @property
    def failed(self) -> list[tuple[str, Score]]:
        """Each workload's name with each score that has a failed run, floors included."""
        return [
            (each.workload, score)
            for each in self.analysis.workloads
            for score in (*each.scores, *each.floors)
            if score.failures
        ]

    def allocator(self, name: str) -> AllocatorInfo:
        return next(info for info in (*self.allocators, *self.floors) if info.name == name)


from_json = records.reader(SuiteResults, SCHEMA, "bench")
