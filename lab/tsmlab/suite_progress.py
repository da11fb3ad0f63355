"""Tells the reporter where a run of the suite has come to, and how long the rest will take.

Why: a suite takes many minutes, and its workloads differ in length, so that the share of runs that
are done says little about the share of time.
Refuses to: estimate before it has seen a workload run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tsmlab.progress import Reporter, Step
from tsmlab.results import Phase, Sample
from tsmlab.schedule import Slot


@dataclass
class _Pace:
    """How long a workload's runs have taken, from one start to the next."""

    seconds: float = 0.0
    runs: int = 0


@dataclass
class SuiteProgress:
    """Where the whole suite is. `runs` is how many runs each workload makes in a round."""

    reporter: Reporter
    clock: Callable[[], float]
    runs: Mapping[str, int]
    rounds: int
    round: int = 0
    _paces: dict[str, _Pace] = field(default_factory=dict)

    def of(self, workload: str) -> WorkloadProgress:
        """Who observes the runs of this workload."""
        self._paces[workload] = _Pace()
        return WorkloadProgress(self, workload)

    def started(self, workload: str, running: str, remaining: int) -> None:
        """A run starts; this round has `remaining` of this workload, this one included."""
        names = list(self.runs)
        per_round = sum(self.runs.values())
        here = names.index(workload)
        before = sum(self.runs[name] for name in names[:here]) + self.runs[workload] - remaining
        to_come = {
            name: runs * (self.rounds - self.round) + (runs if names.index(name) > here else 0)
            for name, runs in self.runs.items()
        }
        to_come[workload] += remaining
        probing = self.round == 0
        self.reporter.step(
            Step(
                what=workload,
                round="trying" if probing else f"round {self.round}/{self.rounds}",
                running=running,
                done=0 if probing else (self.round - 1) * per_round + before,
                total=self.rounds * per_round,
                seconds_left=self._seconds(to_come),
            )
        )

    def finished(self, workload: str, seconds: float) -> None:
        pace = self._paces[workload]
        pace.seconds += seconds
        pace.runs += 1

    def _seconds(self, runs: Mapping[str, int]) -> float | None:
        if not all(pace.runs for pace in self._paces.values()):
            return None
        paces = self._paces
        return sum(count * paces[n].seconds / paces[n].runs for n, count in runs.items())

    def round_seconds(self) -> float:
        """About how long a round will take; 0.0 before every workload has run once."""
        return self._seconds(self.runs) or 0.0


class WorkloadProgress:
    """The observer of one workload's rounds."""

    def __init__(self, suite: SuiteProgress, workload: str) -> None:
        self._suite = suite
        self._workload = workload
        self._runs = 0
        self._started = 0.0

    def round_started(self, phase: Phase, number: int, runs: int) -> None:
        self._runs = runs

    def run_started(self, slot: Slot) -> None:
        self._started = self._suite.clock()
        remaining = self._runs - slot.position + 1
        self._suite.started(self._workload, slot.entry.allocator.name, remaining)

    def run_finished(self, sample: Sample) -> None:
        self._suite.finished(self._workload, self._suite.clock() - self._started)
        if sample.failure:
            self.note(f"{sample.allocator}: {sample.failure.text}")

    def note(self, text: str) -> None:
        self._suite.reporter.note(f"{self._workload}: {text}")
