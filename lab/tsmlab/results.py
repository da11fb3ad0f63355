"""What a comparison leaves behind: the data model, its JSON form, and where it is kept.

Why: a table is an opinion; the samples are the evidence. Every run of every allocator is kept with
all that was measured, so that anyone can analyse them again (docs/results-schema.md: each field).
Refuses to: filter. A failed run, an outlier and the warm-up are in the file like all others.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import tempfile
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tsmlab import paths
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.machine import Machine
from tsmlab.metrics import MetricSpec
from tsmlab.stats import RatioEstimate, Verdict

SCHEMA = "tsmalloc-compare/1"

Phase = Literal["probe", "warmup", "measured"]
FailureKind = Literal["start", "timeout", "signal", "exit", "preload", "output", "metric"]
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


@dataclass(frozen=True)
class Failure:
    """Why a run does not count. stderr_tail: the last lines that the program wrote there."""

    kind: FailureKind
    text: str
    stderr_tail: str = ""


@dataclass(frozen=True)
class Sample:
    """One run. replicate 1 is the reference's second run in a round (the A/A control)."""

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


@dataclass(frozen=True)
class Settings:
    """The options in effect. timeout_seconds is None only if no run was ever limited."""

    seed: int
    runs: int | None
    min_rounds: int
    max_rounds: int
    warmup_rounds: int
    time_budget_seconds: float
    timeout_seconds: float | None
    timeout_chosen_by: Literal["user", "lab"]
    margin: float
    expected_exit: int
    output_checked: bool
    metric_pattern: str | None
    setup: str | None
    cleanup: str | None
    input: str | None
    cpus: list[int] | None


@dataclass(frozen=True)
class Stop:
    reason: StopReason
    text: str


@dataclass(frozen=True)
class MetricSummary:
    """One metric of one allocator; the fields from `ratio` on only where it is judged."""

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
    """One allocator's result. rank and pareto only where no run failed."""

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
    """The best by one metric, those shown equal to it, and those not told apart from it yet."""

    best: str
    equal: list[str]
    unresolved: list[str]


@dataclass(frozen=True)
class Trouble:
    """A warning: what was seen, what it probably comes from, and the option that helps."""

    code: str
    symptom: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Analysis:
    """All that is computed from the samples; rows are sorted best first, failed ones last."""

    primary_metric: str
    rounds: int
    noise_floors: dict[str, float | None]
    rows: list[Row]
    leaders: dict[str, Leaders]
    recommended: str | None


@dataclass(frozen=True)
class Comparison:
    """A whole comparison, as it is saved."""

    schema: str
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
    warnings: list[Trouble]
    samples: list[Sample]

    def metric(self, key: str) -> MetricSpec:
        return next(spec for spec in self.metrics if spec.key == key)

    def allocator(self, name: str) -> AllocatorInfo:
        return next(info for info in self.allocators if info.name == name)

    @property
    def interrupted(self) -> bool:
        return self.stop.reason == "interrupted"

    @property
    def failed_rows(self) -> list[Row]:
        return [row for row in self.analysis.rows if row.failures]


# --- JSON ----------------------------------------------------------------------------------------


def to_json(comparison: Comparison) -> str:
    """Indented ASCII (file names may hold any byte); NaN and infinities cannot occur."""
    plain = dataclasses.asdict(comparison)
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def from_json(text: str, source: str = "the results") -> Comparison:
    """The inverse of to_json. Unknown fields are ignored: a later minor version may add some."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(f"{source} is not JSON: {error}.", "Was it cut off or edited?") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        found = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UserError(
            f"{source} cannot be read: {found}, not {SCHEMA!r}.",
            "Give a file that `tsmalloc compare` saved or wrote with --export-json.",
        )
    try:
        comparison = _restore(Comparison, data)
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(f"{source} is damaged: {error}.", "Was it edited by hand?") from error
    assert isinstance(comparison, Comparison)
    return comparison


def _restore(kind: Any, value: Any) -> Any:
    """Rebuilds a value of the annotated type `kind` from JSON's plain values."""
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (a for a in arguments if a is not type(None))
        return _restore(inner, value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, arguments))}")
        return value
    if origin is list:
        return [_restore(arguments[0], item) for item in _expect(list, value)]
    if origin is dict:
        return {key: _restore(arguments[1], item) for key, item in _expect(dict, value).items()}
    if dataclasses.is_dataclass(kind):
        return _restore_dataclass(typing.cast(type, kind), _expect(dict, value))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    return _expect(kind, value)


def _restore_dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    known = {}
    for field in dataclasses.fields(kind):
        if field.name not in data:
            raise ValueError(f"{kind.__name__} lacks the field {field.name!r}")
        known[field.name] = _restore(hints[field.name], data[field.name])
    return kind(**known)


def _expect(kind: type, value: Any) -> Any:
    # bool is an int to isinstance(), but not to a reader of the file.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    return value


# --- files ---------------------------------------------------------------------------------------


def write_atomically(path: Path, text: str) -> None:
    """Writes all or nothing: readers never see half a file, and a full disk leaves the old one.

    What is not a regular file (a pipe, /dev/stdout) is written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def save(comparison: Comparison, folders: Iterable[Path] | None = None) -> Path:
    """Keeps the comparison in the first folder that takes it, and returns the file's path."""
    places = list(folders) if folders is not None else default_folders()
    moment = datetime.fromisoformat(comparison.created).strftime("%Y%m%d-%H%M%S")
    program = Path(comparison.command[0]).name or "program"
    name = f"{moment}-{program}-{os.getpid()}.json"
    text = to_json(comparison)
    problems = []
    for folder in places:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, text)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            return folder / name
    raise UserError(
        f"the results could not be kept anywhere ({'; '.join(problems)}).",
        "Free some space, or set XDG_STATE_HOME to a folder that can be written to.",
    )


def default_folders() -> list[Path]:
    return [paths.state_dir() / "results", Path(tempfile.gettempdir()), Path.cwd()]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
