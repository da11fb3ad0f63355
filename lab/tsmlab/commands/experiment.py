"""`tsmalloc experiment`: questions about allocators, asked again on this machine.

Why: what the source reports measured by hand, and mostly could not explain, is one command here, on
any set of allocators; a question of one's own is a file.
Refuses to: measure before everything that can be checked has been checked, and to end, however it
ends, without saying where the measurements are.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import render, report, tables, wording
from tsmlab.commands.parameters import (
    FILE,
    Duration,
    Whole,
    allocators_option,
    chosen_seed,
    cpus_option,
    export_targets,
    extra_option,
    ignore_failure_option,
    output_options,
    report_option,
    seed_option,
)
from tsmlab.commands.publishing import (
    exit_status,
    let_termination_interrupt,
    publish,
    report_writer,
)
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.experiments import catalogue, plan, results, text
from tsmlab.experiments import journal as journals
from tsmlab.experiments.causes import Observer, watchers
from tsmlab.experiments.journal import Header, Journal
from tsmlab.experiments.model import Definition, ExperimentResults
from tsmlab.experiments.observers import all_observers
from tsmlab.experiments.plan import Plan
from tsmlab.experiments.runner import run_experiments
from tsmlab.export import Format
from tsmlab.measuring import MeasureExecutor
from tsmlab.progress import reporter_for

LATEST = "latest"
LIST_WIDTH = 60
INDENT = "    "
# What decides which runs are made: a resumed run has these from its journal.
DECIDED = {
    "names": "NAME",
    "chosen": "-a",
    "extra": "--allocator",
    "rounds": "-r",
    "time_budget": "--time-budget",
    "seed": "--seed",
    "cpus": "--cpus",
    "no_causes": "--no-causes",
    "files": "--file",
    "dry_run": "--dry-run",
}

files_option = click.option(
    "--file",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE.toml",
    help="Add an experiment of your own (docs/experiments.md). May be given several times.",
)


@click.group("experiment")
def command() -> None:
    """Repeat an experiment under any set of allocators, with its answer and the reasons.

    \b
    Examples:
      tsmalloc experiment list
      tsmalloc experiment run x4-producer-consumer -a tsmalloc,glibc
      tsmalloc experiment run all --report report
      tsmalloc experiment run --resume
      tsmalloc experiment run --file mine.toml
    """


@command.command("list")
@files_option
def list_command(files: Sequence[Path]) -> None:
    """List the experiments, and the question of each."""
    click.echo(_list(_catalogue(files)), nl=False)


@command.command("show")
@click.argument("file", metavar="RESULTS", type=FILE)
def show_command(file: Path) -> None:
    """Print tables and answers of RESULTS, a file that `experiment run` has kept."""
    click.echo(text.report_for_stdout(results.read(file)), nl=False)


@command.command("run")
@allocators_option(
    "Which to run: names, globs (lock-*), groups (ours, system, all), with commas or "
    "repeatedly. [default: what each experiment says, and yours]"
)
@extra_option
@click.option(
    "-r",
    "--rounds",
    type=Whole(minimum=1),
    metavar="N",
    help="How often each point is run under each allocator. [default: what each experiment says]",
)
@click.option(
    "--time-budget",
    type=Duration(),
    metavar="TIME",
    help="Make fewer rounds, but not fewer than 3, to end within this time. [default: none]",
)
@seed_option
@click.option("--no-causes", is_flag=True, help="Only time; do not count why.")
@files_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[FILE]",
    help="Go on with a run that was interrupted: the latest, or that of a journal.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and run nothing.")
@report_option
@ignore_failure_option
@cpus_option
@output_options
@click.argument("names", metavar="NAME...|all", nargs=-1)
def run_command(as_json: bool, quiet: bool, ignore_failure: bool, force: bool, **given: Any) -> int:
    """Run experiments by NAME or glob, or all of them.

    Each round runs every point of the sweep under every allocator, in random order. Afterwards each
    is run again under tools that count system calls, blocks and waits, which nobody times. Every
    finished run is at once in a journal, whose path is printed: whatever ends the run, --resume
    goes on.

    Exit status: 0; 1 wrong usage or environment; 2 a program failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    targets = export_targets(given, force)
    if given["report"]:
        report.check(given["report"], force)
    observers = all_observers()
    notes: list[str] = []
    opened = _resumed(given) if given["resume"] else _begun(given, notes)
    if isinstance(opened, Header):
        if given["dry_run"]:
            click.echo(_dry_run(opened, observers), nl=False)
            return EXIT_OK
        opened = Journal.begin(opened)
    let_termination_interrupt()
    with opened as journal:
        try:
            with reporter_for(quiet) as reporter:
                for note in [*notes, *_announcement(journal, observers)]:
                    reporter.note(note)
                outcome = run_experiments(journal, MeasureExecutor(), observers, reporter)
            found = outcome.results
            problems = publish(
                _Publication(found),
                targets,
                as_json,
                quiet,
                report_writer(found, given["report"], force),
                offer_report=True,
            )
        except KeyboardInterrupt:
            # Before the first run, or while results were written: all is in the journal.
            _say_where(journal, unfinished=True)
            raise
    if not quiet:
        _say_where(journal, text.cut_short(found))
    return exit_status(
        interrupted=found.stop is not None and found.stop.reason == "interrupted",
        error=outcome.error,
        problems=problems,
        failed=any(map(text.failed_cells, found.experiments)) and not ignore_failure,
    )


