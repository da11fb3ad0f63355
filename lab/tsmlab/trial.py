"""One run of the program under one allocator: its environment, its output, and whether it counts.

Times can only be compared if the program did the same work. So each run's exit status, its output
and the presence of the allocator's library are checked, and a difference is a failure of that run:
a result like any other, never an abort. The program's input is a file or empty; its output goes to
files that are hashed, searched for the user's metric, and removed.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.journal import Memo, NullJournal
from tsmlab.measuring import Executor, Measurement, RunRequest, status_text
from tsmlab.metrics import (
    COST,
    LIVE_BYTES,
    PEAK_MEMORY,
    PEAK_OVER_LIVE,
    TIME,
    CustomMetric,
    Unit,
    measured_values,
    printed_number,
)
from tsmlab.results import Failure, FailureKind, Sample
from tsmlab.schedule import Slot
from tsmlab.sweep import ALLOCATOR, Point, filled
from tsmlab.text import visible

# The parameter of a sweep over programs.
SUBJECT = "workload"
# The line in which a program prints its own time.
SECONDS = "seconds"
# In a sample's measurement: the kinds of units in which the user's metrics were printed.
UNITS = "units"
PADDING_VARIABLE = "TSMALLOC_LAYOUT_PADDING"
# How many points to keep of a run's memory curve, out of the samples that `measure` takes in any
# case.
SERIES_POINTS = 400
STDERR_TAIL_LINES = 12
STDERR_TAIL_BYTES = 4096
STDERR_HEAD_BYTES = 16384
# The cost of one environment variable on the new stack besides its text: the "=", the final zero
# and the pointer in the table.
VARIABLE_OVERHEAD_BYTES = 1 + 1 + 8


@dataclass(frozen=True)
class Program:
    """The program of each run, and its success.

    printed: numbers that it prints in lines `name: NUMBER`, under these names in a sample.
    printed_perhaps: the same, but a run without them has not failed. tells_time: a run's time is
    the number that it prints in the line `seconds: NUMBER`. subjects: in a sweep over programs, the
    programs by the values of the parameter SUBJECT. effort: the metric whose product with the peak
    of memory is the metric COST.
    """

    command: tuple[str, ...]
    stdin: Path
    expected_exit: int = 0
    metrics: tuple[CustomMetric, ...] = ()
    setup: str | None = None
    cleanup: str | None = None
    printed: tuple[str, ...] = ()
    printed_perhaps: tuple[str, ...] = ()
    tells_time: bool = False
    subjects: Mapping[str, "Program"] = field(default_factory=dict)
    effort: str = ""

    def at(self, point: Point, allocator: str) -> "Program":
        if self.subjects:
            return self.subjects[point[SUBJECT]]
        values = {**point, ALLOCATOR: allocator}
        return replace(
            self,
            command=tuple(filled(word, values) for word in self.command),
            setup=self.setup and filled(self.setup, values),
            cleanup=self.cleanup and filled(self.cleanup, values),
        )


def at_point(allocator: Allocator, point: Point) -> Allocator:
    """The allocator with the placeholders in its variables replaced."""
    values = {**point, ALLOCATOR: allocator.name}
    return replace(allocator, env={k: filled(v, values) for k, v in allocator.env.items()})


@dataclass
class Trial:
    """Makes runs, each once, at the points of a sweep. timeout_seconds can be set once the
    reference's time is known. Also a fleet.Trial."""

    program: Program
    allocators: Sequence[Allocator]
    executor: Executor
    folder: Path
    memo: Memo
    series_points: int = SERIES_POINTS
    points: Sequence[Point] = ({},)
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        self._largest_extra_bytes = [
            max(extra_environment_bytes(at_point(a, point)) for a in self.allocators)
            for point in self.points
        ]
        self._stdout = self.folder / "stdout"
        self._stderr = self.folder / "stderr"
        self._start = self.memo.clock()

    def packed(self) -> Self:
        return replace(self, memo=NullJournal())

    def unpacked(self, folder: Path) -> Self:
        return replace(self, folder=folder)

    def run(self, slot: Slot) -> Sample:
        """One timed run, with the user's set-up and clean-up commands outside the timing."""
        return self.memo.once(slot.key, Sample, lambda: self._run(slot))

    def _run(self, slot: Slot) -> Sample:
        point = self.points[slot.entry.point]
        allocator = at_point(slot.entry.allocator, point)
        program = self.program.at(point, allocator.name)
        largest = self._largest_extra_bytes[slot.entry.point]
        request = RunRequest(
            command=program.command,
            allocator=allocator,
            env=dict(allocator.env) | padding(slot, allocator, largest),
            stdin=program.stdin,
            stdout=self._stdout,
            stderr=self._stderr,
            timeout_seconds=self.timeout_seconds,
            series_points=self.series_points,
        )
        for path in (self._stdout, self._stderr):
            path.touch()  # a program that could not be started has an output, too: none
        with hooks(program, allocator.name):
            started = self.memo.clock() - self._start
            measurement = self.executor.run(request)
        if measurement.interrupted:
            raise KeyboardInterrupt
        return self._sample(slot, program, started, measurement)

    def _sample(
        self, slot: Slot, program: Program, started: float, measurement: Measurement
    ) -> Sample:
        values = {} if measurement.spawn_error else measured_values(measurement)
        if {program.effort, PEAK_MEMORY} <= values.keys():
            values[COST] = values[program.effort] * values[PEAK_MEMORY] / 2.0**20
        failure = self._failure(program, slot.entry.allocator, measurement)
        units: dict[str, str] = {}
        for metric in program.metrics:
            if failure is None:
                failure = self._read_metric(metric, values, units)
        if failure is None:
            failure = self._read_printed(program, values)
        output = _hash(self._stdout)
        for path in (self._stdout, self._stderr):
            path.unlink(missing_ok=True)
        raw = dict(measurement.raw) | ({UNITS: units} if units else {})
        return slot.sample(started, values, failure, raw, output)

    def _read_metric(
        self, metric: CustomMetric, values: dict[str, float], units: dict[str, str]
    ) -> Failure | None:
        found = metric.find(_text(self._stdout), _text(self._stderr))
        if found is None:
            return self._failed("metric", f"no number for {metric.name} in the output")
        values[metric.key], units[metric.key] = found
        return None

    def _read_printed(self, program: Program, values: dict[str, float]) -> Failure | None:
        """Adds the numbers that the program prints; returns a failure if one is missing."""
        text = _text(self._stdout)
        promised = (*program.printed, *([SECONDS] if program.tells_time else []))
        for name in (*promised, *program.printed_perhaps):
            number = printed_number(text, name)
            if number is not None:
                values[TIME if name == SECONDS and program.tells_time else name] = number
            elif name in promised:
                return self._failed("metric", f"no line `{name}: NUMBER` in the output")
        if values.get(LIVE_BYTES, 0.0) > 0.0 and PEAK_MEMORY in values:
            values[PEAK_OVER_LIVE] = values[PEAK_MEMORY] / values[LIVE_BYTES]
        return None

    def _failure(
        self, program: Program, allocator: Allocator, measurement: Measurement
    ) -> Failure | None:
        expected = program.expected_exit
        if measurement.spawn_error:
            return self._failed("start", measurement.failure_text())
        if measurement.timed_out:
            return self._failed("timeout", measurement.failure_text())
        if measurement.signal is not None or measurement.exit_code is None:
            return self._failed("signal", measurement.failure_text())
        if measurement.exit_code != expected:
            instead = f" instead of {expected}" if expected else ""
            return self._failed("exit", f"exit {measurement.exit_code}{instead}")
        if allocator.path and (
            any(p.mapped is False for p in measurement.preloaded) or self._is_refused(measurement)
        ):
            return self._failed("preload", "its library was not loaded")
        return None

    def _is_refused(self, measurement: Measurement) -> bool:
        """Whether the loader says so. A program that runs for a millisecond ends before `measure`
        checks."""
        unseen = [str(each.path) for each in measurement.preloaded if each.mapped is None]
        return any(
            f"'{path}' from LD_PRELOAD cannot be preloaded" in _head(self._stderr)
            for path in unseen
        )

    def _failed(self, kind: FailureKind, text: str) -> Failure:
        return Failure(kind, text, tail(self._stderr))


