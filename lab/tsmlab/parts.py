"""Tells the reporter where a study of several parts has come to, and how long the rest will take.

The parts (workloads) differ a hundredfold in the length of their runs, so the number of finished
runs says little about the time. A cell that has run is expected to take as long again, and one that
has not, as long as the others of its part.
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


@dataclass
class PartProgress:
    """One part: what it has still to do, and the observer of its rounds. runs_left: of each
    allocator. guess_seconds: of a run, as long as none was seen; 0.0 if nothing is known of it."""

    name: str
    guess_seconds: float
    whole: Progress
    runs_left: dict[str, int]
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

    # --- time -------------------------------------------------------------------------------------

    def forget(self, label: str) -> None:
        """This allocator is not run again."""
        self.runs_left[label] = 0

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

    def seconds_left(self) -> float:
        return sum(runs * self.run_seconds(label) for label, runs in self.runs_left.items() if runs)


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
        self._parts: list[PartProgress] = []
        self._total = 0

    def add(self, name: str, runs: dict[str, int]) -> PartProgress:
        part = PartProgress(name, 0.0, self, runs)
        self._parts.append(part)
        self._total += sum(runs.values())
        return part

    def step(self, part: PartProgress, what: str, running: str) -> None:
        left = sum(sum(part.runs_left.values()) for part in self._parts)
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

    def seconds_left(self) -> float:
        return sum(part.seconds_left() for part in self._parts)
