"""Runs a command once under an allocator and says what it cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
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
    """One run: the command, its allocator, and its surroundings.

    The program gets this process's environment, changed by the allocator's variables and then by
    `env`. Without `stdin` its input is empty (every run must read the same); without `stdout` or
    `stderr` it shares ours. `preload_first`, such as the tracker, is preloaded before the
    allocator. Redirections are relative to our folder, the command to `cwd`. series_points: the
    maximum number of points in the memory curve of the process tree.
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
        own = (self.allocator.path,) if self.allocator.path else ()
        return (*self.preload_first, *own)


@dataclass(frozen=True)
class SpawnError:
    errno: int
    message: str


@dataclass(frozen=True)
class Preloaded:
    """Whether a requested library was seen in the program; None: it ended too early."""

    path: str
    mapped: bool | None


@dataclass(frozen=True)
class ExitReport:
    """How a program ended, as reported by every native tool."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    interrupted: bool
    spawn_error: SpawnError | None
    timeout_ns: int | None

    @property
    def failed(self) -> bool:
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
            return status_text(-self.signal)
        if self.exit_code is None:
            return "could not be stopped"
        return status_text(self.exit_code) if self.exit_code else "ok"


@dataclass(frozen=True)
class Measurement(ExitReport):
    """The fields of the output of `measure` that the lab needs; lab/native/README.md explains them.

    None means unknown. If the program never ran (`spawn_error`), the quantities that are never None
    are 0. `series`: nanoseconds since the start, and the resident bytes of the process tree. `raw`
    is the whole output. `extra`: quantities that the program itself reported, by metric key.
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
    series: tuple[tuple[int, int], ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    raw: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Measurement:
        require_schema(raw, "measure", SCHEMA)
        known = {name: raw[name] or 0 for name in _KNOWN}
        kept = {"series": [], **raw, **known, "raw": raw}
        return cast(Measurement, records.restore(Measurement, kept))


# Quantities that are never None, although the tool omits them if the program never ran.
_KNOWN = ("wall_ns", "user_ns", "system_ns", "peak_rss_bytes", "minor_faults", "major_faults")


def read_answer(text: str, tool: str, schema: str) -> dict[str, Any]:
    """Parses the line of JSON that a tool prints; raises UserError for anything else."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise _not_of_one_version(f"{tool} did not print a line of JSON: {error}.") from error
    answer: dict[str, Any] = raw if isinstance(raw, dict) else {}
    require_schema(answer, tool, schema)
    return answer


class JsonField(Generic[Value]):
    """A value built from some keys of a tool's output (the field `raw`)."""

    def __init__(self, make: Callable[[Any], Value], *keys: str) -> None:
        self._make = make
        self._keys = keys

    def __get__(self, owner: Any, _kind: type) -> Value:
        found = owner.raw
        for key in self._keys:
            found = found[key]
        return self._make(found)


def rows_of(kind: Callable[..., Value]) -> Callable[[Any], list[Value]]:
    """Converts objects of numbers to rows; an empty list if there are none."""
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
            f"{tool} printed the schema {raw.get('schema')!r}, not {schema!r}."
        )


def _not_of_one_version(problem: str) -> UserError:
    return UserError(problem, f"The tools and the lab must have the same version. {paths.remedy()}")


def status_text(status: int) -> str:
    """How a process ended, from its status as subprocess has it: exit 1, SIGKILL."""
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal
        return f"signal {-status}"


class Executor(Protocol):
    def run(self, request: RunRequest) -> Measurement:
        """Runs the command once and waits for it; a failing program is a result, not an error."""


class NativeTool:
    """A native tool that runs a program, and writes a line of JSON to a file."""

    def __init__(self, tool: Path) -> None:
        self._tool = tool

    def run(self, arguments: list[str]) -> dict[str, Any]:
        # A file rather than a pipe: processes that the program leaves running would hold a pipe
        # open.
        with tempfile.NamedTemporaryFile(prefix="tsmalloc-answer-") as answer:
            own = ["--output", answer.name, "--parent", str(os.getpid())]
            status = self._wait(self._start([*own, *arguments]))
            text = answer.read()
        if status != 0:
            how = status_text(status)
            raise UserError(f"{self._tool} failed ({how}).", "Its output above says why.")
        decoded: dict[str, Any] = json.loads(text)
        return decoded

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Starts the tool in a process group of its own.

        So Ctrl-C in a terminal reaches only us, and _wait passes on exactly one signal each time.
        """
        try:
            return subprocess.Popen([self._tool, *arguments], process_group=0)
        except OSError as error:
            raise UserError(f"cannot start {self._tool}: {error}", paths.remedy()) from error

    @staticmethod
    def _wait(process: subprocess.Popen[bytes]) -> int:
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt as error:
                interrupt = error
                process.send_signal(signal.SIGTERM)  # a second one kills the program at once
        if interrupt:
            raise interrupt
        return status


class MeasureExecutor:
    def __init__(self, tool: Path | None = None) -> None:
        self._tool = NativeTool(tool or paths.tool("measure"))

    def run(self, request: RunRequest) -> Measurement:
        return Measurement.from_json(self._tool.run(measure_arguments(request)))


def measure_arguments(request: RunRequest) -> list[str]:
    arguments = ["--sample-ms", str(request.sample_ms)]
    if request.series_points:
        arguments += ["--series", str(request.series_points)]
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
