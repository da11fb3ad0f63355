"""The flow of a comparison: preflight, warm-up, rounds, analysis.

Every verb that measures is one or several comparisons, with its own programs, points, metrics and
rules. Order and stop rule are in schedule.py, a single run in trial.py, numbers in stats.py and
analysis.py. If the rounds end early, by Ctrl-C or a failing set-up command, the outcome has
everything measured until then.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tsmlab import doctor, records, warnings
from tsmlab.allocators import Allocator
from tsmlab.analysis import Question, analyse, at_points, comparison_of, count_unresolved
from tsmlab.definition import AnalysisRequest
from tsmlab.errors import UserError
from tsmlab.findings import find
from tsmlab.fleet import Fleet, WorkerPool, kinds_of, machine_of
from tsmlab.journal import Memo
from tsmlab.measuring import Executor
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, MetricSpec
from tsmlab.progress import Reporter
from tsmlab.results import (
    EARLY,
    Analysis,
    Comparison,
    Failure,
    Outcome,
    ResultWarning,
    Sample,
    Settings,
    Stop,
    SweepPoint,
    ended,
)
from tsmlab.schedule import Entry, Scheduler, Slot, StopRule, entries_for
from tsmlab.stats import DEFAULT_MARGIN
from tsmlab.sweep import Parameter, describe, points_of
from tsmlab.trial import (
    SERIES_POINTS,
    OutputCheck,
    Program,
    Trial,
    UnitCheck,
    at_point,
    hooks,
    wall_seconds,
)
from tsmlab.wording import counted, quantity, rounds

# A run that takes this many times as long as the reference's first one is considered hung...
TIMEOUT_FACTOR = 20.0
# ... but not before this time, which a short program may easily lose to a busy machine.
MIN_TIMEOUT_SECONDS = 10.0
WARMUP_ROUNDS = 1
# The overhead of a run: starting `measure`, reading the output, the journal.
OVERHEAD_SECONDS = 0.05
# If no trial succeeded, the length of a run is unknown.
UNKNOWN_TIMEOUT_SECONDS = 300.0
WARM_FACTOR = 4.0
NO_DOCTOR = "(To compare anyway: --no-doctor)"
MIN_WARM_BYTES = 1 << 30


@dataclass(frozen=True)
class Options:
    """The options of a comparison; the allocators include the reference. base_metrics: in the
    executor's measurements; the first judged one ranks. vary_layout: each round has an environment
    of another size, so that no allocator is favoured by the position of the stack; off if runs
    should be identical. unresolved: how many verdicts further rounds could still resolve.
    unfit_warnings: codes of warnings that do not apply here. print_preflight: whether to report
    findings from before the rounds. parameters: of a sweep; a round runs every allocator at every
    point. series_points: how many points to keep of each run's memory curve. ask_order: whether the
    results say which allocator is best at which point. by_point: nothing is compared between
    points, or with the reference alone, so each has a block of its own in a round, and a point
    where the reference fails does not affect the others. warm: touches memory before the rounds.
    one_kind: a cluster must have machines of one kind. result_warnings: warnings known
    beforehand."""

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
    base_metrics: tuple[MetricSpec, ...] = BUILT_IN
    vary_layout: bool = True
    unresolved: Callable[[Analysis], int] = count_unresolved
    unfit_warnings: frozenset[str] = frozenset()
    print_preflight: bool = True
    parameters: tuple[Parameter, ...] = ()
    series_points: int = SERIES_POINTS
    ask_order: bool = False
    by_point: bool = False
    timeout_factor: float = TIMEOUT_FACTOR
    min_timeout_seconds: float = MIN_TIMEOUT_SECONDS
    warm: Callable[[int], int] | None = None
    one_kind: bool = False

    result_warnings: tuple[ResultWarning, ...] = ()

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        custom = (metric.spec for metric in self.program.metrics)
        return (*custom, *self.base_metrics)

    @property
    def question(self) -> Question:
        names = tuple(allocator.name for allocator in self.allocators)
        return Question(names, self.reference.name, self.metrics, self.margin, self.seed)


def compare(
    options: Options, executor: Executor, reporter: Reporter, memo: Memo, fleet: Fleet | None = None
) -> Outcome[Comparison]:
    """Runs the whole comparison; on the fleet, if there is one. Raises UserError only if nothing
    has been measured yet."""
    return _Session(options, executor, reporter, memo, fleet).run()


@dataclass(frozen=True)
class _Counted:
    """Results of a counted run under the reference: calls; programs, the busiest first; programs
    that used another library's malloc, and that library."""

    calls: int
    programs: list[str]
    served_by: dict[str, str]


