"""`tsmalloc compare`: which allocator serves this program best?

Why: the one question that the lab exists for, answered by one command without configuration.
Refuses to: measure before everything that can be checked has been checked, and to end, however it
ends, without saying where the measurements are.
"""

from collections.abc import Sequence
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import counting, render
from tsmlab.allocators import Allocator
from tsmlab.commands import parameters
from tsmlab.commands.publishing import Publication
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.compare import WARMUP_ROUNDS, Options, compare
from tsmlab.counting import NOT_OF_COUNTS, Counters, CountingExecutor
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.measuring import Executor, MeasureExecutor
from tsmlab.metrics import BUILT_IN
from tsmlab.plan import describe_plan
from tsmlab.results import Comparison
from tsmlab.schedule import (
    MAX_ROUNDS,
    MIN_ROUNDS,
    MIN_ROUNDS_BUDGET_SECONDS,
    TIME_BUDGET_SECONDS,
    StopRule,
)

ROUNDS = parameters.whole(1)


@click.command("compare", cls=Study, context_settings={"allow_interspersed_args": False})
@parameters.allocators_option(
    "Which to compare: names, globs (lock-*), groups (ours, system, all), with commas or "
    "repeatedly. [default: tsmalloc, system, and yours]"
)
@parameters.extra_option
@parameters.reference_option
@click.option(
    "-r",
    "--rounds",
    "--runs",
    "runs",
    type=ROUNDS,
    metavar="N",
    help="Exactly N measured rounds. [default: until every verdict is resolved]",
)
@click.option(
    "-m",
    "--min-runs",
    type=ROUNDS,
    metavar="N",
    help=f"At least N rounds, whatever the time budget. [default: {MIN_ROUNDS}, if they fit]",
)
@click.option(
    "-w",
    "--warmup",
    type=parameters.whole(0),
    default=WARMUP_ROUNDS,
    metavar="N",
    show_default=True,
    help="Rounds that are run first and not measured.",
)
@parameters.time_budget_option(
    "Begin no round that would end later than this. "
    f"[default: {TIME_BUDGET_SECONDS:g}s, and {MIN_ROUNDS_BUDGET_SECONDS:g}s for the first "
    f"{MIN_ROUNDS} rounds]"
)
@parameters.timeout_option("20 times the reference's, at least 10 s")
@parameters.seed_option
@parameters.margin_option
@parameters.program_options
@parameters.ignore_failure_option
@parameters.deterministic_option
@parameters.study_options
@parameters.report_option
@resume_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and run nothing.")
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(program: Sequence[str], dry_run: bool, **given: Any) -> int:
    """Run PROGRAM with its arguments under every allocator, and say which serves it best.

    Every round runs each allocator once, in random order; the reference runs twice, which shows how
    much of a difference is noise. The answer is a table: time, memory, and a verdict with its
    confidence interval. All measurements are kept, and the path is printed.

    \b
    Examples:
      tsmalloc compare -- ./server --selftest
      tsmalloc compare -a ours,glibc -r 20 -- python3 job.py
      tsmalloc compare --metric 'req/s=([0-9.]+) requests per second:higher' -- ./bench.sh
      tsmalloc compare --allocator mine=./libmine.so -a mine,glibc -- ./a.out
      tsmalloc compare --resume

    Exit status: 0; 1 wrong usage or environment; 2 the program failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    counters = Counters.installed() if given["deterministic"] else None
    options = _options(program, given, counters)
    if dry_run:
        click.echo(describe_plan(options))
        return EXIT_OK
    missing = [] if given["chosen"] else known.missing_packages()
    notes = [f"more allocators with: sudo apt install {' '.join(missing)}"] if missing else []
    executor: Executor = MeasureExecutor()
    if counters is not None:
        executor = CountingExecutor(executor, counters)
        notes += [counters.note] if counters.note else []
    return conduct(
        given,
        options.seed,
        options.allocators,
        parameters.files_of(program, given),
        lambda journal, reporter, fleet: compare(options, executor, reporter, journal, fleet),
        publication,
        notes,
    )


def publication(comparison: Comparison) -> Publication:
    return Publication(comparison, render, failed=bool(comparison.failed_rows))


def _options(program: Sequence[str], given: dict[str, Any], counters: Counters | None) -> Options:
    reference, compared = _allocators(given)
    asked_min = given["min_runs"]
    rule = StopRule(
        runs=given["runs"] or (counting.ROUNDS if counters and asked_min is None else None),
        min_rounds=asked_min or MIN_ROUNDS,
        max_rounds=max(MAX_ROUNDS, asked_min or 0),
        time_budget_seconds=given["time_budget"] or TIME_BUDGET_SECONDS,
        min_rounds_budget_seconds=0.0 if given["time_budget"] else MIN_ROUNDS_BUDGET_SECONDS,
        min_is_firm=asked_min is not None,
    )
    if rule.runs is not None and asked_min is not None:
        raise UserError(
            "--runs and --min-runs contradict each other.", "--runs N means exactly N rounds."
        )
    return Options(
        program=parameters.program_of(program, given),
        allocators=tuple(compared),
        reference=reference,
        seed=parameters.chosen_seed(given["seed"]),
        rule=rule,
        warmup_rounds=given["warmup"] if counters is None else 0,
        timeout_seconds=given["timeout"],
        margin=given["margin"],
        check_output=not given["ignore_output"],
        consult_doctor=not given["no_doctor"],
        cpus=given["cpus"],
        base_metrics=BUILT_IN if counters is None else counters.metrics,
        vary_layout=counters is None,
        unfit_warnings=frozenset() if counters is None else NOT_OF_COUNTS,
    )


def _allocators(given: dict[str, Any]) -> tuple[Allocator, list[Allocator]]:
    """The reference, and all that are compared, which it is always one of."""
    available = known.discover(given["extra"])
    reference = known.find(given["reference"], available)
    chosen = known.select_or_default(given["chosen"], available)
    if reference not in chosen:
        chosen = [reference, *chosen]
    return reference, chosen