def wall_seconds(sample: Sample) -> float:
    """From the start of the process to its end, whatever time the program itself prints."""
    raw = sample.measurement.get("process", sample.measurement)
    return float(raw.get("wall_ns") or 0) / 1e9


@contextmanager
def hooks(program: Program, allocator_name: str) -> Iterator[None]:
    """The user's set-up command before, and the clean-up command after, even after an error."""
    run_hook("setup", program.setup, allocator_name)
    try:
        yield
    finally:
        run_hook("cleanup", program.cleanup, allocator_name)


def run_hook(
    which: Literal["setup", "cleanup", "reset"], line: str | None, allocator_name: str
) -> None:
    """Runs the command of an option, if there is one, without any allocator preloaded."""
    if line is None:
        return
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"TSMALLOC_ALLOCATOR": allocator_name},
        check=False,
    )
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace").strip()
        when = "after" if which == "cleanup" else "before"
        raise UserError(
            f"the {which} command failed ({status_text(done.returncode)}): {line}"
            + (f"\n{output}" if output else ""),
            f"Try it in a shell first; it must succeed {when} each run (--{which}).",
        )


def padding(slot: Slot, allocator: Allocator, largest_extra_bytes: int) -> dict[str, str]:
    """Makes the environment equally large for all allocators of a round: the round's own offset,
    plus the size of the largest set of variables minus this allocator's."""
    missing = largest_extra_bytes - extra_environment_bytes(allocator)
    return {PADDING_VARIABLE: "x" * (slot.padding_bytes + missing)}


