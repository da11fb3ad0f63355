"""Runs a command once under an allocator and says what it cost; reads the counting shim's records.

Why: everything that is measured goes through one request and one answer. The scheduler, the
statistics and the tests do not know how a program is started, and a mock can stand in for it.
Refuses to: measure in Python. The kernel folds the launcher's memory into the program's peak, so
the native `measure` starts the program, and this module only speaks with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from tsmlab import paths, records
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError

SCHEMA = "tsmalloc-measure/1"

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunRequest:
    """One run: what to start, under which allocator, and with what around it.

    The program sees this process's environment, changed by the allocator's variables and then by
    `env`. Without `stdin` it reads nothing (every run must read the same); without `stdout` or
    `stderr` it shares ours. `preload_first` goes before the allocator: that is where the counting
    shim belongs. Redirections are relative to our folder, the command to `cwd`. series_points: at
    how many moments, at most, the answer tells the memory of the process tree.
    """

    command: tuple[str, ...]
    allocator: Allocator
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None
    stdout: Path | None = None
    stderr: Path | None = None
    timeout_seconds: float | None = None
    cwd: Path | None = None
    preload_first: tuple[Path, ...] = ()
    sample_ms: int = 10
    series_points: int = 0

    def preloads(self) -> tuple[Path, ...]:
        """The libraries to preload, in the loader's order."""
        own = (self.allocator.path,) if self.allocator.path else ()
        return (*self.preload_first, *own)


@dataclass(frozen=True)
class SpawnError:
    """Why the program never ran."""

    errno: int
    message: str


@dataclass(frozen=True)
class Preloaded:
    """Whether a library that was asked for was seen in the program; None: it ended too early."""

    path: str
    mapped: bool | None


@dataclass(frozen=True)
class Ended:
    """How a program ended, as every native tool tells it."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    interrupted: bool
    spawn_error: SpawnError | None
    timeout_ns: int | None

    @property
    def failed(self) -> bool:
        """True unless the program ran to its end and exited with status 0."""
        return self.interrupted or self.timed_out or self.exit_code != 0

    def failure_text(self) -> str:
        """How the run failed, in a few words for a table; "ok" if it did not."""
        if self.spawn_error:
            return f"could not start: {self.spawn_error.message}"
        if self.interrupted:
            return "interrupted"
        if self.timed_out:
            return f"timed out after {(self.timeout_ns or 0) / 1e9:g} s"
        if self.signal is not None:
            return _signal_name(self.signal)
        if self.exit_code is None:
            return "could not be ended"
        return f"exit {self.exit_code}" if self.exit_code else "ok"


@dataclass(frozen=True)
class Measurement(Ended):
    """The fields of the answer of `measure` that the lab needs; lab/native/README.md says what each
    number means.

    None stands for "could not be told". Where the program never ran (`spawn_error`), the quantities
    that are never None are 0. `series`: nanoseconds since the start, and the resident bytes of the
    process tree. `raw` is the answer as it came. `extra`: quantities that a program told of itself,
    by their keys among the metrics.
    """

    wall_ns: int
    user_ns: int
    system_ns: int
    peak_rss_bytes: int
    tree_peak_rss_bytes: int | None
    minor_faults: int
    major_faults: int
    preloaded: tuple[Preloaded, ...]
    samples: int
    sampling_ns: int
    floor_bytes: int
    series: tuple[tuple[int, int], ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    raw: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Measurement:
        """The answer as `measure` wrote it."""
        require_schema(raw, "measure", SCHEMA)
        known = {name: raw[name] or 0 for name in _KNOWN}
        kept = {"series": [], **raw, **known, "raw": raw}
        return cast(Measurement, records.restore(Measurement, kept))


# The quantities that are never None, though the tool tells none where the program never ran.
_KNOWN = ("wall_ns", "user_ns", "system_ns", "peak_rss_bytes", "minor_faults", "major_faults")


def read_answer(text: str, tool: str, schema: str) -> dict[str, Any]:
    """The line of JSON that a tool answers with; raises UserError for anything else."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise _not_of_one_version(f"{tool} did not answer with a line of JSON: {error}.") from error
    answer: dict[str, Any] = raw if isinstance(raw, dict) else {}
    require_schema(answer, tool, schema)
    return answer


