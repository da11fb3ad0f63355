"""The progress of a study: a bar on a terminal, sparse lines in a pipe."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from tsmlab.results import Phase, Sample
from tsmlab.schedule import Slot

PIPE_SECONDS_BETWEEN_LINES = 10.0
PHASE_NAMES = {"probe": "trying", "warmup": "warm-up", "measured": "round"}


class Reporter:
    """Receives a study's progress (schedule.Scheduler), and how much is left; prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def expect(self, rounds: int) -> None: ...
    def step(self, what: str, running: str, done: int, total: int) -> None: ...
    def round_started(self, phase: Phase, number: int, runs: int) -> None: ...
    def run_started(self, slot: Slot) -> None: ...
    def run_finished(self, sample: Sample) -> None: ...
    def note(self, text: str) -> None: ...


class SilentReporter(Reporter):
    """The reporter of --quiet."""


def reporter_for(quiet: bool, stream: TextIO | None = None) -> Reporter:
    stream = stream or sys.stderr
    if quiet:
        return SilentReporter()
    if stream.isatty():
        return Bar(Console(file=stream))
    return Lines(stream)


class NotesOnly(Reporter):
    """For one of several parts that run at once, whose progress would be too much: only notes."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def note(self, text: str) -> None:
        self._reporter.note(text)


class _Place(Reporter):
    """The progress of the rounds. The last round's length predicts the others'; if rounds turn out
    shorter than the first one, more may fit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: int | None = None
        self._phase: Phase = "probe"
        self._number = self._runs = self._done = 0
        self._begun = clock()
        self._round_seconds: float | None = None

    def expect(self, rounds: int) -> None:
        self._expected = rounds

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        if self._phase != "probe":
            self._round_seconds = self._clock() - self._begun
        self._phase, self._number, self._runs, self._done = phase, number, runs, 0
        self._begun = self._clock()

    def run_finished(self, sample: Sample) -> None:
        self._done += 1

    @property
    def max_rounds(self) -> int | None:
        """The maximum number of rounds; None if unknown."""
        known = self._expected if self._phase == "measured" else None
        return None if known is None or self._number > known else known

    @property
    def left(self) -> str:
        max_rounds, length = self.max_rounds, self._round_seconds
        if max_rounds is None or length is None:
            return ""
        seconds = (max_rounds - self._number + 1) * length - (self._clock() - self._begun)
        if seconds < 90.0:
            return f"about {max(1.0, seconds):.0f} s left"
        return f"about {seconds / 60.0:.0f} min left"


class Lines(_Place):
    """For pipes and log files: notes, and the round number every now and then."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._last_line = clock()

    def run_started(self, slot: Slot) -> None:
        self._print_periodically(
            PHASE_NAMES[self._phase]
            + (f" {self._number}" if self._phase != "probe" else "")
            + ("" if self.max_rounds is None else f" of at most {self.max_rounds}"),
            f"run {self._done + 1} of {self._runs}",
            self.left,
        )

    def step(self, what: str, running: str, done: int, total: int) -> None:
        self._print_periodically(what, f"run {done + 1} of {total}")

    def _print_periodically(self, *parts: str) -> None:
        if self._clock() - self._last_line >= PIPE_SECONDS_BETWEEN_LINES:
            self.note(", ".join(filter(None, parts)))

    def note(self, text: str) -> None:
        self._last_line = self._clock()
        with contextlib.suppress(OSError):  # a full disk must not stop the study
            self._stream.write(f"{text}\n")  # in one piece, since parts may run at the same time
            self._stream.flush()


class Bar(_Place):
    """For terminals: one line that is updated, and disappears at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(time.monotonic)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rounds]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[running]}"),
            console=console,
            transient=True,
        )
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("starting", total=None, rounds="", running="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        super().round_started(phase, number, runs)
        total, done, rounds = runs, 0, str(number) if phase == "measured" else ""
        if phase == "measured" and self._expected is not None:
            max_rounds = max(self._expected, number)
            total, done, rounds = max_rounds * runs, (number - 1) * runs, f"{number}/≤{max_rounds}"
        self._progress.update(
            self._task, description=PHASE_NAMES[phase], total=total, completed=done, rounds=rounds
        )

    def step(self, what: str, running: str, done: int, total: int) -> None:
        self._progress.update(
            self._task, description=what, total=total, completed=done, rounds="", running=running
        )

    def run_started(self, slot: Slot) -> None:
        # The time comes first, since text that does not fit is cut off at its end.
        running = "  ".join(filter(None, (self.left, slot.entry.label)))
        self._progress.update(self._task, running=running)

    def run_finished(self, sample: Sample) -> None:
        super().run_finished(sample)
        self._progress.advance(self._task)
        if sample.failure and sample.phase != "probe":
            self.note(f"{sample.allocator}: {sample.failure.text}")

    def note(self, text: str) -> None:
        self._progress.console.print(Text(text))
