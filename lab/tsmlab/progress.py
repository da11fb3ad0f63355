"""The progress of a comparison: a bar on a terminal, a sparse line in a pipe.

Why: a comparison takes minutes, and its user wants to know for what and how long.
Refuses to: write to stdout, which belongs to the results, or to fill a log file.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from tsmlab.results import Phase, Sample
from tsmlab.schedule import Slot

PIPE_SECONDS_BETWEEN_LINES = 10.0
PHASE_NAMES = {"probe": "trying", "warmup": "warm-up", "measured": "round"}


@dataclass(frozen=True)
class Step:
    """Where a suite of several programs has come to: runs done out of all, and about how many
    seconds are left (None: not known yet). `round` is for people, and may be empty."""

    what: str
    round: str
    running: str
    done: int
    total: int
    seconds_left: float | None

    @property
    def left(self) -> str:
        if self.seconds_left is None:
            return ""
        if self.seconds_left < 90.0:
            return f"about {max(1.0, self.seconds_left):.0f} s left"
        return f"about {self.seconds_left / 60.0:.0f} min left"


class Reporter:
    """An Observer of the schedule that can also be told how much there is to come; says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def expect(self, rounds: int) -> None: ...
    def step(self, step: Step) -> None: ...
    def round_started(self, phase: Phase, number: int, runs: int) -> None: ...
    def run_started(self, slot: Slot) -> None: ...
    def run_finished(self, sample: Sample) -> None: ...
    def note(self, text: str) -> None: ...


class Silence(Reporter):
    """The reporter of --quiet."""


def reporter_for(quiet: bool, stream: TextIO | None = None) -> Reporter:
    stream = stream or sys.stderr
    if quiet:
        return Silence()
    if stream.isatty():
        return Bar(Console(file=stream))
    return Lines(stream)


class NotesOnly(Reporter):
    """For one of several parts that go on at once: where each has come to would be too much."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def note(self, text: str) -> None:
        self._reporter.note(text)


class Lines(Reporter):
    """For pipes and log files: notes, and the round's number every now and then."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last_line = clock()
        self._expected: int | None = None

    def expect(self, rounds: int) -> None:
        self._expected = rounds

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        if self._clock() - self._last_line < PIPE_SECONDS_BETWEEN_LINES:
            return
        known = self._expected if phase == "measured" else None
        # Rounds may turn out shorter than the first one promised.
        of = f" of at most {known}" if known and number <= known else ""
        self.note(f"{PHASE_NAMES[phase]} {number}{of}, {runs} runs")

    def step(self, step: Step) -> None:
        if self._clock() - self._last_line < PIPE_SECONDS_BETWEEN_LINES:
            return
        parts = [step.round, step.what, f"run {step.done + 1} of {step.total}", step.left]
        self.note(", ".join(part for part in parts if part))

    def note(self, text: str) -> None:
        self._last_line = self._clock()
        with contextlib.suppress(OSError):  # the log's disk is full: no reason to stop
            self._stream.write(f"{text}\n")  # in one piece: parts may go on side by side
            self._stream.flush()


class Bar(Reporter):
    """For terminals: one line that moves, and disappears at the end."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rounds]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[running]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._expected: int | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("starting", total=None, rounds="", running="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, rounds: int) -> None:
        self._expected = rounds

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        assert self._task is not None
        measured = phase == "measured"
        if measured and self._expected is not None:
            most = max(self._expected, number)
            total, done = most * runs, (number - 1) * runs
            rounds = f"{number}/≤{most}"
        else:
            total, done, rounds = runs, 0, str(number) if measured else ""
        self._progress.update(
            self._task, description=PHASE_NAMES[phase], total=total, completed=done, rounds=rounds
        )

    def step(self, step: Step) -> None:
        assert self._task is not None
        self._progress.update(
            self._task,
            description=step.what,
            total=step.total,
            completed=step.done,
            rounds=step.round,
            # The time first: text that does not fit into the line is cut off at its end.
            running="  ".join(part for part in (step.left, step.running) if part),
        )

    def run_started(self, slot: Slot) -> None:
        assert self._task is not None
        self._progress.update(self._task, running=slot.entry.label)

    def run_finished(self, sample: Sample) -> None:
        assert self._task is not None
        self._progress.advance(self._task)
        if sample.failure and sample.phase != "probe":
            self.note(f"{sample.allocator}: {sample.failure.text}")

    def note(self, text: str) -> None:
        self._progress.console.print(Text(text))
