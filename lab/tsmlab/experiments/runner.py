"""The flow of a run of experiments: warm memory, rounds, causes, results.

Why: here one can read the order of all steps. A round runs every experiment that still has one, and
in it every allocator at every point once, in a random order of the experiment's own: so all of them
have had as many rounds as the time allowed, whenever it ends. Untimed runs come last.
Refuses to: print, or to lose measurements. However it all ends, the outcome has what was measured.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tsmlab import __version__, machine, records, wording
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.experiments import causes as watching
from tsmlab.experiments import model
from tsmlab.experiments.analysis import analyse, usable_processors
from tsmlab.experiments.catalogue import describe_point
from tsmlab.experiments.causes import Observer, coarsened
from tsmlab.experiments.plan import FEWEST_ROUNDS, Plan
from tsmlab.fleet import Crew, Fleet, machine_of
from tsmlab.journal import Digests, Memo, Part, changed, digests
from tsmlab.measuring import Executor, RunRequest
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.parts import Job, Progress, run_rounds
from tsmlab.progress import Reporter
from tsmlab.results import AllocatorInfo, Outcome, Sample, Stop
from tsmlab.schedule import Entry, Rounds, Slot, StopRule, part_seed
from tsmlab.trial import Program, Trial

WARM_BYTES = 1 << 30
# The built-in metrics by the names of a trial.
OUR_NAMES = {TIME: model.WALL_SECONDS, PEAK_MEMORY: model.PEAK_BYTES}


@dataclass(frozen=True)
class Options:
    """The options of a run; the plans have the allocators and the rounds."""

    plans: tuple[Plan, ...]
    seed: int
    cpus: tuple[int, ...] | None = None
    time_budget_seconds: float | None = None

    @property
    def allocators(self) -> list[Allocator]:
        """Of all plans, each once."""
        return list({a.name: a for plan in self.plans for a in plan.allocators}.values())

    @property
    def files(self) -> list[Path]:
        """Everything that takes part but for the allocators."""
        return [*(Path(p.definition.file) for p in self.plans), *(p.program for p in self.plans)]


@dataclass(frozen=True)
class _Contender:
    """One cell. To the schedule each is an allocator of its own, named by the label."""

    point: int
    label: str
    allocator: Allocator
    program: Program
    trial: Trial

    @property
    def entry(self) -> Entry:
        return Entry(replace(self.allocator, name=self.label))


@dataclass
class _Job(Job):
    """One experiment with its plan and what it has measured."""

    plan: Plan
    contenders: dict[str, _Contender]
    causes: dict[str, model.Causes]

    def runs_of(self, label: str) -> list[model.Run]:
        return [_run(sample) for sample in self.rounds.samples if sample.allocator == label]


def run_experiments(
    options: Options,
    executor: Executor,
    observers: Sequence[Observer],
    reporter: Reporter,
    memo: Memo,
    warm: Callable[[int], int] = machine.touch,
    fleet: Fleet | None = None,
) -> Outcome[model.ExperimentResults]:
    """Runs all experiments; on a fleet, whose machines are of one kind, if there is one. Causes are
    counted here.

    Raises UserError and KeyboardInterrupt only where nothing has been measured yet.
    """
    with tempfile.TemporaryDirectory(prefix="tsmalloc-experiment-") as folder:
        session = _Session(options, executor, observers, reporter, memo, Path(folder), fleet)
        return session.run(warm if fleet is None else fleet.touch_memory)


@dataclass
class _Session:
    """The state of one run of experiments."""

    options: Options
    executor: Executor
    observers: Sequence[Observer]
    reporter: Reporter
    memo: Memo
    folder: Path
    fleet: Fleet | None

    def __post_init__(self) -> None:
        self._start = self.memo.clock()
        self._created = self.memo.once("created", str, records.now)
        self._machine = machine_of(self.fleet, self.memo)
        libraries = [a.path for a in self.options.allocators if a.path]
        self._files = self.memo.once(
            "files", Digests, lambda: digests([*self.options.files, *libraries])
        )
        self._rounds = max(plan.rounds for plan in self.options.plans)
        self._progress = Progress(self.reporter, self._rounds)
        self._jobs = [self._job(plan) for plan in self.options.plans]

    # --- making ready -----------------------------------------------------------------------------

    def _job(self, plan: Plan) -> _Job:
        contenders = {c.label: c for c in self._contenders(plan)}
        watched = {
            label: len(watching.watchers(self.observers, contender.allocator))
            if contender.point in plan.causes_points
            else 0
            for label, contender in contenders.items()
        }
        progress = self._progress.add(
            plan.name, plan.definition.run_seconds, dict.fromkeys(contenders, plan.rounds), watched
        )

        def contender_of(slot: Slot) -> _Contender:
            return contenders[slot.entry.allocator.name]

        def run_one(slot: Slot) -> Sample:
            contender = contender_of(slot)
            sample = contender.trial.run(replace(slot, entry=Entry(contender.allocator)))
            return replace(sample, allocator=contender.label)

        crew = None
        if self.fleet is not None:
            trial = next(iter(contenders.values())).trial
            memo = Part(self.memo, plan.name)
            crew = Crew(self.fleet, trial, memo, lambda slot: contender_of(slot).program)
        rounds = Rounds(
            [contender.entry for contender in contenders.values()],
            part_seed(self.options.seed, "experiment", plan.name),
            run_one,
            progress,
            crew=crew,
        )
        return _Job(rounds, progress, plan.rounds, plan, contenders, {})

    def _contenders(self, plan: Plan) -> Iterator[_Contender]:
        memo = Part(self.memo, plan.name)
        for point, values in enumerate(plan.points):
            for allocator in plan.allocators:
                program = Program(
                    command=plan.command(point, allocator.name),
                    stdin=Path("/dev/null"),
                    printed=plan.printed,
                    printed_perhaps=plan.printed_perhaps,
                )
                # Of hundreds of cells, curves come from the untimed runs.
                trial = Trial(program, plan.allocators, self.executor, self.folder, memo, 0)
                trial.timeout_seconds = plan.definition.timeout_seconds
                where = describe_point(values)
                yield _Contender(
                    point=point,
                    label=f"{allocator.name} at {where}" if where else allocator.name,
                    allocator=allocator,
                    program=program,
                    trial=trial,
                )

    # --- the flow ---------------------------------------------------------------------------------

    def run(self, warm: Callable[[int], int]) -> Outcome[model.ExperimentResults]:
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
        def decide(number: int) -> Stop | None:
            return self.memo.once(
                f"after round {number}", Stop | None, partial(self._stop_after, number)
            )

        stop = run_rounds(self._jobs, decide)
        for job in self._jobs:
            job.progress.end_rounds()
        return stop

    def _stop_after(self, number: int) -> Stop | None:
        """By the number of rounds and the time."""
        stop = StopRule(runs=self._rounds).decide(number, self._now(), lambda: 1)
        return stop or self._out_of_time(number)

    def _out_of_time(self, number: int) -> Stop | None:
        """Where the next round and the causes would not fit any more, but not before the fewest
        rounds that say something."""
        budget = self.options.time_budget_seconds
        if budget is None or number < FEWEST_ROUNDS:
            return None
        next_round = sum(job.progress.round_seconds() for job in self._jobs)
        if self._now() + next_round + self._progress.causes_seconds() <= budget:
            return None
        text = f"another round would exceed the time budget of {budget:g} s"
        return Stop("budget", f"{text}; {wording.rounds(number)} done")

    # --- causes -----------------------------------------------------------------------------------

    def _count(self) -> None:
        for job in self._jobs:
            counted = [c for c in job.contenders.values() if self._is_counted(job, c)]
            for contender in counted:
                job.causes[contender.label] = self.memo.once(
                    f"{job.plan.name}: causes of {contender.label}",
                    model.Causes,
                    partial(self._watch, job, contender),
                )
                job.progress.watched_left[contender.label] = 0
            samples = job.rounds.samples
            failed = sum(sample.failure is not None for sample in samples)
            job.progress.note(f"done: {len(samples)} runs, {failed or 'none'} failed")

    @staticmethod
    def _is_counted(job: _Job, contender: _Contender) -> bool:
        """At the points that are asked for, unless the program fails there anyway."""
        asked = contender.point in job.plan.causes_points
        return asked and any(run.failure is None for run in job.runs_of(contender.label))

    def _watch(self, job: _Job, contender: _Contender) -> model.Causes:
        runs = [run for run in job.runs_of(contender.label) if run.failure is None]
        walls = [run.values.get(model.WALL_SECONDS, 0.0) for run in runs]
        request = RunRequest(
            command=contender.program.command,
            allocator=contender.allocator,
            stdin=contender.program.stdin,
            stdout=Path("/dev/null"),
            stderr=Path("/dev/null"),
            timeout_seconds=watching.timeout_seconds(max(walls)),
        )
        parts = []
        for observer in watching.watchers(self.observers, contender.allocator):
            job.progress.watching(contender.label)
            begun = self.memo.clock()
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                parts.append(watching.observed(observer, request, Path(folder)))
            job.progress.watched(contender.label, self.memo.clock() - begun)
        found = watching.merged(parts)
        # A map at every point would be most of the results; the last one has the largest heap.
        shown = found.maps if contender.point == job.plan.causes_points[-1] else []
        return replace(found, maps=[coarsened(heap) for heap in shown])

    # --- the end ----------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.memo.clock() - self._start

    def _any_measured(self) -> bool:
        return any(job.rounds.samples for job in self._jobs)

    def _results(self, stop: Stop) -> model.ExperimentResults:
        options = self.options
        cpus = None if options.cpus is None else list(options.cpus)
        experiments = [self._experiment(job) for job in self._jobs]
        fleet = self.fleet
        processors = usable_processors(self._machine, cpus) if fleet is None else fleet.processors
        return model.ExperimentResults(
            schema=model.SCHEMA,
            created=self._created,
            tsmalloc_version=__version__,
            seed=options.seed,
            cpus=cpus,
            machine=self._machine,
            allocators=[AllocatorInfo.of(allocator) for allocator in options.allocators],
            stop=stop,
            changed=changed(self._files),
            experiments=[replace(e, analysis=analyse(e, processors)) for e in experiments],
        )

    @staticmethod
    def _experiment(job: _Job) -> model.Experiment:
        cells = [
            model.Cell(
                point=contender.point,
                allocator=contender.allocator.name,
                runs=job.runs_of(label),
                gave_up=label in job.rounds.given_up,
                causes=job.causes.get(label),
            )
            for label, contender in job.contenders.items()
        ]
        return model.Experiment(
            definition=job.plan.definition,
            points=job.plan.points,
            allocators=[allocator.name for allocator in job.plan.allocators],
            cells=cells,
            analysis=None,
        )


def _run(sample: Sample) -> model.Run:
    return model.Run(
        round=sample.round,
        position=sample.position,
        started_seconds=sample.started_seconds,
        values=_values(sample),
        failure=sample.failure,
    )


def _values(sample: Sample) -> dict[str, float]:
    values = {OUR_NAMES.get(name, name): value for name, value in sample.values.items()}
    if values.get(model.LIVE_BYTES, 0.0) > 0.0 and model.PEAK_BYTES in values:
        values[model.PEAK_OVER_LIVE] = values[model.PEAK_BYTES] / values[model.LIVE_BYTES]
    return values
