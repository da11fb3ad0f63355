"""The flow of a comparison: preflight, warm-up, rounds, analysis.

Why: everything with a rule of its own lives elsewhere (order and stop rule in schedule.py, a single
run in trial.py, numbers in stats.py and analysis.py); here one can read the order of all steps.
Refuses to: print, or to lose measurements. Whatever ends the rounds early, be it Ctrl-C or a
failing set-up command, the outcome holds all that was measured until then.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tsmlab import __version__, doctor, machine, records, results, warnings
from tsmlab.allocators import Allocator
from tsmlab.analysis import Question, analyse, count_unresolved
from tsmlab.errors import UserError
from tsmlab.fleet import Crew, Fleet
from tsmlab.journal import Memo
from tsmlab.machine import Machine
from tsmlab.measuring import Executor
from tsmlab.metrics import BUILT_IN, TIME, MetricSpec
from tsmlab.progress import Reporter
from tsmlab.results import (
    AllocatorInfo,
    Analysis,
    Comparison,
    Failure,
    Outcome,
    Sample,
    Settings,
    Stop,
)
from tsmlab.schedule import Entry, Scheduler, Slot, StopRule, entries_for
from tsmlab.stats import DEFAULT_MARGIN
from tsmlab.trial import OutputCheck, Program, Trial
from tsmlab.wording import counted, quantity

# A run that takes this many times as long as the reference's first one is taken to hang...
TIMEOUT_FACTOR = 20.0
# ... but not before this time, which a short program may well lose to a busy machine.
MIN_TIMEOUT_SECONDS = 10.0
WARMUP_ROUNDS = 1


@dataclass(frozen=True)
class Options:
    """The options of a comparison; the allocators include the reference. more_metrics: what the
    executor's measurements have besides. base_metrics: the first that is judged is what is ranked
    by. vary_layout: each round has an environment of another size, so that no allocator is favoured
    by where the stack happens to lie; off where runs are to be the same. unresolved: how much is
    still to be resolved by further rounds. unfit_warnings: the codes of those that do not hold
    here. say_preflight: whether what was found before the rounds is told.
    """

    program: Program
    allocators: tuple[Allocator, ...]
    reference: Allocator
    seed: int
    rule: StopRule = field(default_factory=StopRule)
    warmup_rounds: int = WARMUP_ROUNDS
    timeout_seconds: float | None = None
    margin: float = DEFAULT_MARGIN
    check_output: bool = True
    consult_doctor: bool = True
    cpus: tuple[int, ...] | None = None
    more_metrics: tuple[MetricSpec, ...] = ()
    base_metrics: tuple[MetricSpec, ...] = BUILT_IN
    vary_layout: bool = True
    unresolved: Callable[[Analysis], int] = count_unresolved
    unfit_warnings: frozenset[str] = frozenset()
    say_preflight: bool = True

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        custom = self.program.metric
        return (*((custom.spec,) if custom else ()), *self.base_metrics, *self.more_metrics)

    @property
    def question(self) -> Question:
        names = tuple(allocator.name for allocator in self.allocators)
        return Question(names, self.reference.name, self.metrics, self.margin, self.seed)


def compare(
    options: Options, executor: Executor, reporter: Reporter, memo: Memo, fleet: Fleet | None = None
) -> Outcome[Comparison]:
    """Runs the whole comparison; its rounds on the fleet, if there is one. Raises UserError only
    where nothing has been measured yet."""
    return _Session(options, executor, reporter, memo, fleet).run()


@dataclass
class _Session:
    """The state of one comparison while it runs."""

    options: Options
    executor: Executor
    reporter: Reporter
    memo: Memo
    fleet: Fleet | None

    def __post_init__(self) -> None:
        self._created = self.memo.once("created", str, records.now)
        self._machine = self.memo.once("machine", Machine, machine.describe)
        self._output = OutputCheck(self.options.reference.name, self.options.check_output)
        self._probe: Sample | None = None
        self._intercepted_calls: int | None = None
        self._timeout_seconds = self.options.timeout_seconds
        self._crew: Crew | None = None

    def run(self) -> Outcome[Comparison]:
        if self.options.consult_doctor:
            self._heed(doctor.diagnose(self.options.program.command))
        with tempfile.TemporaryDirectory(prefix="tsmalloc-compare-") as folder:
            trial = Trial(
                self.options.program,
                self.options.allocators,
                self.executor,
                Path(folder),
                self.memo,
            )
            if self.fleet is not None:
                self._crew = Crew(self.fleet, trial, self.memo)
            self._try_reference(trial)
            self._prove_interception(trial)
            if self.options.say_preflight:
                self._note_preflight()
            return self._measure(trial)

    def _try_reference(self, trial: Trial) -> None:
        """Runs the reference once: it must succeed, and its time tells what a hang is."""
        reference = self.options.reference
        trial.timeout_seconds = self._timeout_seconds
        self.reporter.round_started("probe", 1, 1)
        slot = Slot(Entry(reference), "probe", 0, 1, 0)
        self.reporter.run_started(slot)
        self._probe = trial.run(slot) if self._crew is None else self._crew.samples([slot])[0]
        self.reporter.run_finished(self._probe)
        if self._probe.failure:
            raise _reference_failed(self._probe, self.options)
        if self._timeout_seconds is None:
            seconds = self._probe.values[TIME]
            self._timeout_seconds = max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * seconds)
        trial.timeout_seconds = self._timeout_seconds

    def _prove_interception(self, trial: Trial) -> None:
        """One counted run under the reference, which shows that preloading works here at all."""
        if not self.options.consult_doctor:
            return
        self._intercepted_calls = self.memo.once("counted calls", int, lambda: self._count(trial))

    def _count(self, trial: Trial) -> int:
        program, reference = self.options.program, self.options.reference
        with trial.hooks(reference.name):
            diagnosis = doctor.diagnose(
                program.command,
                allocators=(reference,),
                timeout_seconds=self._timeout_seconds,
                stdin=program.stdin,
            )
        self._heed(diagnosis, repeated=True)
        return sum(proof.calls for proof in diagnosis.proofs)

    def _note_preflight(self) -> None:
        calls = "" if self._intercepted_calls is None else f", {self._intercepted_calls:,} calls"
        self.reporter.note(
            f"preflight  {self.options.reference.name}: "
            f"{quantity(self._probe_seconds(), 'seconds')}{calls}; "
            f"{counted(len(self.options.allocators), 'allocator')}; "
            f"a run of over {quantity(self._timeout_seconds or 0.0, 'seconds')} counts as a hang"
        )

    def _measure(self, trial: Trial) -> Outcome[Comparison]:
        options = self.options
        scheduler = Scheduler(
            entries=entries_for(options.allocators, options.reference),
            reference=options.reference.name,
            seed=options.seed,
            run_one=trial.run,
            judge=self._output.judge,
            unresolved=lambda samples: options.unresolved(analyse(samples, options.question)),
            memo=self.memo,
            observer=self.reporter,
            vary_layout=options.vary_layout,
            crew=self._crew,
        )
        try:
            round_seconds = scheduler.warm_up(options.warmup_rounds)
            self._announce(round_seconds)
            stop = scheduler.measure(options.rule)
        except KeyboardInterrupt:
            stop = Stop("interrupted", "interrupted by the user")
        except UserError as error:
            if not any(s.phase == "measured" for s in scheduler.samples):
                raise
            return Outcome(self._conclude(scheduler.samples, Stop("aborted", error.message)), error)
        return Outcome(self._conclude(scheduler.samples, stop))

    def _announce(self, warmup_round_seconds: float) -> None:
        rule = self.options.rule
        entries = len(self.options.allocators) + 1
        seconds = warmup_round_seconds or entries * self._probe_seconds()
        fitting = rule.rounds_that_fit(seconds)
        self.reporter.expect(fitting)
        if rule.runs is None and fitting < rule.min_rounds:
            self.reporter.note(
                f"a round of {entries} runs takes about {quantity(seconds, 'seconds')}: only "
                f"{fitting} of {rule.min_rounds} rounds fit into {rule.patience_seconds:g} s. For "
                f"firmer results: --time-budget {rule.min_rounds * seconds * 1.1:.0f}, or fewer "
                f"allocators (-a)"
            )

    def _probe_seconds(self) -> float:
        assert self._probe is not None
        return self._probe.values[TIME]

    def _heed(self, diagnosis: doctor.Diagnosis, repeated: bool = False) -> None:
        """Stops at findings that make a comparison meaningless; `repeated`: the notes were shown
        before."""
        if fatal := diagnosis.fatal:
            startable = diagnosis.resolved is not None
            remedies = [finding.remedy for finding in fatal if finding.remedy]
            if startable:
                remedies.append("(--no-doctor compares all the same.)")
            raise UserError(
                f"comparing would be meaningless: {' '.join(f.message for f in fatal)}"
                if startable
                else fatal[0].message,
                "\n".join(remedies),
            )
        for finding in diagnosis.findings:
            if finding.severity == "warning" and not repeated:
                self.reporter.note(f"doctor     {finding.message} {finding.remedy}")

    def _conclude(self, run_samples: Sequence[Sample], stop: Stop) -> Comparison:
        options = self.options
        samples = [*([self._probe] if self._probe else []), *self._output.judge(run_samples)]
        comparison = Comparison(
            schema=results.SCHEMA,
            created=self._created,
            tsmalloc_version=__version__,
            command=list(options.program.command),
            reference=options.reference.name,
            settings=self._settings(),
            machine=self._machine,
            metrics=list(options.metrics),
            allocators=[AllocatorInfo.of(allocator) for allocator in options.allocators],
            stop=stop,
            output_comparable=self._output.comparable,
            intercepted_calls=self._intercepted_calls,
            analysis=analyse(samples, options.question),
            warnings=[],
            samples=samples,
            kinds=[] if self._crew is None else self._crew.kinds(samples, options.question),
        )
        troubles = warnings.find_all(comparison)
        fit = [each for each in troubles if each.code not in options.unfit_warnings]
        return replace(comparison, warnings=fit)

    def _settings(self) -> Settings:
        options, program, rule = self.options, self.options.program, self.options.rule
        chosen_by: Literal["user", "lab"] = "lab" if options.timeout_seconds is None else "user"
        return Settings(
            seed=options.seed,
            runs=rule.runs,
            min_rounds=rule.min_rounds,
            max_rounds=rule.max_rounds,
            warmup_rounds=options.warmup_rounds,
            time_budget_seconds=rule.time_budget_seconds,
            timeout_seconds=self._timeout_seconds,
            timeout_chosen_by=chosen_by,
            margin=options.margin,
            expected_exit=program.expected_exit,
            output_checked=options.check_output,
            metric_pattern=program.metric.pattern if program.metric else None,
            setup=program.setup,
            cleanup=program.cleanup,
            input=None if str(program.stdin) == "/dev/null" else str(program.stdin),
            cpus=None if options.cpus is None else list(options.cpus),
        )


class ReferenceFailedError(UserError):
    """The reference must succeed, or there is nothing to compare with. told: with the program's
    last words."""

    def __init__(self, name: str, failure: Failure, remedy: str) -> None:
        said = f"\n{failure.stderr_tail}" if failure.stderr_tail else ""
        self.told = f"{failure.text}{said}"
        self.kind = failure.kind
        super().__init__(f"the program fails under the reference {name}: {self.told}", remedy)


def _reference_failed(probe: Sample, options: Options) -> ReferenceFailedError:
    """The error, with the remedy for the kind of failure."""
    failure = probe.failure
    assert failure is not None
    remedies = {
        "exit": "If that is how it ends when all is well, say so: --expect-exit "
        f"{probe.measurement.get('exit_code')}",
        "timeout": "Give it more time with --timeout, or less work.",
        "metric": "Try the expression of --metric on what the program prints.",
        "start": "Check the program's name and that it can be executed.",
    }
    return ReferenceFailedError(
        options.reference.name,
        failure,
        remedies.get(failure.kind, "Run it by itself first: it must work without any of this."),
    )
