"""The document that every measuring verb produces: its comparisons, and its answer.

`compare`, `service`, `bench` and `gate` have one comparison, `experiment`, `replay` and `tune`
several. A verb's conclusions beyond their own verdicts are in the field with its name.
docs/formats/results.md describes all fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from tsmlab import __version__, records
from tsmlab.machine import Machine
from tsmlab.metrics import MetricSpec, Unit
from tsmlab.results import (
    SCHEMA,
    AllocatorInfo,
    Comparison,
    Failure,
    MetricSummary,
    Outcome,
    ResultWarning,
    Row,
    Stop,
    Stopped,
)
from tsmlab.service.results import ServiceResult
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.traces.replay_results import Replays
from tsmlab.tune_options import Option
from tsmlab.warnings import about_machine
from tsmlab.wording import names
from tsmlab.workloads import Workload

T = TypeVar("T")
Verb = Literal["compare", "service", "bench", "experiment", "replay", "gate", "tune"]


@dataclass(frozen=True)
class Score:
    name: str
    attempts: int
    failures: int
    failure: Failure | None
    gave_up: bool
    time: MetricSummary | None
    memory: MetricSummary | None


@dataclass(frozen=True)
class WorkloadAnalysis:
    workload: str
    scores: list[Score]
    fastest_peer: str | None
    smallest_peer: str | None
    smallest_quick_peer: str | None
    quick_memory: RatioEstimate | None

    def score(self, name: str) -> Score:
        return next(score for score in self.scores if score.name == name)


@dataclass(frozen=True)
class Mean:
    """A geometric mean over `workloads` of the `possible` ones: if there are fewer, the others
    failed or were not measured. ratio is None if there are none; low and high are None without two
    rounds that all of them completed."""

    ratio: float | None
    low: float | None
    high: float | None
    workloads: int
    possible: int


@dataclass(frozen=True)
class Overall:
    name: str
    time: Mean
    memory: Mean


@dataclass(frozen=True)
class SuiteAnalysis:
    rounds: int
    workloads: list[WorkloadAnalysis]
    overall: list[Overall]
    quick_memory: Mean | None


@dataclass(frozen=True)
class Suite:
    file: str
    candidate: str | None
    peers: list[str]
    workloads: list[Workload]
    analysis: SuiteAnalysis


GateVerdict = Literal["pass", "regression", "unresolved", "measured"]


@dataclass(frozen=True)
class GateRow:
    metric: str
    name: str
    unit: Unit
    limit: float | None
    baseline: float | None
    candidate: float | None
    ratio: RatioEstimate | None
    verdict: GateVerdict
    rounds_more: int | None = None


@dataclass(frozen=True)
class Gate:
    command: list[str]
    against: list[str]
    baseline_file: str | None
    deterministic: bool
    rows: list[GateRow]


Objective = Literal["time", "memory", "both", "metric"]
Fate = Literal["best", "worse half", "no better", "failed", "out of time"]


@dataclass(frozen=True)
class TuneRow:
    metric: str
    name: str
    unit: Unit
    before: float | None
    after: float | None
    ratio: RatioEstimate | None
    verdict: Verdict
    rounds_more: int | None


@dataclass(frozen=True)
class RaceEntry:
    change: str
    rounds: int
    ratios: dict[str, RatioEstimate]
    fate: Fate
    failure: str | None = None


@dataclass(frozen=True)
class Step:
    base: list[str]
    raced: list[RaceEntry]
    change: str | None = None
    rows: list[TuneRow] | None = None
    confirmed: bool = False


@dataclass(frozen=True)
class Tune:
    command: list[str]
    allocator: AllocatorInfo
    objective: Objective
    goal: MetricSpec
    seed: int
    margin: float
    deterministic: bool
    options: list[Option]
    unknown: list[str]
    steps: list[Step]
    settings: list[str]
    variables: dict[str, str]
    rows: list[TuneRow]


@dataclass(frozen=True)
class Study(Stopped):
    schema: str
    verb: Verb
    created: str
    tsmalloc_version: str
    machine: Machine
    stop: Stop
    changed: list[str]
    parts: list[Comparison]
    suite: Suite | None = None
    gate: Gate | None = None
    tune: Tune | None = None
    replay: Replays | None = None
    service: ServiceResult | None = field(default_factory=lambda: None)

    @staticmethod
    def of(
        verb: Verb,
        parts: Sequence[Comparison],
        created: str | None = None,
        machine: Machine | None = None,
        stop: Stop | None = None,
        **answer: Any,
    ) -> Study:
        """Fields that are not given are taken from the last part."""
        return Study(
            schema=SCHEMA,
            verb=verb,
            created=created or parts[0].created,
            tsmalloc_version=__version__,
            machine=machine or parts[0].machine,
            stop=stop or parts[-1].stop,
            changed=[],
            parts=list(parts),
            **answer,
        )

    @property
    def comparison(self) -> Comparison:
        """The only one, or the first."""
        return self.parts[0]

    @property
    def subject(self) -> str:
        if self.verb in ("bench", "experiment"):
            return self.verb
        if self.replay:
            first = self.replay.parts[0].trace.name if self.parts else ""
            return f"replay-{Path(first).name}"
        answer = self.tune or self.gate
        name = self.comparison.subject if answer is None else Path(answer.command[0]).name
        return name if self.verb == "compare" else f"{self.verb}-{name or 'program'}"

    @property
    def failed_rows(self) -> list[Row]:
        return [row for part in self.parts for row in part.failed_rows]

    @property
    def warnings(self) -> list[ResultWarning]:
        """The warnings of all parts, each once; those about the machine are the same in all. For a
        search, those of the last part."""
        parts = self.parts[-1:] if self.tune else self.parts
        every = [warning for part in parts for warning in part.warnings]
        machine = {warning.code for warning in about_machine(self.machine)}
        once = list({(t.code, t.code in machine or t.symptom): t for t in every}.values())
        mixed = ResultWarning(
            "changed",
            f"changed during the run: {names(self.changed)}",
            "they were edited, rebuilt or reinstalled",
            "measure again, and build elsewhere: these numbers mix two versions",
        )
        return [mixed, *once] if self.changed else once


def given(answer: T | None) -> T:
    """A field of a study that its verb always sets, such as `gate` after a gate."""
    assert answer is not None
    return answer


def study_of(verb: Verb, outcome: Outcome[Comparison]) -> Outcome[Study]:
    """For a verb that is a single comparison."""
    return Outcome(Study.of(verb, [outcome.results]), outcome.error)


def from_json(text: str, source: str = "the results") -> Study:
    """The inverse of records.to_json."""
    remedy = "Give a file that `tsmalloc compare` saved or wrote with --export-json."
    return records.from_json(Study, SCHEMA, text, source, remedy)


def read(path: Path, make: str, what: str = "file") -> Study:
    """The results in a file; raises UserError, with the remedy `make`, if it holds none."""
    return records.from_json(Study, SCHEMA, records.text_of(path, make, what), str(path), make)
