"""`tsmalloc compare`: which allocator serves this program best?

Why: the one question that the lab exists for, answered by one command without configuration.
Refuses to: measure before everything that can be checked has been checked, and to end, however it
ends, without saying where the measurements are.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import export, render, results
from tsmlab.allocators import Allocator
from tsmlab.compare import WARMUP_ROUNDS, Options, Outcome, compare
from tsmlab.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PROGRAM_FAILED,
    EXIT_USAGE,
    UserError,
)
from tsmlab.export import Target
from tsmlab.measuring import MeasureExecutor
from tsmlab.metrics import parse_custom
from tsmlab.plan import describe_plan
from tsmlab.progress import reporter_for
from tsmlab.results import Comparison
from tsmlab.schedule import MAX_ROUNDS, MIN_ROUNDS, TIME_BUDGET_SECONDS, StopRule
from tsmlab.trial import Program

DEV_NULL = Path("/dev/null")


class Whole(click.ParamType[int]):
    """A whole number from `minimum` on; click's own would clutter --help with its range."""

    name = "number"

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < self._minimum:
            self.fail(f"{value!r} is not a whole number from {self._minimum} on", param, ctx)
        return int(text)


class Duration(click.ParamType[float]):
    """Seconds, or a number with s, m or h behind it."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value))
        seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
        if seconds <= 0.0:
            self.fail(f"{value!r} is not a time above zero, like 90, 90s or 1.5m", param, ctx)
        return seconds


class Percentage(click.ParamType[float]):
    """1 or 1% for one hundredth."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", str(value))
        if match is None or not 0.0 < float(match[1]) < 100.0:
            self.fail(
                f"{value!r} is not a percentage between 0 and 100, like 1 or 0.5%", param, ctx
            )
        return float(match[1]) / 100.0


class Cpus(click.ParamType[tuple[int, ...]]):
    """A list of processors as taskset takes it: 0,2-3."""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        chosen: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if match is None:
                self.fail(f"{value!r} is not a list of processors, like 0,2-3", param, ctx)
            chosen.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        allowed = os.sched_getaffinity(0)
        if not chosen or not chosen <= allowed:
            usable = ",".join(map(str, sorted(allowed)))
            self.fail(f"{value!r}: the processors that may be used here are {usable}", param, ctx)
        return tuple(sorted(chosen))


FILE = click.Path(path_type=Path)
ROUNDS = Whole(minimum=1)


