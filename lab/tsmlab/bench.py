"""The flow of a run of the suite: a trial of each workload, warm memory, rounds, analysis.

Why: here one can read the order of all steps; rules live elsewhere (order and stop rule in
schedule.py, a single run in trial.py, numbers in suite_analysis.py). A round runs the workloads one
after the other, and each under all of its allocators in a random order of its own.
Refuses to: print, or to lose measurements. However the rounds end, the outcome has all that was
measured.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsmlab import __version__, machine, records, suite_results, wording
from tsmlab.allocators import Allocator, floor
from tsmlab.errors import UserError
from tsmlab.fleet import Crew, Fleet, machine_of
from tsmlab.journal import Digests, Memo, Part, changed, digests
from tsmlab.measuring import Executor
from tsmlab.metrics import PEAK_MEMORY, CustomMetric
from tsmlab.parts import Job, Progress, run_rounds
from tsmlab.progress import Reporter
from tsmlab.results import AllocatorInfo, Outcome, Sample, Stop
from tsmlab.schedule import Entry, Rounds, Slot, StopRule, decision, part_seed
from tsmlab.suite_analysis import Field, analyse
from tsmlab.suite_results import SuiteResults, SuiteSettings, WorkloadRuns
from tsmlab.trial import Program, Trial
from tsmlab.wording import quantity
from tsmlab.workloads import Workload

DEFAULT_ROUNDS = 5
MIN_ROUNDS = 3
# A workload ends by itself, so that this is only for one that hangs; some allocators take thirty
# times as long as others where threads free each other's blocks.
TIMEOUT_FACTOR = 60.0
MIN_TIMEOUT_SECONDS = 60.0
# Where the trial failed, nothing is known of how long a run takes.
UNKNOWN_TIMEOUT_SECONDS = 300.0
# Others may need more than the one that is tried.
WARM_FACTOR = 4.0
MIN_WARM_BYTES = 1 << 30
PRINTED_SECONDS = CustomMetric("seconds", r"^seconds: ([0-9.eE+-]+)$", higher_is_better=False)


@dataclass(frozen=True)
class Options:
    """The options of a bench. peers and candidate are names of allocators; the first peer is the
    one under which each workload is tried first."""

    suite: Path
    workloads: tuple[Workload, ...]
    allocators: tuple[Allocator, ...]
    peers: tuple[str, ...]
    candidate: str | None
    seed: int
    rounds: int = DEFAULT_ROUNDS
    time_budget_seconds: float | None = None
    timeout_seconds: float | None = None
    cpus: tuple[int, ...] | None = None

    @property
    def rule(self) -> StopRule:
        """As many rounds as asked for, or as fit into the time."""
        return StopRule.of_rounds(self.rounds, self.time_budget_seconds)

    @property
    def field(self) -> Field:
        names = tuple(allocator.name for allocator in self.allocators)
        return Field(names, self.peers, self.candidate, self.seed)


@dataclass
class _Job(Job):
    """One workload with its trial."""

    workload: Workload
    trial: Trial
    crew: Crew | None
    probe: Sample | None = None

    @property
    def runs(self) -> WorkloadRuns:
        samples = [*([self.probe] if self.probe else []), *self.rounds.samples]
        return WorkloadRuns(self.workload, self.trial.timeout_seconds or 0.0, samples)


def bench(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    memo: Memo,
    warm: Callable[[int], int] = machine.touch,
    fleet: Fleet | None = None,
) -> Outcome[SuiteResults]:
    """Runs the whole suite; on a fleet, whose machines are of one kind, if there is one.

    Raises UserError and KeyboardInterrupt only where nothing has been measured yet.
    """
    with tempfile.TemporaryDirectory(prefix="tsmalloc-bench-") as folder:
        return _Session(options, executor, reporter, memo, warm, Path(folder), fleet).run()


@dataclass
class _Session:
    """The state of one run of the suite."""

    options: Options
    executor: Executor
    reporter: Reporter
    memo: Memo
    warm: Callable[[int], int]
    folder: Path
    fleet: Fleet | None

    def __post_init__(self) -> None:
        if self.fleet is not None:
            self.warm = self.fleet.touch_memory
        self._created = self.memo.once("created", str, records.now)
        self._machine = machine_of(self.fleet, self.memo)
        floors = {name: floor(name) for each in self.options.workloads for name in each.floors}
        self._infos = [AllocatorInfo.of(allocator) for allocator in self.options.allocators]
        self._floor_infos = [AllocatorInfo.of(allocator) for allocator in floors.values()]
        contenders = {
            workload.name: (*self.options.allocators, *(floors[name] for name in workload.floors))
            for workload in self.options.workloads
        }
        programs = [Path(workload.command[0]) for workload in self.options.workloads]
        libraries = [a.path for a in (*self.options.allocators, *floors.values()) if a.path]
        self._files = self.memo.once("files", Digests, lambda: digests([*programs, *libraries]))
        self._progress = Progress(self.reporter, self.options.rounds)
        self._jobs = [
            self._job(workload, contenders[workload.name], self.executor, self.folder)
            for workload in self.options.workloads
        ]

    def _job(
        self, workload: Workload, allocators: Sequence[Allocator], executor: Executor, folder: Path
    ) -> _Job:
        program = Program(
            command=workload.command,
            stdin=Path(os.devnull),
            metrics=(PRINTED_SECONDS,) if workload.time == "seconds" else (),
        )
        memo = Part(self.memo, workload.name)
        trial = Trial(program, allocators, executor, folder, memo)
        trial.timeout_seconds = self.options.timeout_seconds or UNKNOWN_TIMEOUT_SECONDS
        names = [allocator.name for allocator in allocators]
        rounds_left = dict.fromkeys(names, self.options.rounds)
        observer = self._progress.add(workload.name, rounds_left)
        seed = part_seed(self.options.seed, "workload", workload.name)
        crew = None if self.fleet is None else Crew(self.fleet, trial, memo)
        entries = [Entry(allocator) for allocator in allocators]
        rounds = Rounds(entries, seed, trial.run, observer, crew=crew)
        return _Job(rounds, observer, self.options.rounds, workload, trial, crew)

    def run(self) -> Outcome[SuiteResults]:
        for job in self._jobs:
            self._try(job)
        self._warm_memory()
        return self._measure()

    def _try(self, job: _Job) -> None:
        """One run under the first peer: its time says when a run hangs, its peak how much memory to
        warm."""
        first = next(a for a in self.options.allocators if a.name == self.options.peers[0])
        slot = Slot(Entry(first), "probe", 0, 1, 0)
        job.progress.trying(first.name)
        started = self.memo.clock()
        job.probe = job.trial.run(slot) if job.crew is None else job.crew.samples([slot])[0]
        seconds = self.memo.clock() - started
        job.progress.guess_seconds = seconds
        if job.probe.failure:
            job.progress.note(f"{first.name}: {job.probe.failure.text}")
        if self.options.timeout_seconds is None and not job.probe.failure:
            job.trial.timeout_seconds = max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * seconds)

    def _warm_memory(self) -> None:
        peaks = [job.probe.values.get(PEAK_MEMORY, 0.0) for job in self._jobs if job.probe]
        touched = self.warm(max(MIN_WARM_BYTES, int(WARM_FACTOR * max(peaks))))
        seconds = sum(job.progress.round_seconds() for job in self._jobs)
        runs = sum(len(job.progress.runs_left) for job in self._jobs)
        rule = self.options.rule
        self.reporter.note(
            f"{len(self._jobs)} workloads, {runs} runs a round, "
            f"about {quantity(seconds, 'seconds')}; {quantity(touched, 'bytes')} of memory warmed"
        )
        if (fitting := rule.rounds_that_fit(seconds)) < self.options.rounds:
            self.reporter.note(
                f"only {fitting} of {wording.rounds(self.options.rounds)} fit into "
                f"{self.options.time_budget_seconds:g} s. For firmer results: --time-budget "
                f"{self.options.rounds * seconds * 1.1:.0f}, or fewer workloads"
            )

    def _measure(self) -> Outcome[SuiteResults]:
        start = self.memo.clock()

        def decide(number: int) -> Stop | None:
            """Nothing but rounds and time ends the suite: its verdicts are not looked at before."""
            elapsed = self.memo.clock() - start
            return decision(self.memo, self.options.rule, number, elapsed, lambda: 1)

        try:
            stop = run_rounds(self._jobs, decide)
        except KeyboardInterrupt:
            stop = Stop("interrupted", "interrupted by the user")
        except UserError as error:
            if not self._any_measured():
                raise
            return Outcome(self._results(Stop("aborted", error.message)), error)
        return Outcome(self._results(stop))

    def _any_measured(self) -> bool:
        return any(job.rounds.samples for job in self._jobs)

    def _results(self, stop: Stop) -> SuiteResults:
        options = self.options
        runs = [job.runs for job in self._jobs]
        return SuiteResults(
            schema=suite_results.SCHEMA,
            created=self._created,
            tsmalloc_version=__version__,
            suite=str(options.suite),
            settings=SuiteSettings(
                seed=options.seed,
                rounds=options.rounds,
                time_budget_seconds=options.time_budget_seconds,
                timeout_seconds=options.timeout_seconds,
                cpus=None if options.cpus is None else list(options.cpus),
            ),
            machine=self._machine,
            allocators=self._infos,
            floors=self._floor_infos,
            candidate=options.candidate,
            peers=list(options.peers),
            stop=stop,
            changed=changed(self._files),
            analysis=analyse(runs, options.field),
            runs=runs,
        )
