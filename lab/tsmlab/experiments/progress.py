"""Tells the reporter where a run of experiments has come to, and how long the rest will take.

Why: all of them take most of an hour, and their runs differ a hundredfold in length, so that the
share of runs that are done says little about the share of time.
Refuses to: trust the files' guesses longer than needed. A cell that has run is expected to take as
long again, and one that has not, as long as the others of its experiment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from tsmlab.experiments.plan import OVERHEAD_SECONDS, WATCHED_FACTOR
from tsmlab.metrics import TIME
from tsmlab.progress import Reporter, Step
from tsmlab.results import Phase, Sample
from tsmlab.schedule import Slot


@dataclass
class ExperimentProgress:
    """One experiment: what it has still to do, and the observer of its rounds. `left` has how many
    timed runs and how many watched ones each cell, by its label, has to come."""

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

    def round_seconds(self) -> float:
        """About how long its next round takes."""
        return sum(self.run_seconds(label) for label, runs in self.runs_left.items() if runs)

    def causes_seconds(self) -> float:
        return self.whole.watched_factor * self._sum(self.watched_left)

    def seconds_left(self) -> float:
        return self._sum(self.runs_left) + self.causes_seconds()

    def _sum(self, left: dict[str, int]) -> float:
        return sum(runs * self.run_seconds(label) for label, runs in left.items() if runs)


class Progress:
    """All experiments of a run together."""

    def __init__(self, reporter: Reporter, rounds: int) -> None:
        self.reporter = reporter
        self.rounds = rounds
        # What watched runs took, and what the same ones take unwatched.
        self.watched_seconds = 0.0
        self.unwatched_seconds = 0.0
        self._parts: list[ExperimentProgress] = []
        self._total = 0

    def add(
        self, name: str, guess_seconds: float, runs: dict[str, int], watched: dict[str, int]
    ) -> ExperimentProgress:
        part = ExperimentProgress(name, guess_seconds, self, runs, watched)
        self._parts.append(part)
        self._total += sum(runs.values()) + sum(watched.values())
        return part

    def step(self, part: ExperimentProgress, what: str, running: str) -> None:
        left = sum(sum(p.runs_left.values()) + sum(p.watched_left.values()) for p in self._parts)
        self.reporter.step(
            Step(
                what=part.name,
                round=what,
                running=running,
                done=self._total - left,
                total=self._total,
                seconds_left=self.seconds_left(),
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
