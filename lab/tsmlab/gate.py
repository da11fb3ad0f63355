"""`tsmalloc gate`: compares a program with its baseline, and checks limits.

Compares two programs under one allocator, or one program under two, in interleaved rounds; or a
program with a saved baseline.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tsmlab import compare, machine, stats, study
from tsmlab.allocators import Allocator
from tsmlab.analysis import logs_by_round
from tsmlab.counting import CACHE_MISSES, INSTRUCTIONS, NOT_OF_COUNTS, SYSTEM_CALLS
from tsmlab.errors import EXIT_OK, EXIT_PROGRAM_FAILED, EXIT_REGRESSION, EXIT_USAGE, UserError
from tsmlab.fleet import Fleet
from tsmlab.journal import Memo
from tsmlab.machine import Machine
from tsmlab.measuring import Executor, Measurement, RunRequest
from tsmlab.metrics import PAGE_FAULTS, PEAK_MEMORY, TIME, MetricSpec
from tsmlab.progress import Reporter
from tsmlab.results import Analysis, Comparison, Outcome, ResultWarning, Sample
from tsmlab.schedule import StopRule
from tsmlab.stats import RatioEstimate
from tsmlab.study import Gate, GateRow, GateVerdict, Study
from tsmlab.trial import Program

BASELINE, CANDIDATE = "baseline", "candidate"
MAX_ROUNDS = 60
# Rounds of a program that is compared with a saved baseline.
ALONE_ROUNDS = 10
# Less than this is the length of a file's name, or a page of memory: no limit is smaller.
MIN_LIMIT = 0.0005
# The chance of a false regression, each time that the rounds are analysed.
FALSE_ALARM = stats.FALSE_VERDICT
# Facts that must be equal on two machines for times to be comparable.
SAME_MACHINE = ("architecture", "cpu", "usable_cores", "kernel")


@dataclass(frozen=True)
class Side:
    command: tuple[str, ...]
    allocator: Allocator


@dataclass(frozen=True)
class Options:
    """The options of a gate. limits: by metric, as fractions; 0.02 allows 2% more. baseline: runs
    in the same rounds; before: samples from a file instead; with neither, the program is only
    measured."""

    candidate: Side
    limits: Mapping[str, float]
    metrics: tuple[MetricSpec, ...]
    seed: int
    rule: StopRule
    baseline: Side | None = None
    before: Comparison | None = None
    before_file: str | None = None
    timeout_seconds: float | None = None
    expected_exit: int = 0
    cpus: tuple[int, ...] | None = None
    deterministic: bool = False


def status_of(study: Study, strict: bool = False) -> int:
    verdict = "pass" if study.gate is None else verdict_of(study.gate, study.failed_rows)
    regressed = verdict == "regression" or (strict and verdict == "unresolved")
    return EXIT_REGRESSION if regressed else EXIT_OK


def verdict_of(gate: Gate, failed: Sequence[object]) -> GateVerdict | Literal["failed"]:
    if failed:
        return "failed"
    found = {row.verdict for row in gate.rows}
    order: tuple[GateVerdict, ...] = ("regression", "unresolved", "pass")
    return next((each for each in order if each in found), "measured")


@dataclass(frozen=True)
class _TwoPrograms:
    """Runs each side's own program under its own allocator."""

    executor: Executor
    sides: Mapping[str, Side]

    def run(self, request: RunRequest) -> Measurement:
        side = self.sides[request.allocator.name]
        return self.executor.run(replace(request, command=side.command, allocator=side.allocator))


