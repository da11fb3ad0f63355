"""`tsmalloc gate`: did this change make the program larger or slower than its limits allow?"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import counting, machine
from tsmlab import gate as flow
from tsmlab.commands import parameters
from tsmlab.commands.parameters import NO_LIMIT, option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.counting import ROUNDS, Counters
from tsmlab.doctor import diagnose
from tsmlab.errors import UserError
from tsmlab.gate import ALONE_ROUNDS, LIMITED, MAX_ROUNDS, Options, Side
from tsmlab.metrics import BUILT_IN
from tsmlab.schedule import MIN_ROUNDS, StopRule

TIME_BUDGET_SECONDS = 120.0
DEFAULTS = {"max_peak": 0.03, "max_time": 0.02, "max_instructions": 0.02}
# The metric that replaces the time if that is not judged.
OF_COUNTS = ("max_instructions", "max_misses", "max_calls")


def limit_options(command: parameters.Command) -> parameters.Command:
    """--max-peak, --max-time and so on."""
    help_texts = {
        "max_peak": "Allowed increase in peak memory. [default: +3%]",
        "max_time": "Allowed increase in time. [default: +2%; not judged with --deterministic]",
        "max_instructions": "Allowed increase in instructions, with --deterministic. [default: "
        "+2%]",
        "max_misses": "Allowed increase in simulated cache misses, with --deterministic. "
        "[default: none]",
        "max_calls": "Allowed increase in system calls, with --deterministic. [default: none]",
        "max_faults": "Allowed increase in page faults. [default: none]",
    }
    options = [
        option(f"--{name.replace('_', '-')} PERCENT", text, type=parameters.limit)
        for name, text in help_texts.items()
    ]
    return parameters.all_of(*options)(command)


@click.command("gate", cls=Study, context_settings={"allow_interspersed_args": False})
@limit_options
@option(
    "--against COMMAND",
    "The baseline: another program with its arguments, quoted as in a shell, run in the same "
    "rounds.",
)
@option(
    "--against-allocator NAME",
    "The baseline's allocator; without --against, the baseline is the same program under this "
    "allocator. [default: the one given with -a]",
)
@option("--baseline FILE", "The baseline: a file that an earlier gate wrote with --export-json.")
@option(
    "-a --allocator-name NAME", "The allocator to run the program under.", "under", default="glibc"
)
@parameters.extra_option
@parameters.deterministic_option
@parameters.rounds_option(
    "Exactly N rounds. [default: until every limit is resolved; with --baseline "
    f"{ALONE_ROUNDS}, or {ROUNDS} if counts are judged]"
)
@parameters.time_budget_option(
    "Start no round that would end later than this. [default: 120s]", default=TIME_BUDGET_SECONDS
)
@option("--strict", "Exit with 3 also if a limit is unresolved.")
@parameters.timeout_option("20 times the first run, at least 10 s")
@parameters.expect_exit_option
@parameters.seed_option
@parameters.study_options
@option("--export-junit FILE", "Write the verdicts as JUnit test cases.")
@option("--export-sarif FILE", "Write the verdicts as SARIF findings.")
@resume_option
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(program: Sequence[str], strict: bool, **params: Any) -> int:
    """Check PROGRAM with its arguments for regressions against a baseline, before a merge.

    Peak memory and time have limits. A limit is met if the whole 95% interval of the change
    lies within it, and exceeded (a regression) if the whole interval lies beyond it. Times are
    unreliable on shared machines; --deterministic judges by instruction counts instead.

    \b
    Examples:
      tsmalloc gate --against './main/server --selftest' -- ./server --selftest
      tsmalloc gate --export-json base.json -- ./server --selftest
      tsmalloc gate --baseline base.json --max-peak +3% --max-time +2% -- ./server --selftest
      tsmalloc gate --deterministic --baseline base.json --export-sarif gate.sarif -- ./server

    Exit status: 0 within the limits; 1 usage or environment error; 2 the program failed;
    3 a regression (with --strict, also an unresolved limit); 130 interrupted.
    """
    executor, counters, notes = counting.measuring(params["deterministic"])
    options = _options(program, params, counters)
    sides = [side for side in (options.candidate, options.baseline) if side]
    programs = [file for side in sides for file in parameters.files_of(side.command, params)]
    baseline = [params["baseline"]] if params["baseline"] else []
    return conduct(
        params,
        options.seed,
        [side.allocator for side in sides],
        [*programs, *baseline],
        lambda journal, reporter, fleet: flow.gate(options, executor, reporter, journal, fleet),
        partial(flow.status_of, strict=strict),
        notes,
    )


def _options(program: Sequence[str], params: dict[str, Any], counters: Counters | None) -> Options:
    other_program, other_name = params["against"], params["against_allocator"]
    has_side = other_program is not None or other_name is not None
    if params["baseline"] and has_side:
        raise UserError("--baseline and --against cannot be combined.", "Choose one of them.")
    before = flow.read_baseline(params["baseline"]) if params["baseline"] else None
    if before is not None and counters is None:
        flow.check_machine(before, machine.describe())
    available = known.discover(params["extra"])
    under = known.find(params["under"], available)
    baseline = None
    if has_side:
        other = under if other_name is None else known.find(other_name, available)
        command = tuple(program) if other_program is None else _words(other_program)
        baseline = Side(command, other)
    candidate = Side(tuple(program), under)
    for side in (candidate, baseline):
        if side is not None and side.allocator.path is not None:
            diagnose(side.command).raise_if_fatal(as_shells=True)
    limits = _limits(params, counters)
    metrics = BUILT_IN if counters is None else counters.metrics
    if counters is not None:
        lacking = [key for key in limits if key not in {spec.key for spec in metrics}]
        if lacking:
            raise UserError(
                f"{', '.join(lacking)} cannot be counted here.", counters.note or "See --help."
            )
    if before is not None:
        flow.check_judged(before, limits, params["baseline"], deterministic=counters is not None)
    return parameters.options_of(
        Options,
        params,
        candidate=candidate,
        limits=limits,
        metrics=tuple(replace(s, judged=s.judged or s.key in limits) for s in metrics),
        rule=_rule(params, counters, paired=baseline is not None),
        baseline=baseline,
        before=before,
        before_file=str(params["baseline"]) if params["baseline"] else None,
    )


def _words(command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(
            f"cannot parse --against {command!r}: {error}.", "Fix its quotes."
        ) from error
    if not words:
        raise UserError("--against needs a program.", "For example: --against './old -x'")
    return words


def _limits(params: dict[str, Any], counters: Counters | None) -> dict[str, float]:
    """The chosen limits, and defaults for the other metrics that are judged here."""
    limits = {}
    for name, metric in LIMITED.items():
        chosen = params[name]
        if counters is None and name in OF_COUNTS:
            if chosen not in (None, NO_LIMIT):
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} needs --deterministic.", "Add --deterministic.")
            continue
        if counters is not None and name == "max_time":
            if chosen not in (None, NO_LIMIT):
                raise UserError(
                    "--max-time has no effect with --deterministic, which does not judge time.",
                    "Use --max-instructions.",
                )
            continue
        if chosen is None:
            usable = name != "max_instructions" or (counters is not None and counters.valgrind)
            chosen = DEFAULTS.get(name, NO_LIMIT) if usable else NO_LIMIT
        if chosen != NO_LIMIT:
            limits[metric] = float(chosen)
    return limits


def _rule(params: dict[str, Any], counters: Counters | None, paired: bool) -> StopRule:
    """A saved baseline already has all its rounds, so we make as many each time."""
    min_rounds = ROUNDS if counters is not None else MIN_ROUNDS
    budget = params["time_budget_seconds"]
    if params["rounds"]:
        return StopRule(runs=params["rounds"])
    if not paired:
        rounds = ALONE_ROUNDS if counters is None else min_rounds
        return StopRule.fixed_rounds(rounds, budget)
    return StopRule(min_rounds=min_rounds, max_rounds=MAX_ROUNDS, time_budget_seconds=budget)