def _say_where(journal: Journal, unfinished: bool) -> None:
    click.echo(f"journal    {journal.path}", err=True)
    if unfinished:
        click.echo("go on with: tsmalloc experiment run --resume", err=True)


class _Publication:
    """The texts of a run of experiments."""

    def __init__(self, found: ExperimentResults) -> None:
        self._results = found

    def save(self) -> Path:
        return results.save(self._results)

    def text(self, file_format: Format) -> str:
        return text.formatted(self._results, file_format)

    def report(self) -> str:
        return text.report_for_stdout(self._results)

    def warnings(self) -> list[str]:
        return render.warning_lines(text.troubles(self._results))


def _catalogue(files: Sequence[Path]) -> list[Definition]:
    shipped = sorted(catalogue.default_folder().glob("*.toml"))
    return catalogue.read_files([*shipped, *files])


def _list(definitions: Sequence[Definition]) -> str:
    """Each with its question below it, as wide as stdout."""
    width = max(LIST_WIDTH, tables.stdout_width())
    longest = max((len(each.name) for each in definitions), default=0)
    lines = []
    for each in definitions:
        points, about = len(catalogue.points_of(each)), wording.rounds(each.rounds)
        size = f"{points} point{'' if points == 1 else 's'}, {about}"
        lines.append(f"{each.name:<{longest}}  {each.title} ({size})")
        lines += textwrap.wrap(
            each.question, width, initial_indent=INDENT, subsequent_indent=INDENT
        )
    return "".join(f"{line}\n" for line in lines)


def _chosen(given: dict[str, Any]) -> list[Definition]:
    """By name; without one, the user's own files."""
    files = given["files"]
    if given["names"]:
        return catalogue.select(given["names"], _catalogue(files))
    if files:
        return catalogue.read_files(files)
    raise UserError("no experiment is named.", f"Name some, or `all`. {catalogue.SHOW_ALL}")


def _begun(given: dict[str, Any], notes: list[str]) -> Header:
    """What is to be run, once everything that can be checked has been checked."""
    definitions = _chosen(given)
    available = known.discover(given["extra"])
    plans = [
        plan.plan(
            definition,
            available,
            given["chosen"],
            given["rounds"],
            not given["no_causes"],
            notes.append,
        )
        for definition in definitions
    ]
    if not given["chosen"] and (missing := known.missing_packages()):
        notes.append(f"more allocators with: sudo apt install {' '.join(missing)}")
    seed, cpus = chosen_seed(given["seed"]), given["cpus"]
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    return Header.of(plans, seed, cpus, given["time_budget"])


def _resumed(given: dict[str, Any]) -> Journal:
    """The journal of a run that was begun before, if it can be gone on with."""
    for key, option in DECIDED.items():
        if given[key] not in (None, (), False):
            raise UserError(
                f"--resume goes on with what was begun, so {option} cannot be chosen now.",
                "Leave it out, or begin anew without --resume.",
            )
    path = journals.latest() if given["resume"] == LATEST else Path(given["resume"])
    journal = Journal.resume(path)
    if journal.header.cpus is not None:
        try:
            os.sched_setaffinity(0, journal.header.cpus)
        except OSError as error:
            raise UserError(
                f"the run was begun on the processors {journal.header.cpus}: {error.strerror}.",
                journals.BEGIN_ANEW,
            ) from error
    journal.header.check_unchanged()
    return journal


def _dry_run(header: Header, observers: Sequence[Observer]) -> str:
    plans = header.plans()
    whole = _estimate(plans, observers)
    return plan.describe(plans, whole, header.time_budget_seconds, header.seed)


def _estimate(plans: Sequence[Plan], observers: Sequence[Observer]) -> plan.Estimate:
    return plan.estimate(plans, lambda allocator: len(watchers(observers, allocator)))


def _announcement(journal: Journal, observers: Sequence[Observer]) -> Iterator[str]:
    """What is to come, how long it takes, and where it is written."""
    plans, budget = journal.header.plans(), journal.header.time_budget_seconds
    whole = _estimate(plans, observers)
    yield f"{plan.summary(plans, whole.shortened(budget))}, as the files say"
    if note := plan.budget_note(whole, budget):
        yield note
    if journal.runs:
        yield f"{len(journal.runs)} runs are done, in {plan.time_text(journal.seconds)}"
    yield f"journal {journal.path}"