def gate(
    options: Options, executor: Executor, reporter: Reporter, memo: Memo, fleet: Fleet | None = None
) -> Outcome[Study]:
    """Raises UserError and KeyboardInterrupt only if nothing has been measured."""
    sides = {CANDIDATE: options.candidate}
    if options.baseline is not None:
        sides = {BASELINE: options.baseline, **sides}
    allocators = tuple(replace(side.allocator, name=name) for name, side in sides.items())
    asked = compare.Options(
        program=Program(
            command=options.candidate.command,
            stdin=Path("/dev/null"),
            expected_exit=options.expected_exit,
        ),
        allocators=allocators,
        reference=allocators[0],
        seed=options.seed,
        rule=options.rule,
        warmup_rounds=0 if options.deterministic else compare.WARMUP_ROUNDS,
        timeout_seconds=options.timeout_seconds,
        check_output=False,  # two versions may well print different things
        consult_doctor=False,
        cpus=options.cpus,
        base_metrics=options.metrics,
        vary_layout=not options.deterministic,
        unresolved=lambda analysis: sum(
            row.verdict == "unresolved" for row in _paired_rows(analysis, options)
        ),
        unfit_warnings=NOT_OF_COUNTS if options.deterministic else frozenset({"noise-floor"}),
    )
    try:
        outcome = compare.compare(asked, _TwoPrograms(executor, sides), reporter, memo, fleet)
    except compare.ReferenceFailedError as error:
        which = "the program" if options.baseline is None else "the baseline's program"
        status = EXIT_USAGE if error.kind == "start" else EXIT_PROGRAM_FAILED
        raise UserError(f"{which} fails: {error.full_text}", error.remedy, status) from error
    return Outcome(_results(options, outcome.results), outcome.error)


def _results(options: Options, comparison: Comparison) -> Study:
    before = options.before
    if before is None:
        rows = _paired_rows(comparison.analysis, options)
        against = list((options.baseline or options.candidate).command)
    else:
        rows = unpaired_rows(comparison.samples, before.samples, options)
        against = before.command
        other = _other_subject(before, comparison)
        comparison = replace(comparison, warnings=[*other, *comparison.warnings])
    answer = Gate(
        command=list(options.candidate.command),
        against=against,
        baseline_file=options.before_file,
        deterministic=options.deterministic,
        rows=rows,
    )
    return Study.of("gate", [replace(comparison, name="gate")], gate=answer)


def _other_subject(before: Comparison, now: Comparison) -> list[ResultWarning]:
    """A warning if the baseline was made with other arguments, another program or another
    allocator."""
    seen = []
    names = [Path(each.command[0]).name for each in (before, now)]
    if names[0] != names[1] or before.command[1:] != now.command[1:]:
        then, here = (shlex.join(each.command) for each in (before, now))
        seen.append(f"the baseline is for `{then}`, not for `{here}`")
    then, here = (each.allocator(CANDIDATE).family for each in (before, now))
    if then != here:
        seen.append(f"the baseline was measured under {then}, the program under {here}")
    if not seen:
        return []
    return [
        ResultWarning(
            "other-baseline",
            "; ".join(seen),
            "the wrong file, or the program's arguments changed",
            "make a new baseline (--export-json), or measure both at once (--against)",
        )
    ]


def judge(
    ratio: RatioEstimate | None, limit: float | None, floor: float | None = None, limits: int = 1
) -> tuple[GateVerdict, int | None]:
    """A pass if the whole 95% interval of the ratio lies within the limit. A regression if it lies
    beyond, the chance of that is below FALSE_ALARM over all `limits` (Bonferroni), and the ratio
    exceeds the baseline's own A/A noise (`floor`), since people investigate every failed check.
    Otherwise unresolved, with about how many more rounds would resolve it."""
    if ratio is None or limit is None:
        return "measured" if limit is None else "unresolved", None
    if ratio.low is None or ratio.high is None:
        return "unresolved", None
    bound = 1.0 + max(limit, MIN_LIMIT)
    if ratio.high <= bound:
        return "pass", None
    alpha = 2.0 * FALSE_ALARM / limits
    degrees = ratio.pairs - 1
    usual = 1.0 - stats.CONFIDENCE
    strict = stats.student_critical(alpha, degrees) / stats.student_critical(usual, degrees)
    distance = math.log(ratio.ratio / bound)
    half = math.log(ratio.high / ratio.low) / 2.0
    exceeds_noise = floor is None or ratio.ratio > 1.0 + floor
    if distance > half * strict and ratio.low > bound and exceeds_noise:
        return "regression", None
    level = alpha if distance > 0.0 else usual
    rounds = stats.rounds_until(ratio.pairs, half, abs(distance), level)
    if not exceeds_noise and floor is not None and ratio.ratio > 1.0:
        rounds = max(rounds, ratio.pairs * (math.log1p(floor) / math.log(ratio.ratio)) ** 2)
    if rounds > stats.MAX_ROUNDS_ADVICE:
        return "unresolved", None
    return "unresolved", max(1, math.ceil(rounds - ratio.pairs))


