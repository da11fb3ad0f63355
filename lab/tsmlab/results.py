"""The results of a study: the data model (docs/formats/results.md has each field).

Every run of every allocator is saved with everything that was measured, including failed ones,
outliers and warm-ups, so that anyone can analyse them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from tsmlab.allocators import Allocator
from tsmlab.definition import Definition, Kind
from tsmlab.errors import UserError
from tsmlab.machine import Machine
from tsmlab.metrics import MetricSpec
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.sweep import Parameter, Point, describe

SCHEMA = "tsmalloc-study/1"
# In a sample's measurement: which worker of a cluster made it, on which kind of machine.
FLEET = "fleet"

Phase = Literal["probe", "warmup", "measured"]
FailureKind = Literal["start", "timeout", "signal", "exit", "preload", "output", "metric", "load"]
StopReason = Literal[
    "runs",
    "resolved",
    "budget",
    "max-rounds",
    "reference-failed",
    "none-left",
    "interrupted",
    "aborted",
]


T = TypeVar("T")


class Stopped:
    """Results of a study that ended for some reason."""

    stop: Stop

    @property
    def interrupted(self) -> bool:
        return self.stop.reason == "interrupted"


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The results of a study, and the error that ended it early, if one did."""

    results: T
    error: UserError | None = None


@dataclass(frozen=True)
class Failure:
    kind: FailureKind
    text: str
    stderr_tail: str = ""


@dataclass(frozen=True)
class Sample:
    phase: Phase
    round: int
    position: int
    allocator: str
    replicate: int
    started_seconds: float
    padding_bytes: int
    values: dict[str, float]
    output_sha256: str | None
    output_bytes: int | None
    failure: Failure | None
    measurement: dict[str, Any]
    point: int = field(default_factory=int)

    @property
    def kind(self) -> str:
        """The kind of machine that made it, in a cluster; otherwise empty."""
        return str(self.measurement.get(FLEET, {}).get("kind", ""))


@dataclass(frozen=True)
class AllocatorInfo:
    name: str
    family: str
    version: str
    package: str | None
    path: str | None
    sha256: str | None
    env: dict[str, str]

    @staticmethod
    def of(allocator: Allocator) -> AllocatorInfo:
        return AllocatorInfo(
            name=allocator.name,
            family=allocator.family,
            version=allocator.version,
            package=allocator.package,
            path=None if allocator.path is None else str(allocator.path),
            sha256=allocator.sha256,
            env=dict(allocator.env),
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    seed: int
    runs: int | None
    min_rounds: int
    max_rounds: int
    warmup_rounds: int = 0
    time_budget_seconds: float
    timeout_seconds: float | None
    timeout_chosen_by: Literal["user", "lab"]
    margin: float
    expected_exit: int = 0
    output_checked: bool = False
    setup: str | None
    cleanup: str | None = None
    input: str | None = None
    cpus: list[int] | None = None
    metric_patterns: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Stop:
    reason: StopReason
    text: str


# Exceptions that end the measuring early; what was measured is kept.
EARLY = (KeyboardInterrupt, UserError)


def ended(problem: BaseException, results: Callable[[Stop], T]) -> Outcome[T]:
    """The outcome of something that one of EARLY ended."""
    if isinstance(problem, UserError):
        return Outcome(results(Stop("aborted", problem.message)), problem)
    return Outcome(results(Stop("interrupted", "interrupted by the user")))


@dataclass(frozen=True)
class MetricSummary:
    runs: int
    median: float
    mad: float
    minimum: float
    maximum: float
    outlier_rounds: list[int]
    bimodal: bool
    ratio: RatioEstimate | None = None
    p_adjusted: float | None = None
    verdict: Verdict | None = None
    rounds_more: int | None = None


@dataclass(frozen=True)
class Row:
    allocator: str
    attempts: int
    failures: int
    failure: Failure | None
    gave_up: bool
    metrics: dict[str, MetricSummary]
    rank: int | None
    pareto: bool


@dataclass(frozen=True)
class Leaders:
    best: str
    equal: list[str]
    unresolved: list[str]


@dataclass(frozen=True)
class ResultWarning:
    code: str
    symptom: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Analysis:
    primary_metric: str
    rounds: int
    noise_floors: dict[str, float | None]
    rows: list[Row]
    leaders: dict[str, Leaders]
    recommended: str | None


@dataclass(frozen=True)
class MachineKind:
    name: str
    workers: int
    analysis: Analysis


@dataclass(frozen=True)
class SweepPoint:
    values: Point
    analysis: Analysis


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% confidence interval; low and high are None if there is none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Curve:
    allocator: str
    metric: str
    label: str
    fixed: Point
    points: list[list[float]]


@dataclass(frozen=True)
class Finding:
    kind: Kind
    metric: str
    verdict: str
    text: str
    estimates: dict[str, Estimate]
    curves: list[Curve]


@dataclass(frozen=True)
class Causes:
    point: int
    allocator: str
    counts: dict[str, float]
    notes: list[str]


@dataclass(frozen=True)
class Comparison(Stopped):
    created: str
    tsmalloc_version: str
    command: list[str]
    reference: str
    settings: Settings
    machine: Machine
    metrics: list[MetricSpec]
    allocators: list[AllocatorInfo]
    stop: Stop
    output_comparable: bool | None
    intercepted_calls: int | None
    analysis: Analysis
    warnings: list[ResultWarning]
    samples: list[Sample]
    kinds: list[MachineKind] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    points: list[SweepPoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    experiment: Definition | None = field(default_factory=lambda: None)
    causes: list[Causes] = field(default_factory=list)
    served_by: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=str)

    @property
    def parts(self) -> list[tuple[str, Analysis]]:
        """Each point of the sweep, or the whole, with its name."""
        named = [(describe(point.values), point.analysis) for point in self.points]
        return named or [("", self.analysis)]

    def metric(self, key: str) -> MetricSpec:
        return next(spec for spec in self.metrics if spec.key == key)

    def allocator(self, name: str) -> AllocatorInfo:
        return next(info for info in self.allocators if info.name == name)

    @property
    def subject(self) -> str:
        return self.name or Path(self.command[0]).name or "program"

    @property
    def failed_rows(self) -> list[Row]:
        return [row for row in self.analysis.rows if row.failures]