@dataclass
class _Session:
    options: Options
    executor: Executor
    reporter: Reporter
    memo: Memo
    fleet: Fleet | None

    def __post_init__(self) -> None:
        self._created = self.memo.once("created", str, records.now)
        self._machine = machine_of(self.fleet if self.options.one_kind else None, self.memo)
        self._output = OutputCheck(self.options.reference.name, self.options.check_output)
        self._units = UnitCheck()
        self._points = points_of(self.options.parameters)
        control = None if self.options.by_point else self.options.reference
        self._entries = entries_for(self.options.allocators, control, self._points)
        self._probes: list[Sample] = []
        self._counted: _Counted | None = None
        self._findings: dict[str, doctor.Finding] = {}
        self._timeout_seconds = self.options.timeout_seconds

    def run(self) -> Outcome[Comparison]:
        if self.options.consult_doctor:
            self._check_diagnosis(doctor.diagnose(self._first_program.command))
        with tempfile.TemporaryDirectory(prefix="tsmalloc-compare-") as folder:
            trial = Trial(
                self.options.program,
                self.options.allocators,
                self.executor,
                Path(folder),
                self.memo,
                self.options.series_points,
                self._points,
            )
            scheduler = self._scheduler(trial)
            self._try_reference(trial, scheduler)
            if self.options.consult_doctor:
                self._counted = self.memo.once("counted calls", _Counted, self._count)
            self._warm_memory()
            if self.options.print_preflight:
                self._note_preflight()
            return self._measure(scheduler)

    @property
    def _first_program(self) -> Program:
        return self.options.program.at(self._points[0], self.options.reference.name)

    def _try_reference(self, trial: Trial, scheduler: Scheduler) -> None:
        """Runs the reference once at each point, which must succeed, except if points are judged
        one by one. The longest time determines when a run counts as hung."""
        options, reference = self.options, self.options.reference
        unknown = UNKNOWN_TIMEOUT_SECONDS if options.by_point else None
        trial.timeout_seconds = self._timeout_seconds or unknown
        self.reporter.round_started("probe", 1, len(self._points))
        for index, point in enumerate(self._points):
            entry = Entry(reference, 0, index, describe(point))
            (probe,) = scheduler.made([Slot(entry, "probe", 0, index + 1, 0)])
            if probe.failure and not options.by_point:
                raise _reference_failed(probe, options, entry.where)
            if options.consult_doctor and (left := probe.measurement.get("left_behind")):
                raise _daemon(left)
            if probe.failure:
                self.reporter.note(f"{entry.label}: {probe.failure.text}")
            self._probes.append(probe)
        self._probes = self._units.judge(self._probes)
        if self._timeout_seconds is None:
            known = [wall_seconds(probe) for probe in self._probes if not probe.failure]
            self._timeout_seconds = (
                max(options.min_timeout_seconds, options.timeout_factor * max(known))
                if known
                else UNKNOWN_TIMEOUT_SECONDS
            )
        trial.timeout_seconds = self._timeout_seconds

    def _warm_memory(self) -> None:
        """Other allocators may need more than the reference."""
        if self.options.warm is None:
            return
        peaks = [probe.values.get(PEAK_MEMORY, 0.0) for probe in self._probes]
        warm = self.options.warm if self.fleet is None else self.fleet.touch_memory
        warm(max(MIN_WARM_BYTES, int(WARM_FACTOR * max(peaks))))

    def _count(self) -> _Counted:
        """One counted run under the reference, which shows that preloading works here at all."""
        program, reference = self._first_program, self.options.reference
        with hooks(program, reference.name):
            diagnosis = doctor.diagnose(
                program.command,
                allocators=(at_point(reference, self._points[0]),),
                timeout_seconds=self._timeout_seconds,
                stdin=program.stdin,
            )
        self._check_diagnosis(diagnosis)
        calls: Counter[str] = Counter()
        served: dict[str, str] = {}
        for proof in diagnosis.proofs:
            served = proof.non_libc_providers
            for counts in proof.processes:
                calls[Path(counts.program).name] += counts.calls
        return _Counted(calls.total(), [name for name, _ in calls.most_common()], served)

    def _note_preflight(self) -> None:
        calls = "" if self._counted is None else f", {counted(self._counted.calls, 'call')}"
        count = len(self._points)
        times = [quantity(wall_seconds(probe), "seconds") for probe in self._probes]
        time_range = times[0] if count == 1 else f"{times[0]} to {times[-1]} at {count} points"
        self.reporter.note(
            f"preflight  {self.options.reference.name}: {time_range}{calls}; "
            f"{counted(len(self.options.allocators), 'allocator')}; "
            f"runs longer than {quantity(self._timeout_seconds or 0.0, 'seconds')} count as hung"
        )

    def _scheduler(self, trial: Trial) -> Scheduler:
        options = self.options
        return Scheduler(
            entries=self._entries,
            reference=None if options.by_point else options.reference.name,
            seed=options.seed,
            run_one=trial.run,
            judge=lambda samples: self._output.judge(self._units.judge(samples)),
            unresolved=self._unresolved,
            memo=self.memo,
            observer=self.reporter,
            vary_layout=options.vary_layout,
            worker_pool=WorkerPool(self.fleet, trial, self.memo) if self.fleet else None,
            by_point=options.by_point,
        )

    def _measure(self, scheduler: Scheduler) -> Outcome[Comparison]:
        options = self.options
        try:
            round_seconds = scheduler.warm_up(options.warmup_rounds)
            self._announce(round_seconds)
            stop = scheduler.measure(options.rule)
        except EARLY as problem:
            measured = any(s.phase == "measured" for s in scheduler.samples)
            if isinstance(problem, UserError) and not measured:
                raise
            return ended(problem, lambda stop: self._conclude(scheduler.samples, stop))
        return Outcome(self._conclude(scheduler.samples, stop))

    def _unresolved(self, samples: Sequence[Sample]) -> int:
        question, count = self.options.question, len(self._points)
        whole = self.options.unresolved(analyse(samples, question))
        parts = at_points(samples, count, question) if count > 1 else []
        return whole + sum(map(self.options.unresolved, parts))

    def _announce(self, warmup_round_seconds: float) -> None:
        rule, runs = self.options.rule, len(self._entries)
        probed = [wall_seconds(probe) + OVERHEAD_SECONDS for probe in self._probes]
        seconds = warmup_round_seconds or sum(probed[entry.point] for entry in self._entries)
        fitting = rule.rounds_that_fit(seconds)
        self.reporter.expect(fitting)
        if rule.runs is None and fitting < rule.min_rounds:
            self.reporter.note(
                f"a round of {counted(runs, 'run')} takes about {quantity(seconds, 'seconds')}: "
                f"only {fitting} of {rounds(rule.min_rounds)} fit into {rule.patience_seconds:g} "
                "s. For more reliable results: "
                f"--time-budget {rule.min_rounds * seconds * 1.1:.0f}, or fewer allocators (-a)"
            )

    def _check_diagnosis(self, diagnosis: doctor.Diagnosis) -> None:
        """Stops at findings that make a comparison meaningless; notes the others, each kind
        once."""
        diagnosis.raise_if_fatal(NO_DOCTOR)
        for finding in diagnosis.warnings:
            if finding.code not in self._findings:
                self._findings[finding.code] = finding
                self.reporter.note(f"doctor     {finding.full_text}")

    def _conclude(self, run_samples: Sequence[Sample], stop: Stop) -> Comparison:
        options = self.options
        judged = self._output.judge(self._units.judge(run_samples))
        samples = [*self._probes, *judged]
        question = replace(options.question, metrics=tuple(map(self._with_unit, options.metrics)))
        parts = at_points(samples, len(self._points), question) if options.parameters else []
        comparison = comparison_of(
            question,
            samples,
            options.allocators,
            created=self._created,
            command=list(options.program.command),
            settings=self._settings(),
            machine=self._machine,
            stop=stop,
            output_comparable=self._output.comparable,
            intercepted_calls=self._counted.calls if self._counted else None,
            served_by=self._counted.served_by if self._counted else {},
            kinds=kinds_of(samples, question),
            parameters=list(options.parameters),
            points=list(map(SweepPoint, self._points, parts)) if parts else [],
        )
        if options.ask_order:
            order = AnalysisRequest("order", question.primary, None, {}, [], {})
            comparison = replace(comparison, findings=find(comparison, [order], None))
        programs = self._counted.programs if self._counted else []
        result_warnings = [
            *options.result_warnings,
            *(
                ResultWarning(each.code, each.message.rstrip("."), "the doctor saw it", each.remedy)
                for each in self._findings.values()
            ),
            *warnings.find_all(comparison, programs),
        ]
        fit = [each for each in result_warnings if each.code not in options.unfit_warnings]
        return replace(comparison, warnings=fit)

    def _with_unit(self, spec: MetricSpec) -> MetricSpec:
        return replace(spec, unit=self._units.expected.get(spec.key, spec.unit))

    def _settings(self) -> Settings:
        options, program, rule = self.options, self.options.program, self.options.rule
        chosen_by: Literal["user", "lab"] = "lab" if options.timeout_seconds is None else "user"
        return rule.settings(
            seed=options.seed,
            warmup_rounds=options.warmup_rounds,
            timeout_seconds=self._timeout_seconds,
            timeout_chosen_by=chosen_by,
            margin=options.margin,
            expected_exit=program.expected_exit,
            output_checked=options.check_output,
            setup=program.setup,
            cleanup=program.cleanup,
            input=None if str(program.stdin) == "/dev/null" else str(program.stdin),
            cpus=None if options.cpus is None else list(options.cpus),
            metric_patterns=[metric.pattern for metric in program.metrics],
        )


