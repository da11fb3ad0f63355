"""`tsmalloc experiment`: questions about allocators, asked again on this machine.

Why: the measurements that the source reports made by hand, and mostly could not explain, are one
command here, on any set of allocators; a question of one's own is a file.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import strace, tables, wording
from tsmlab.commands import Group, parameters
from tsmlab.commands.parameters import FILE
from tsmlab.commands.studies import Publication, Study, conduct, resume_option
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.experiments import catalogue, model, plan, text
from tsmlab.experiments.causes import watchers
from tsmlab.experiments.model import Definition, ExperimentResults
from tsmlab.experiments.observers import all_observers
from tsmlab.experiments.runner import Options, run_experiments
from tsmlab.measuring import MeasureExecutor

LIST_WIDTH = 60
INDENT = "    "

files_option = click.option(
    "--file",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE.toml",
    help="Add an experiment of your own (docs/experiments.md). May be given several times.",
)


@click.group("experiment", cls=Group)
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
    click.echo(tables.for_stdout(text.report, model.read(file)), nl=False)


@command.command("run", cls=Study)
@parameters.allocators_option(default="what each experiment says, and yours")
@parameters.extra_option
@parameters.rounds_option(
    "How often each point is run under each allocator. [default: what each experiment says]"
)
@parameters.time_budget_option(
    "Make fewer rounds, but not fewer than 3, to end within this time. [default: none]"
)
@parameters.seed_option
@click.option("--no-causes", is_flag=True, help="Only time; do not count why.")
@files_option
@resume_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and run nothing.")
@parameters.report_option
@parameters.ignore_failure_option
@parameters.study_options
@click.argument("names", metavar="NAME...|all", nargs=-1)
def run_command(dry_run: bool, **given: Any) -> int:
    """Run experiments by NAME or glob, or all of them.

    Each round runs every point of the sweep under every allocator, in random order. Afterwards each
    is run again, untimed, under tools that count system calls, blocks and waits. Every finished run
    is at once in a journal: whatever ends the run, --resume goes on.

    Exit status: 0; 1 wrong usage or environment; 2 a program failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    observers = all_observers()
    notes: list[str] = []
    options = _options(given, notes)
    whole = plan.estimate(options.plans, lambda allocator: len(watchers(observers, allocator)))
    budget = options.time_budget_seconds
    if dry_run:
        click.echo(plan.describe(options.plans, whole, budget, options.seed), nl=False)
        return EXIT_OK
    notes.append(f"{plan.summary(options.plans, whole.shortened(budget))}, as the files say")
    if note := plan.budget_note(whole, budget):
        notes.append(note)
    if not given["no_causes"] and (missing := strace.refusal()):
        notes.append(missing)
    return conduct(
        given,
        options.seed,
        options.allocators,
        options.files,
        lambda journal, reporter, fleet: run_experiments(
            options, MeasureExecutor(), observers, reporter, journal, fleet=fleet
        ),
        publication,
        notes,
    )


def publication(found: ExperimentResults) -> Publication:
    return Publication(found, text, failed=any(map(text.failed_cells, found.experiments)))


def _catalogue(files: Sequence[Path]) -> list[Definition]:
    shipped = sorted(catalogue.default_folder().glob("*.toml"))
    return catalogue.read_files([*shipped, *files])


def _list(definitions: Sequence[Definition]) -> str:
    """Each with its question below it, as wide as stdout."""
    width = max(LIST_WIDTH, tables.stdout_width())
    longest = max((len(each.name) for each in definitions), default=0)
    lines = []
    for each in definitions:
        points = wording.counted(len(catalogue.points_of(each)), "point")
        about = f"({points}, {wording.rounds(each.rounds)})"
        lines.append(f"{each.name:<{longest}}  {each.title} {about}")
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


def _options(given: dict[str, Any], notes: list[str]) -> Options:
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
    notes += known.advice(given["chosen"])
    return parameters.options_of(Options, given, plans=tuple(plans))
