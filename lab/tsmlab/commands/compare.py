"""`tsmalloc compare`: which allocator is best for this program?"""

import shlex
from collections.abc import Sequence
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import counting, schedule
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.compare import MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR, WARMUP_ROUNDS, Options, compare
from tsmlab.counting import NOT_OF_COUNTS, Counters
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.metrics import BUILT_IN
from tsmlab.render import full_name
from tsmlab.results import AllocatorInfo
from tsmlab.schedule import StopRule
from tsmlab.study import study_of
from tsmlab.sweep import points_of
from tsmlab.trial import SERIES_POINTS
from tsmlab.wording import rounds, share

ROUNDS = parameters.whole_number(1)


@click.command("compare", cls=Study, context_settings={"allow_interspersed_args": False})
@parameters.allocators_option("Which to compare")
@parameters.extra_option
@parameters.reference_option
@option(
    "-r --rounds --runs N",
    "Exactly N measured rounds, or as many as fit into --time-budget. [default: until every "
    "verdict is resolved]",
    "runs",
    type=ROUNDS,
)
@option(
    "-m --min-runs N",
    "At least N rounds, even beyond the time budget. [default: "
    f"{schedule.MIN_ROUNDS}, if they fit]",
    type=ROUNDS,
)
@option("-w --warmup N", "Unmeasured rounds to run first.", default=WARMUP_ROUNDS)
@parameters.time_budget_option(
    "Start no round that would end later than this. "
    f"[default: {schedule.TIME_BUDGET_SECONDS:g}s, and {schedule.MIN_ROUNDS_BUDGET_SECONDS:g}s "
    f"for the first {schedule.MIN_ROUNDS} rounds; for each point of a sweep]"
)
@parameters.timeout_option("20 times the reference's time, at least 10 s")
@parameters.seed_option
@parameters.margin_option
@parameters.sweep_options
@parameters.program_options
@parameters.ignore_failure_option
@parameters.deterministic_option
@parameters.study_options
@parameters.report_option
@resume_option
@option("--dry-run", "Show what would be done, without running anything.")
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(program: Sequence[str], dry_run: bool, **params: Any) -> int:
    """Run PROGRAM with its arguments under every allocator, and show which is best.

    Every round runs each allocator once, in random order; the reference runs twice, which shows how
    much of a difference is noise. The result is a table: time, memory, and a verdict with its
    confidence interval. All measurements are saved, and the path is printed.

    \b
    Examples:
      tsmalloc compare -- ./server --selftest
      tsmalloc compare -a ours,glibc -r 20 -- python3 job.py
      tsmalloc compare --metric 'req/s=([0-9.]+) requests per second:higher' -- ./bench.sh
      tsmalloc compare --allocator mine=./libmine.so -a mine,glibc -- ./a.out
      tsmalloc compare -L threads 1,2,4,8 -- ./server --selftest --threads {threads}
      tsmalloc compare --resume

    Exit status: 0 success; 1 usage or environment error; 2 the program failed under an allocator;
    130 interrupted (results so far are kept).
    """
    executor, counters, notes = counting.measuring(params["deterministic"])
    options = _options(program, params, counters)
    if dry_run:
        click.echo(describe_plan(options))
        return EXIT_OK
    return conduct(
        params,
        options.seed,
        options.allocators,
        parameters.files_of(program, params),
        lambda journal, reporter, fleet: study_of(
            "compare", compare(options, executor, reporter, journal, fleet)
        ),
        notes=[*known.advice(params["chosen"]), *notes],
    )


def _options(program: Sequence[str], params: dict[str, Any], counters: Counters | None) -> Options:
    available = known.discover(params["extra"])
    compared = known.select_or_default(params["chosen"], available)
    reference, compared = known.with_reference(params["reference"], compared, available)
    values = [value for allocator in compared for value in allocator.env.values()]
    swept = parameters.sweep_of(program, params, values)
    return parameters.options_of(
        Options,
        params,
        program=parameters.program_of(program, params),
        allocators=tuple(compared),
        reference=reference,
        parameters=tuple(swept),
        series_points=0 if swept else SERIES_POINTS,
        ask_order=len(points_of(swept)) > 1,
        rule=_rule(params, counters, len(points_of(swept))),
        warmup_rounds=params["warmup"] if counters is None else 0,
        check_output=not params["ignore_output"],
        consult_doctor=not params["no_doctor"],
        base_metrics=BUILT_IN if counters is None else counters.metrics,
        vary_layout=counters is None,
        unfit_warnings=frozenset() if counters is None else NOT_OF_COUNTS,
        result_warnings=tuple(parameters.about_input(params)),
    )