def extra_environment_bytes(allocator: Allocator) -> int:
    """The bytes that preloading this allocator adds to the environment of a program."""
    size = sum(len(k) + len(v) + VARIABLE_OVERHEAD_BYTES for k, v in allocator.env.items())
    if allocator.path is None:
        return size
    if os.environ.get("LD_PRELOAD"):
        return size + len(os.fsencode(allocator.path)) + 1
    preload = len("LD_PRELOAD") + len(os.fsencode(allocator.path))
    return size + preload + VARIABLE_OVERHEAD_BYTES


@dataclass
class OutputCheck:
    """Compares each run's standard output with the reference's at the same point.

    Only while the reference agrees with itself: the output of a program that prints the time of day
    differs between runs under any allocator; then `comparable` becomes False and no run fails
    because of it.
    """

    reference: str
    enabled: bool

    def __post_init__(self) -> None:
        self.comparable: bool | None = None

    def judge(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples, with failures because of output set or withdrawn."""
        outputs: dict[int, set[str | None]] = {}
        for s in samples:
            if s.allocator == self.reference and _failure_kind(s) in (None, "output"):
                outputs.setdefault(s.point, set()).add(s.output_sha256)
        if not self.enabled or not outputs:
            return list(samples)
        self.comparable = all(len(found) == 1 for found in outputs.values())
        expected = dict.fromkeys(outputs) | {
            point: found.pop() for point, found in outputs.items() if len(found) == 1
        }
        return [self._judge_one(sample, expected.get(sample.point)) for sample in samples]

    @staticmethod
    def _judge_one(sample: Sample, expected: str | None) -> Sample:
        if _failure_kind(sample) not in (None, "output"):
            return sample
        if expected is None or sample.output_sha256 == expected:
            return replace(sample, failure=None) if sample.failure else sample
        return sample if sample.failure else replace(sample, failure=OUTPUT_CHANGED)


@dataclass
class UnitCheck:
    """Requires one kind of unit in a column of numbers: that of the reference's first run. A run
    that printed another one (milliseconds, then a plain number) has failed."""

    def __post_init__(self) -> None:
        self.expected: dict[str, Unit] = {}

    def judge(self, samples: Sequence[Sample]) -> list[Sample]:
        return [self._judge_one(sample) for sample in samples]

    def _judge_one(self, sample: Sample) -> Sample:
        if sample.failure:
            return sample
        for key, unit in sample.measurement.get(UNITS, {}).items():
            known = self.expected.setdefault(key, unit)
            if {known, unit} == {"number", "count"}:  # such as 900 and 45.9k
                self.expected[key] = "count"
            elif unit != known:
                text = f"its number has {unit_text(unit)}, the reference's {unit_text(known)}"
                return replace(sample, failure=Failure("metric", text))
        return sample


def unit_text(unit: str) -> str:
    return "no unit" if unit in ("number", "count") else unit


OUTPUT_CHANGED = Failure("output", "its output differs from the reference's")


def _failure_kind(sample: Sample) -> FailureKind | None:
    return sample.failure.kind if sample.failure else None


def _hash(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _head(path: Path) -> str:
    """The beginning of a file that may be huge: the loader writes before the program does."""
    with path.open("rb") as file:
        return os.fsdecode(file.read(STDERR_HEAD_BYTES))


def tail(path: Path) -> str:
    """The end of a file that may be huge, safe for a terminal; empty if there is no file."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - STDERR_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(map(visible, text.splitlines()[-STDERR_TAIL_LINES:]))