@click.command("compare", context_settings={"allow_interspersed_args": False})
@click.option(
    "-a",
    "--allocators",
    "chosen",
    multiple=True,
    metavar="NAMES",
    help="Which to compare: names, globs (lock-*), groups (ours, system, all), with "
    "commas or repeatedly. [default: all]",
)
@click.option(
    "--allocator",
    "extra",
    multiple=True,
    metavar="NAME=PATH.so",
    help="Add a library of your own; :KEY=VALUE behind it sets a variable.",
)
@click.option(
    "--reference",
    default="glibc",
    show_default=True,
    metavar="NAME",
    help="The one that all others are compared with.",
)
@click.option(
    "-r",
    "--runs",
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
    type=Whole(minimum=0),
    default=WARMUP_ROUNDS,
    metavar="N",
    show_default=True,
    help="Rounds that are run first and not measured.",
)
@click.option(
    "--time-budget",
    type=Duration(),
    default=TIME_BUDGET_SECONDS,
    metavar="TIME",
    help="Begin no round that would end later than this. [default: 120s]",
)
@click.option(
    "--timeout",
    type=Duration(),
    metavar="TIME",
    help="A run that takes longer has failed. [default: 20 times the reference's, at least 10 s]",
)
@click.option(
    "--seed",
    type=Whole(minimum=0),
    metavar="N",
    help="Repeats the order of a former comparison. [default: random, printed]",
)
@click.option(
    "--margin",
    type=Percentage(),
    default="1%",
    metavar="PERCENT",
    show_default=True,
    help="Differences smaller than this do not matter to you.",
)
@click.option(
    "--metric",
    metavar="[NAME=]REGEX",
    help="Rank by a number that the program prints: the first group of REGEX. Lower is "
    "better, unless :higher is behind it.",
)
@click.option("-p", "--setup", metavar="COMMAND", help="A shell command before each run.")
@click.option("-c", "--cleanup", metavar="COMMAND", help="A shell command after each run.")
@click.option(
    "--input",
    "input_file",
    metavar="FILE",
    help="The program's standard input. [default: empty]",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@click.option(
    "-i",
    "--ignore-failure",
    is_flag=True,
    help="Exit with 0 even if the program failed under an allocator.",
)
@click.option(
    "--expect-exit",
    type=Whole(minimum=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The exit status that means success.",
)
@click.option(
    "--ignore-output",
    is_flag=True,
    help="Do not compare the program's output with the reference's.",
)
@click.option(
    "--cpus", type=Cpus(), metavar="LIST", help="Run everything on these processors only."
)
@click.option("--export-json", type=FILE, metavar="FILE", help="Write everything, raw samples too.")
@click.option("--export-csv", type=FILE, metavar="FILE", help="Write one line for each run.")
@click.option("--export-markdown", type=FILE, metavar="FILE", help="Write the table and verdict.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the files of --export-...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, notes or warnings.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and run nothing.")
@click.option(
    "--no-doctor",
    is_flag=True,
    help="Skip the check that an allocator can be preloaded into the program.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    program: Sequence[str],
    as_json: bool,
    quiet: bool,
    dry_run: bool,
    ignore_failure: bool,
    force: bool,
    **given: Any,
) -> int:
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

    Exit status: 0; 1 wrong usage or environment; 2 the program failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    targets = _targets(given)
    export.check_targets(targets, force)
    options = _options(program, given)
    if options.cpus is not None:
        os.sched_setaffinity(0, options.cpus)
    if dry_run:
        click.echo(describe_plan(options))
        return EXIT_OK
    _let_termination_interrupt()
    with reporter_for(quiet) as reporter:
        if not given["chosen"] and (missing := known.missing_packages()):
            reporter.note(f"more allocators with: sudo apt install {' '.join(missing)}")
        outcome = compare(options, MeasureExecutor(), reporter)
    return _publish(outcome, targets, as_json, quiet, ignore_failure)


def _publish(
    outcome: Outcome, targets: Sequence[Target], as_json: bool, quiet: bool, ignore_failure: bool
) -> int:
    """Keeps, exports and prints; files first, since a reader of stdout may go away."""
    comparison = outcome.comparison
    problems: list[str] = []
    kept: Path | None = None
    try:
        kept = results.save(comparison)
    except UserError as error:
        problems.append(f"{error.message}\n  {error.remedy}")
    failed_exports = export.write_all(comparison, targets)
    if failed_exports:
        where = f"All results are in {kept}." if kept else ""
        problems += [f"could not write {problem}. {where}".rstrip() for problem in failed_exports]
    text = results.to_json(comparison) if as_json else render.report_for_stdout(comparison)
    if problem := _print(text):
        problems.append(problem)
    if not quiet:
        for line in render.warning_lines(comparison.warnings):
            click.echo(line, err=True)
        if kept:
            click.echo(f"results    {kept}", err=True)
    for problem in problems:
        click.echo(f"tsmalloc: {problem}", err=True)
    return _exit_status(outcome, bool(problems), ignore_failure)


def _print(text: str) -> str | None:
    """To stdout; returns what went wrong. A reader who goes away (as `| head` does) has read
    enough, which is nothing wrong."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at its end, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"could not print the results: {error.strerror}."
    return None


def _exit_status(outcome: Outcome, export_failed: bool, ignore_failure: bool) -> int:
    comparison: Comparison = outcome.comparison
    if comparison.interrupted:
        click.echo("tsmalloc: interrupted; the above is what was measured until then", err=True)
        return EXIT_INTERRUPTED
    if outcome.error is not None:
        click.echo(outcome.error.render(), err=True)
        return outcome.error.exit_code
    if export_failed:
        return EXIT_USAGE
    if comparison.failed_rows and not ignore_failure:
        return EXIT_PROGRAM_FAILED
    return EXIT_OK


def _targets(given: dict[str, Any]) -> list[Target]:
    paths: dict[export.Format, Path | None] = {
        "json": given["export_json"],
        "csv": given["export_csv"],
        "markdown": given["export_markdown"],
    }
    return [Target(name, path) for name, path in paths.items() if path is not None]


def _options(program: Sequence[str], given: dict[str, Any]) -> Options:
    reference, compared = _allocators(given)
    asked_min = given["min_runs"]
    rule = StopRule(
        runs=given["runs"],
        min_rounds=asked_min or MIN_ROUNDS,
        max_rounds=max(MAX_ROUNDS, asked_min or 0),
        time_budget_seconds=given["time_budget"],
        min_is_firm=asked_min is not None,
    )
    if rule.runs is not None and asked_min is not None:
        raise UserError(
            "--runs and --min-runs contradict each other.", "--runs N means exactly N rounds."
        )
    seed = given["seed"]
    return Options(
        program=Program(
            command=tuple(program),
            stdin=given["input_file"] or DEV_NULL,
            expected_exit=given["expect_exit"],
            metric=parse_custom(given["metric"]) if given["metric"] else None,
            setup=given["setup"],
            cleanup=given["cleanup"],
        ),
        allocators=tuple(compared),
        reference=reference,
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else seed,
        rule=rule,
        warmup_rounds=given["warmup"],
        timeout_seconds=given["timeout"],
        margin=given["margin"],
        check_output=not given["ignore_output"],
        consult_doctor=not given["no_doctor"],
        cpus=given["cpus"],
    )


def _allocators(given: dict[str, Any]) -> tuple[Allocator, list[Allocator]]:
    """The reference, and all that are compared, which it is always one of."""
    available = known.discover(given["extra"])
    reference = known.find(given["reference"], available)
    chosen = known.select(given["chosen"] or ["all"], available)
    if reference not in chosen:
        chosen = [reference, *chosen]
    return reference, chosen


def _let_termination_interrupt() -> None:
    """SIGTERM ends a comparison as Ctrl-C does: with the measurements kept."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