class ReferenceFailedError(UserError):
    """The reference must succeed, or there is nothing to compare with. full_text: the message, with
    the program's last output."""

    def __init__(self, name: str, failure: Failure, remedy: str, where: str = "") -> None:
        output_tail = f"\n{failure.stderr_tail}" if failure.stderr_tail else ""
        self.full_text = f"{failure.text}{output_tail}"
        self.kind = failure.kind
        at = f" at {where}" if where else ""
        super().__init__(
            f"the program fails under the reference {name}{at}: {self.full_text}", remedy
        )


def _daemon(left: int) -> UserError:
    return UserError(
        f"the program continues in the background: {counted(left, 'process')} outlived it and "
        "would not be measured.".replace("processs", "processes"),
        "Keep it in the foreground (often an option like --nodaemon, -D or -f), with a client "
        f"that stops it when its work is done. {NO_DOCTOR}",
    )


def _reference_failed(probe: Sample, options: Options, where: str) -> ReferenceFailedError:
    failure = probe.failure
    assert failure is not None
    remedies = {
        "exit": "If this exit status means success: --expect-exit "
        f"{probe.measurement.get('exit_code')}",
        "timeout": "Give it more time with --timeout, or less work.",
        "metric": "Check the regular expression of --metric against the program's output.",
        "start": "Check the program's name, and that it is executable.",
    }
    return ReferenceFailedError(
        options.reference.name,
        failure,
        remedies.get(failure.kind, "Run it on its own first: it must work without tsmalloc."),
        where,
    )
