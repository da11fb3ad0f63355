"""The flow of a run of experiments: warm memory, rounds, causes, results.

Why: here one can read what happens after what. A round runs every experiment that still has one,
and in it every allocator at every point once, in a random order of the experiment's own: so all of
them have had as many rounds as the time allowed, whenever it ends. What nobody times comes last.
Refuses to: print, or to lose measurements. Each finished run is in the journal before the next one
begins, and however it all ends, the outcome has what was measured.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab import guest_memory, wording
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.experiments import causes as watching
from tsmlab.experiments.analysis import analyse, usable_processors
from tsmlab.experiments.catalogue import describe_point
from tsmlab.experiments.causes import Observer
from tsmlab.experiments.heap_maps import coarsened
from tsmlab.experiments.journal import CellName, Journal
from tsmlab.experiments.model import (
    LIVE_BYTES,
    PEAK_BYTES,
    PEAK_OVER_LIVE,
    SCHEMA,
    WALL_SECONDS,
    Causes,
    Cell,
    Experiment,
    ExperimentResults,
    Run,
)
from tsmlab.experiments.plan import FEWEST_ROUNDS, Plan
from tsmlab.experiments.progress import ExperimentProgress, Progress
from tsmlab.measuring import Executor, RunRequest
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.progress import Reporter
from tsmlab.results import Sample, Stop
from tsmlab.schedule import Entry, Rounds, Slot, StopRule
from tsmlab.trial import Program, Trial

WARM_BYTES = 1 << 30
# What a trial calls the built-in metrics.
OUR_NAMES = {TIME: WALL_SECONDS, PEAK_MEMORY: PEAK_BYTES}


@dataclass(frozen=True)
class Outcome:
    """The results, and the error that ended the run early, if one did."""

    results: ExperimentResults
    error: UserError | None = None


@dataclass(frozen=True)
class _Contender:
    """One cell. To the schedule each is an allocator of its own, named by the label."""

    name: CellName
    label: str
    allocator: Allocator
    program: Program
    trial: Trial

    @property
    def entry(self) -> Entry:
        return Entry(replace(self.allocator, name=self.label))


@dataclass
class _Job:
    """One experiment with what runs it."""

    plan: Plan
    contenders: dict[str, _Contender]
    rounds: Rounds
    progress: ExperimentProgress
    runs: dict[str, list[Run]]
    causes: dict[str, Causes]


def run_experiments(
    journal: Journal,
    executor: Executor,
    observers: Sequence[Observer],
    reporter: Reporter,
    clock: Callable[[], float] = time.monotonic,
    warm: Callable[[int], int] = guest_memory.touch,
) -> Outcome:
    """Runs what the journal says was begun, without what it says is done.

    Raises UserError and KeyboardInterrupt only where nothing has been measured yet.
    """
    with tempfile.TemporaryDirectory(prefix="tsmalloc-experiment-") as folder:
        session = _Session(journal, executor, observers, reporter, clock, Path(folder))
        return session.run(warm)


class _Session:
    """The state of one run of experiments."""

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        observers: Sequence[Observer],
        reporter: Reporter,
        clock: Callable[[], float],
        folder: Path,
    ) -> None:
        self._journal = journal
        self._header = journal.header
        self._executor = executor
        self._observers = observers
        self._folder = folder
        self._clock = clock
        # A resumed run goes on where the clock of the first one stood.
        self._start = clock() - journal.seconds
        plans = journal.header.plans()
        self._rounds = max(plan.rounds for plan in plans)
        self._progress = Progress(reporter, self._rounds)
        self._jobs = [self._job(plan) for plan in plans]

    # --- making ready -----------------------------------------------------------------------------

    def _job(self, plan: Plan) -> _Job:
        contenders = {c.label: c for c in self._contenders(plan)}
        watched = {
            label: len(watching.watchers(self._observers, contender.allocator))
            if contender.name.point in plan.causes_points
            else 0
            for label, contender in contenders.items()
        }
        progress = self._progress.add(
            plan.name,
            plan.definition.run_seconds,
            dict.fromkeys(contenders, plan.rounds),
            watched,
        )
        runs: dict[str, list[Run]] = {label: [] for label in contenders}

        def run_one(slot: Slot) -> Sample:
            contender = contenders[slot.entry.allocator.name]
            sample, run = self._run_or_recall(contender, slot)
            runs[contender.label].append(run)
            return sample

        rounds = Rounds(
            [contender.entry for contender in contenders.values()],
            experiment_seed(self._header.seed, plan.name),
            run_one,
            progress,
        )
        return _Job(plan, contenders, rounds, progress, runs, {})

    def _contenders(self, plan: Plan) -> Iterator[_Contender]:
        for point, values in enumerate(plan.points):
            for allocator in plan.allocators:
                program = Program(
                    command=plan.command(point, allocator.name),
                    stdin=Path("/dev/null"),
                    printed=plan.printed,
                    printed_perhaps=plan.printed_perhaps,
                )
                trial = Trial(program, plan.allocators, self._executor, self._folder, self._clock)
                trial.timeout_seconds = plan.definition.timeout_seconds
                where = describe_point(values)
                yield _Contender(
                    name=CellName(plan.name, point, allocator.name),
                    label=f"{allocator.name} at {where}" if where else allocator.name,
                    allocator=allocator,
                    program=program,
                    trial=trial,
                )

    # --- the flow ---------------------------------------------------------------------------------

    def run(self, warm: Callable[[int], int]) -> Outcome:
        error: UserError | None = None
        try:
            warm(WARM_BYTES)
            stop = self._measure()
            self._count()
        except KeyboardInterrupt:
            if not self._any_measured():
                raise
            stop = Stop("interrupted", "interrupted by the user")
        except UserError as problem:
            if not self._any_measured():
                raise
            error, stop = problem, Stop("aborted", problem.message)
        return Outcome(self._results(stop), error)

    def _measure(self) -> Stop:
        number, stop = 0, None
        while stop is None:
            number += 1
            for job in self._jobs:
                if number <= job.plan.rounds:
                    job.rounds.run("measured", number)
                for label in job.rounds.given_up:
                    job.progress.forget(label)
            stop = self._stop_after(number)
        for job in self._jobs:
            job.progress.end_rounds()
        return stop

    def _stop_after(self, number: int) -> Stop | None:
        """As it was decided before, if it was; else by the number of rounds and the time."""
        if any(done > number for _, done in self._journal.runs):
            return None
        if self._journal.stop:
            return self._journal.stop
        stop = StopRule(runs=self._rounds).decide(number, self._now(), lambda: 1)
        stop = stop or self._out_of_time(number)
        if stop:
            self._journal.add(self._now(), stop=stop)
        return stop

    def _out_of_time(self, number: int) -> Stop | None:
        """Where the next round and the causes would not fit any more, but not before the fewest
        rounds that say something."""
        budget = self._header.time_budget_seconds
        if budget is None or number < FEWEST_ROUNDS:
            return None
        next_round = sum(job.progress.round_seconds() for job in self._jobs)
        if self._now() + next_round + self._progress.causes_seconds() <= budget:
            return None
        text = f"another round would exceed the time budget of {budget:g} s"
        return Stop("budget", f"{text}; {wording.rounds(number)} done")

    def _run_or_recall(self, contender: _Contender, slot: Slot) -> tuple[Sample, Run]:
        """The run of this slot: the one in the journal, or a new one, which then is in it."""
        recorded = self._journal.runs.get((contender.name, slot.round))
        if recorded:
            if recorded.position != slot.position:
                raise UserError(
                    f"{self._journal.path}: its runs are not in the order of its seed.",
                    "It was edited, or damaged: begin anew, without --resume.",
                )
            return _recalled(recorded, slot), recorded
        started = self._now()
        sample = contender.trial.run(replace(slot, entry=Entry(contender.allocator)))
        run = Run(
            round=slot.round,
            position=slot.position,
            started_seconds=round(started, 6),
            values=_values(sample),
            failure=sample.failure,
        )
        self._journal.add(self._now(), contender.name, run=run)
        return replace(sample, allocator=contender.label), run

    # --- causes -----------------------------------------------------------------------------------

    def _count(self) -> None:
        for job in self._jobs:
            counted = [c for c in job.contenders.values() if self._is_counted(job, c)]
            for contender in counted:
                known = self._journal.causes.get(contender.name)
                job.causes[contender.label] = known or self._watch(job, contender)
                job.progress.watched_left[contender.label] = 0
            runs = [run for each in job.runs.values() for run in each]
            failed = sum(run.failure is not None for run in runs)
            job.progress.note(f"done: {len(runs)} runs, {failed or 'none'} failed")

    @staticmethod
    def _is_counted(job: _Job, contender: _Contender) -> bool:
        """At the points that are asked for, unless the program fails there anyway."""
        asked = contender.name.point in job.plan.causes_points
        return asked and any(run.failure is None for run in job.runs[contender.label])

    def _watch(self, job: _Job, contender: _Contender) -> Causes:
        runs = [run for run in job.runs[contender.label] if run.failure is None]
        walls = [run.values.get(WALL_SECONDS, 0.0) for run in runs]
        request = RunRequest(
            command=contender.program.command,
            allocator=contender.allocator,
            env={},
            stdin=contender.program.stdin,
            stdout=Path("/dev/null"),
            stderr=Path("/dev/null"),
            timeout_seconds=watching.timeout_seconds(max(walls)),
            cwd=None,
        )
        parts = []
        for observer in watching.watchers(self._observers, contender.allocator):
            job.progress.watching(contender.label)
            begun = self._clock()
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                parts.append(watching.observed(observer, request, Path(folder)))
            job.progress.watched(contender.label, self._clock() - begun)
        found = watching.merged(parts)
        # A map at every point would be most of the results; the last one has the largest heap.
        shown = found.maps if contender.name.point == job.plan.causes_points[-1] else []
        found = replace(found, maps=[coarsened(heap) for heap in shown])
        self._journal.add(self._now(), contender.name, causes=found)
        return found

    # --- the end ----------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock() - self._start

    def _any_measured(self) -> bool:
        return any(runs for job in self._jobs for runs in job.runs.values())

    def _results(self, stop: Stop) -> ExperimentResults:
        header = self._header
        experiments = [self._experiment(job) for job in self._jobs]
        processors = usable_processors(header.machine, header.cpus)
        return ExperimentResults(
            schema=SCHEMA,
            created=header.created,
            tsmalloc_version=header.tsmalloc_version,
            seed=header.seed,
            cpus=header.cpus,
            machine=header.machine,
            allocators=header.allocators,
            stop=stop,
            changed=header.changed(),
            experiments=[replace(e, analysis=analyse(e, processors)) for e in experiments],
        )

    @staticmethod
    def _experiment(job: _Job) -> Experiment:
        cells = [
            Cell(
                point=contender.name.point,
                allocator=contender.name.allocator,
                runs=job.runs[label],
                gave_up=label in job.rounds.given_up,
                causes=job.causes.get(label),
            )
            for label, contender in job.contenders.items()
        ]
        return Experiment(
            definition=job.plan.definition,
            points=job.plan.points,
            allocators=[allocator.name for allocator in job.plan.allocators],
            cells=cells,
            analysis=None,
        )


def experiment_seed(seed: int, experiment: str) -> int:
    """Each experiment has orders of its own, which do not depend on what else is run."""
    return random.Random(f"experiment/{seed}/{experiment}").randrange(1 << 31)


def _values(sample: Sample) -> dict[str, float]:
    values = {OUR_NAMES.get(name, name): value for name, value in sample.values.items()}
    if values.get(LIVE_BYTES, 0.0) > 0.0 and PEAK_BYTES in values:
        values[PEAK_OVER_LIVE] = values[PEAK_BYTES] / values[LIVE_BYTES]
    return values


def _recalled(run: Run, slot: Slot) -> Sample:
    """What the schedule and the progress need to know of a run that was made before."""
    values = {TIME: run.values[WALL_SECONDS]} if WALL_SECONDS in run.values else {}
    return Sample(
        phase=slot.phase,
        round=slot.round,
        position=slot.position,
        allocator=slot.entry.allocator.name,
        replicate=0,
        started_seconds=run.started_seconds,
        padding_bytes=slot.padding_bytes,
        values=values,
        output_sha256=None,
        output_bytes=None,
        failure=run.failure,
        measurement={},
    )
