"""Tells the reporter where a study of several parts has come to, and how long the rest will take.

Why: the parts (experiments, workloads) differ a hundredfold in the length of their runs. So the
share of runs that are done says little about the share of time.
Refuses to: trust guesses longer than needed. A cell that has run is expected to take as long again,
and one that has not, as long as the others of its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean

from tsmlab.metrics import TIME
from tsmlab.progress import Reporter, Step
from tsmlab.results import Phase, Sample, Stop
from tsmlab.schedule import Rounds, Slot

# The cost of a run besides its own time: starting `measure`, reading the output, the journal.
OVERHEAD_SECONDS = 0.05
# A run whose system calls or calls of malloc are watched is slower than one that is timed.
WATCHED_FACTOR = 3.0


@dataclass
class PartProgress:
    """One part: what it has still to do, and the observer of its rounds. `left` has how many timed
    runs and how many watched ones each cell, by its label, has to come. guess_seconds: of a run, as
    long as none was seen; 0.0 if nothing is known of it."""

    name: str
    guess_seconds: float
    whole: Progress
    runs_left: dict[str, int]
    watched_left: dict[str, int]
    _seen: dict[str, list[float]] = field(default_factory=dict)
    _round: str = ""

    # --- the observer of the rounds ---------------------------------------------------------------

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        self._round = f"round {number}/{self.whole.rounds}"

    def run_started(self, slot: Slot) -> None:
        self.whole.step(self, self._round, slot.entry.allocator.name)

    def run_finished(self, sample: Sample) -> None:
        self.runs_left[sample.allocator] -= 1
        self._seen.setdefault(sample.allocator, []).append(sample.values.get(TIME, 0.0))
        if sample.failure:
            self.note(f"{sample.allocator}: {sample.failure.text}")

    def note(self, text: str) -> None:
        self.whole.reporter.note(f"{self.name}: {text}")

    def trying(self, label: str) -> None:
        """A run before the rounds."""
        self.whole.step(self, "trying", label)

    # --- causes -----------------------------------------------------------------------------------

    def watching(self, label: str) -> None:
        self.whole.step(self, "counting", label)

    def watched(self, label: str, seconds: float) -> None:
        """A watched run of this cell is done, and took so long."""
        self.watched_left[label] -= 1
        self.whole.watched_seconds += seconds
        self.whole.unwatched_seconds += self.run_seconds(label)

    # --- time -------------------------------------------------------------------------------------

    def forget(self, label: str) -> None:
        """This cell is not run again."""
        self.runs_left[label] = self.watched_left[label] = 0

    def end_rounds(self) -> None:
        """No more rounds are run."""
        self.runs_left = dict.fromkeys(self.runs_left, 0)

    def run_seconds(self, label: str) -> float:
        if label in self._seen:
            return fmean(self._seen[label]) + OVERHEAD_SECONDS
        if self._seen:
            return fmean(map(fmean, self._seen.values())) + OVERHEAD_SECONDS
        return self.guess_seconds + OVERHEAD_SECONDS

    @property
    def is_known(self) -> bool:
        return bool(self._seen) or self.guess_seconds > 0.0

    def round_seconds(self) -> float:
        """About how long its next round takes."""
        return sum(self.run_seconds(label) for label, runs in self.runs_left.items() if runs)

    def causes_seconds(self) -> float:
        return self.whole.watched_factor * self._sum(self.watched_left)

    def seconds_left(self) -> float:
        return self._sum(self.runs_left) + self.causes_seconds()

    def _sum(self, left: dict[str, int]) -> float:
        return sum(runs * self.run_seconds(label) for label, runs in left.items() if runs)


@dataclass
class Job:
    """A part with its rounds. last_round: how many rounds it has at most."""

    rounds: Rounds
    progress: PartProgress
    last_round: int


def run_rounds(jobs: Sequence[Job], decide: Callable[[int], Stop | None]) -> Stop:
    """Rounds of each part that has one left, until `decide`, which is asked after each number, ends
    all."""
    for number in count(1):
        for job in jobs:
            if number <= job.last_round:
                job.rounds.run("measured", number, job.last_round)
            for _, label in job.rounds.given_up:
                job.progress.forget(label)
        if stop := decide(number):
            return stop
    raise AssertionError("numbers have no end")


class Progress:
    """All parts of a study together."""

    def __init__(self, reporter: Reporter, rounds: int) -> None:
        self.reporter = reporter
        self.rounds = rounds
        # The times of watched runs, and of the same ones unwatched.
        self.watched_seconds = 0.0
        self.unwatched_seconds = 0.0
        self._parts: list[PartProgress] = []
        self._total = 0

    def add(
        self, name: str, guess_seconds: float, runs: dict[str, int], watched: dict[str, int]
    ) -> PartProgress:
        part = PartProgress(name, guess_seconds, self, runs, watched)
        self._parts.append(part)
        self._total += sum(runs.values()) + sum(watched.values())
        return part

    def step(self, part: PartProgress, what: str, running: str) -> None:
        left = sum(sum(p.runs_left.values()) + sum(p.watched_left.values()) for p in self._parts)
        self.reporter.step(
            Step(
                what=part.name,
                round=what,
                running=running,
                done=self._total - left,
                total=self._total,
                seconds_left=self.seconds_left() if all(p.is_known for p in self._parts) else None,
            )
        )

    @property
    def watched_factor(self) -> float:
        """By how much watching slows runs down: as it did so far, if it has been seen."""
        if not self.unwatched_seconds:
            return WATCHED_FACTOR
        return self.watched_seconds / self.unwatched_seconds

    def seconds_left(self) -> float:
        return sum(part.seconds_left() for part in self._parts)

    def causes_seconds(self) -> float:
        return sum(part.causes_seconds() for part in self._parts)