def _paired_rows(analysis: Analysis, options: Options) -> list[GateRow]:
    return paired_rows(analysis, CANDIDATE, BASELINE, options.metrics, options.limits)


def paired_rows(
    analysis: Analysis,
    candidate_name: str,
    baseline_name: str,
    metrics: Sequence[MetricSpec],
    limits: Mapping[str, float],
    judgements: int = 0,
) -> list[GateRow]:
    """From a comparison of both sides in the same rounds. judgements: their total number, by
    default one for each limit."""
    rows = {row.allocator: row for row in analysis.rows}
    candidate, baseline = rows[candidate_name], rows.get(baseline_name)
    found = []
    for spec in metrics:
        own = candidate.metrics.get(spec.key)
        if own is None or not spec.judged:
            continue
        other = baseline.metrics.get(spec.key) if baseline else None
        limit = limits.get(spec.key) if baseline else None
        medians = (other.median if other else None, own.median)
        floor = analysis.noise_floors.get(spec.key)
        found.append(_row(spec, limit, medians, own.ratio, judgements or len(limits), floor))
    return found


def _row(
    spec: MetricSpec,
    limit: float | None,
    medians: tuple[float | None, float],
    ratio: RatioEstimate | None,
    limits: int,
    floor: float | None = None,
) -> GateRow:
    """If higher is better, the limit is the largest allowed decrease."""
    if limit is not None and spec.higher_is_better:
        verdict, more = judge(ratio and ratio.inverse, 1.0 / (1.0 - limit) - 1.0, floor, limits)
        limit = -limit
    else:
        verdict, more = judge(ratio, limit, floor, limits)
    return GateRow(spec.key, spec.name, spec.unit, limit, *medians, ratio, verdict, more)


def unpaired_rows(
    samples: Sequence[Sample], before: Sequence[Sample], options: Options
) -> list[GateRow]:
    """From two measurements at different times, which have no rounds in common."""
    found = []
    for spec in options.metrics:
        now, then = (logs_by_round(each, CANDIDATE, spec.key) for each in (samples, before))
        if not now or not spec.judged:
            continue
        ratio = stats.unpaired_ratio(list(now.values()), list(then.values())) if then else None
        before_median = math.exp(stats.median(list(then.values()))) if then else None
        medians = (before_median, math.exp(stats.median(list(now.values()))))
        limit = options.limits.get(spec.key)
        found.append(_row(spec, limit, medians, ratio, len(options.limits)))
    return found


def read_baseline(path: Path) -> Comparison:
    """The comparison of an earlier gate; raises UserError for a file that has none."""
    file = "FILE" if path.exists() else path
    command = f"tsmalloc gate --export-json {file} -- PROGRAM"
    make = f"Make one with a good version of the program: {command}"
    found = study.read(path, make, "baseline")
    if found.verb != "gate":
        raise UserError(f"{path} was written by `tsmalloc {found.verb}`, not by a gate.", make)
    usable = [s for s in found.comparison.samples if s.phase == "measured" and not s.failure]
    if not any(sample.allocator == CANDIDATE for sample in usable):
        raise UserError(f"the baseline {path} contains no successful run.", make)
    return found.comparison


def check_machine(before: Comparison, now: Machine) -> None:
    """Raises UserError if times from that machine cannot be compared with times from this one."""
    if differs := machine.difference(before.machine, now, SAME_MACHINE):
        raise UserError(
            f"the baseline was measured on another machine: {differs}.",
            "Measure both in the same rounds (--against 'OLD PROGRAM'), make a baseline here, "
            "or judge by counts (--deterministic).",
        )


def check_judged(
    before: Comparison, limits: Mapping[str, float], name: Path, deterministic: bool
) -> None:
    """Raises UserError if the baseline lacks a metric that has a limit. name: its file."""
    lacking = [key for key in limits if not logs_by_round(before.samples, CANDIDATE, key)]
    if lacking:
        how = "with --deterministic and" if deterministic else "with"
        raise UserError(
            f"{name} has no data for {', '.join(lacking)}.",
            f"Make it again {how} --export-json, or set that limit to none.",
        )


LIMITED = {
    "max_peak": PEAK_MEMORY,
    "max_time": TIME,
    "max_instructions": INSTRUCTIONS,
    "max_misses": CACHE_MISSES,
    "max_calls": SYSTEM_CALLS,
    "max_faults": PAGE_FAULTS,
}