# --- the plan, before anything runs ---------------------------------------------------------------


def describe_plan(options: Options) -> str:
    """The plan as text, a line for each decision."""
    program = options.program
    same = ", and the same output as the reference, if that does not vary"
    lines = [
        ("command", shlex.join(program.command)),
        ("input", str(program.stdin)),
        ("success", f"exit status {program.expected_exit}{same if options.check_output else ''}"),
        ("reference", f"{options.reference.name}, run twice in each round"),
        ("warm-up", f"{rounds(options.warmup_rounds)}, not measured"),
        ("rounds", _stop_rule(options)),
        ("hang", _hang_rule(options)),
        ("margin", share(options.margin)),
        ("seed", str(options.seed)),
    ]
    lines += [("sweep", f"{p.name}: {', '.join(map(str, p.values))}") for p in options.parameters]
    for metric in program.metrics:
        direction = "higher" if metric.higher_is_better else "lower"
        lines.append(("metric", f"{metric.name}: {metric.pattern} ({direction})"))
    for label, hook in (("setup", program.setup), ("cleanup", program.cleanup)):
        if hook:
            lines.append((label, hook))
    if options.cpus:
        lines.append(("processors", ",".join(map(str, options.cpus))))
    for allocator in options.allocators:
        info = AllocatorInfo.of(allocator)
        lines.append(("allocator", f"{full_name(info)}  {info.path or '(nothing preloaded)'}"))
    points = points_of(options.parameters)
    entries = schedule.entries_for(options.allocators, options.reference, points)
    order = schedule.round_order(entries, options.seed, "measured", 1)
    between = ", " if options.parameters else " "
    lines.append(("round 1", between.join(entry.label for entry in order)))
    return "\n".join(f"{label:<11}{text}" for label, text in lines)


def _rule(params: dict[str, Any], counters: Counters | None, points: int) -> StopRule:
    """The default times are for each point."""
    asked, asked_min, budget = params["runs"], params["min_runs"], params["time_budget_seconds"]
    if asked and asked_min:
        raise UserError(
            "--runs and --min-runs contradict each other.", "--runs N means exactly N rounds."
        )
    if asked is None and asked_min is None and counters:
        asked = counting.ROUNDS
    if asked:
        return StopRule.fixed_rounds(asked, budget)
    return StopRule(
        min_rounds=asked_min or schedule.MIN_ROUNDS,
        max_rounds=max(schedule.MAX_ROUNDS, asked_min or 0),
        time_budget_seconds=budget or points * schedule.TIME_BUDGET_SECONDS,
        min_rounds_budget_seconds=0.0 if budget else points * schedule.MIN_ROUNDS_BUDGET_SECONDS,
        min_is_firm=asked_min is not None,
    )


def _stop_rule(options: Options) -> str:
    rule = options.rule
    if rule.runs is not None:
        return f"exactly {rule.runs}"
    fit = f"if they fit into {rule.patience_seconds:g} s"
    if rule.min_rounds == rule.max_rounds:
        return f"{rule.max_rounds}, {fit}"
    firm = "whatever the time" if rule.min_is_firm else fit
    return (
        f"at least {rule.min_rounds} ({firm}), then until every verdict is resolved, "
        f"{rule.time_budget_seconds:g} s have passed, or {rule.max_rounds} are done"
    )


def _hang_rule(options: Options) -> str:
    if options.timeout_seconds is not None:
        return f"after {options.timeout_seconds:g} s"
    return (
        f"after {TIMEOUT_FACTOR:g} times the reference's first run, "
        f"at least {MIN_TIMEOUT_SECONDS:g} s"
    )