class Told(Generic[Value]):
    """What is found under some keys of a tool's answer (the field `raw`), as a value."""

    def __init__(self, make: Callable[[Any], Value], *keys: str) -> None:
        self._make = make
        self._keys = keys

    def __get__(self, owner: Any, _kind: type) -> Value:
        found = owner.raw
        for key in self._keys:
            found = found[key]
        return self._make(found)


def rows_of(kind: Callable[..., Value]) -> Callable[[Any], list[Value]]:
    """Lists of numbers by their names; none where there is nothing."""
    return lambda rows: [kind(*row) for row in rows or []]


def seconds_of(nanoseconds: Any) -> float:
    return float(nanoseconds) / 1e9


def whole_or_none(value: Any) -> int | None:
    return None if value is None else int(value)


def counts_of(calls: Any) -> dict[str, int]:
    return {kind: int(number) for kind, number in calls.items()}


def require_schema(raw: dict[str, Any], tool: str, schema: str) -> None:
    if raw.get("schema") != schema:
        raise _not_of_one_version(
            f"{tool} answered in the schema {raw.get('schema')!r}, not in {schema!r}."
        )


def _not_of_one_version(problem: str) -> UserError:
    return UserError(problem, f"The tools and the lab have to be of one version. {paths.remedy()}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class Executor(Protocol):
    """Carries requests out."""

    def run(self, request: RunRequest) -> Measurement:
        """Runs the command once and waits for it; a failing program is an answer, not an error."""


class NativeTool:
    """A built program that runs another one, and answers with a line of JSON in a file.

    refusals: what it means when the tool itself ends with one of these statuses.
    """

    def __init__(self, tool: Path, refusals: Mapping[int, UserError] | None = None) -> None:
        self._tool = tool
        self._refusals = refusals or {}

    def run(self, arguments: list[str]) -> dict[str, Any]:
        """Runs it once. Ctrl-C ends the program's whole process tree, then goes on up."""
        # A file and not a pipe: what the program leaves running would hold a pipe open.
        with tempfile.NamedTemporaryFile(prefix="tsmalloc-answer-") as answer:
            own = ["--output", answer.name, "--parent", str(os.getpid())]
            status = self._wait(self._start([*own, *arguments]))
            text = answer.read()
        if status in self._refusals:
            raise self._refusals[status]
        if status != 0:
            how = f"exit {status}" if status > 0 else _signal_name(-status)
            raise UserError(f"{self._tool} failed ({how}).", "What it wrote above says why.")
        decoded = json.loads(text)
        assert isinstance(decoded, dict)
        return decoded

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Starts the tool in a process group of its own.

        So Ctrl-C in a terminal reaches only us, and _wait passes on exactly one signal for each.
        """
        try:
            return subprocess.Popen([self._tool, *arguments], process_group=0)
        except OSError as error:
            raise UserError(f"{self._tool} does not start: {error}", paths.remedy()) from error

    @staticmethod
    def _wait(process: subprocess.Popen[bytes]) -> int:
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt as error:
                interrupt = error
                process.send_signal(signal.SIGTERM)  # the second one ends the program at once
        if interrupt:
            raise interrupt
        return status


class MeasureExecutor:
    """Carries requests out with the native tool `measure`."""

    def __init__(self, tool: Path | None = None) -> None:
        self._tool = NativeTool(tool or paths.tool("measure"))

    def run(self, request: RunRequest) -> Measurement:
        """Runs the command once."""
        return Measurement.from_json(self._tool.run(measure_arguments(request)))


def measure_arguments(request: RunRequest) -> list[str]:
    """The request in the words of measure's command line."""
    arguments = ["--sample-ms", str(request.sample_ms)]
    if request.series_points:
        arguments += ["--series", str(request.series_points)]
    return [*arguments, *launch_arguments(request)]


def launch_arguments(request: RunRequest) -> list[str]:
    """Arguments that all native tools have."""
    arguments: list[str] = []
    for key, value in {**request.allocator.env, **request.env}.items():
        arguments += ["--env", f"{key}={value}"]
    for library in request.preloads():
        arguments += ["--preload", str(library)]
    named: dict[str, Path | None] = {
        "--stdin": request.stdin or Path(os.devnull),
        "--stdout": request.stdout,
        "--stderr": request.stderr,
        "--cwd": request.cwd,
    }
    for option, path in named.items():
        if path is not None:
            arguments += [option, str(path)]
    if request.timeout_seconds is not None:
        arguments += ["--timeout", f"{request.timeout_seconds:.9f}"]
    return [*arguments, "--", *request.command]


# The layout is drawn in lab/native/count/call.h, and so is the order of the counters.
_RECORD = struct.Struct("=8s2i16Q1976s952s1024s")
_MAGIC = b"TSCOUNT2"
_KINDS = ("malloc", "calloc", "realloc", "free", "aligned", "operator_new", "operator_delete")


@dataclass(frozen=True)
class ProcessCounts:
    """The calls that one program made in one process; a process that execs has several of these.

    Each call counts once, under the function that the program called. `aligned` is memalign and its
    kin. `provider` is the library whose malloc served, as the loader names it. `deep_bound` is the
    first library that was loaded with RTLD_DEEPBIND, or empty.
    """

    pid: int
    parent_pid: int
    number: int
    program: str
    provider: str
    deep_bound: str
    malloc: int
    calloc: int
    realloc: int
    free: int
    aligned: int
    operator_new: int
    operator_delete: int
    bytes_requested: int

    @property
    def by_kind(self) -> tuple[tuple[str, int], ...]:
        """The number of calls to each kind of function, by its name."""
        return tuple((kind, getattr(self, kind)) for kind in _KINDS)

    @property
    def calls(self) -> int:
        """All calls that asked for memory or gave it back."""
        return sum(number for _, number in self.by_kind)


def read_counts(directory: Path) -> list[ProcessCounts]:
    """The records that the counting shim left in a directory, by process and then in order; a
    process comes before those that it forked."""
    records = []
    for number, content in process_files(directory, "count", _MAGIC, _RECORD.size):
        _, pid, parent_pid, *rest = _RECORD.unpack(content)
        program, provider, deep_bound = map(text_in_record, rest[16:])
        counts = rest[: len(_KINDS) + 1]
        records.append(
            ProcessCounts(pid, parent_pid, number, program, provider, deep_bound, *counts)
        )
    return _parents_first(records)


def _parents_first(records: list[ProcessCounts]) -> list[ProcessCounts]:
    """The same, in their order but for children before their parents: numbers of processes begin
    anew some time."""
    by_pid: dict[int, list[ProcessCounts]] = {}
    for record in records:
        by_pid.setdefault(record.pid, []).append(record)
    ordered: list[ProcessCounts] = []
    while by_pid:
        # Numbers that were used twice may make a ring.
        ready = [p for p, own in by_pid.items() if own[0].parent_pid not in by_pid] or list(by_pid)
        ordered += [record for pid in ready for record in by_pid.pop(pid)]
    return ordered


def process_files(
    directory: Path, suffix: str, magic: bytes, size: int
) -> Iterator[tuple[int, bytes]]:
    """The contents of the PID-NUMBER.suffix files of a shim: number and content, by process and in
    order."""
    found = []
    for path in directory.glob(f"*.{suffix}"):
        content = path.read_bytes()
        if not content:  # its process was killed between creating and filling it
            continue
        name = re.fullmatch(r"(\d+)-(\d+)", path.stem)
        if len(content) != size or not content.startswith(magic) or not name:
            raise UserError(
                f"{path} is not what the shim for .{suffix} files writes.",
                f"Name a directory with nothing else in it. {paths.remedy()}",
            )
        found.append((int(name[1]), int(name[2]), content))
    for _, number, content in sorted(found):
        yield number, content


def text_in_record(field_bytes: bytes) -> str:
    """A name in a field of fixed length, which ends at its first NUL."""
    return os.fsdecode(field_bytes.split(b"\0", 1)[0])
