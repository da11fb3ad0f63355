"""`tsmalloc experiment`: questions about allocators, answered on this machine."""

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import experiments, strace, tables, texts, wording
from tsmlab.commands import Group, parameters
from tsmlab.commands.parameters import FILE, option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.definition import Definition
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.experiments import Options, Plan
from tsmlab.measuring import MeasureExecutor
from tsmlab.sweep import describe, points_of

LIST_WIDTH = 60
INDENT = "    "

files_option = option(
    "--file FILE.toml",
    "Add an experiment of your own (docs/experiments.md). May be given several times.",
    "files",
    type=FILE,
    multiple=True,
)


@click.group("experiment", cls=Group)
def command() -> None:
    """Run an experiment under any set of allocators; print its answer and what explains it.

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
    """List the experiments and the question each answers.

    \b
    Example:
      tsmalloc experiment list --file mine.toml
    """
    click.echo(_list(_catalogue(files)), nl=False)


@command.command("show")
@click.argument("file", metavar="RESULTS", type=FILE)
def show_command(file: Path) -> None:
    """Print the tables and answers of RESULTS, a file that `experiment run` saved.

    \b
    Example:
      tsmalloc experiment show ~/.local/state/tsmalloc/results/20261121-103028-x4.json
    """
    click.echo(tables.for_stdout(texts.report, experiments.read(file)), nl=False)


@command.command("run", cls=Study)
@parameters.allocators_option(default="those of each experiment, and yours")
@parameters.extra_option
@parameters.reference_option
@parameters.rounds_option(
    "How many times each point runs under each allocator. [default: set by each experiment]"
)
@parameters.time_budget_option(
    "Run fewer rounds, but at least 3, to finish within this time. [default: none]"
)
@parameters.seed_option
@option("--no-causes", "Do not count causes; only measure.")
@files_option
@resume_option
@option("--dry-run", "Show what would be done, without running anything.")
@parameters.report_option
@parameters.ignore_failure_option
@parameters.study_options
@click.argument("names", metavar="NAME...|all", nargs=-1)
def run_command(dry_run: bool, **params: Any) -> int:
    """Run experiments by NAME or glob, or all of them.

    An experiment is a comparison over the points of a sweep: each round runs every point under
    every allocator, in random order. Afterwards each point runs once more, untimed, under tools
    that count system calls, blocks and waits. Each finished run is saved to a journal at once;
    --resume continues after any interruption.

    \b
    Examples:
      tsmalloc experiment run x4-producer-consumer -a tsmalloc,glibc
      tsmalloc experiment run all --report report

    Exit status: 0 success; 1 usage or environment error; 2 a program failed under an allocator;
    130 interrupted (results so far are kept).
    """
    notes: list[str] = []
    options = _options(params, notes)
    if dry_run:
        last = f"{_summary(options.plans)}; seed {options.seed}"
        click.echo("\n\n".join([*map(_described, options.plans), last]))
        return EXIT_OK
    notes.append(f"{_summary(options.plans)}, with the files' own settings")
    if not params["no_causes"] and (missing := strace.refusal()):
        notes.append(missing)
    return conduct(
        params,
        options.seed,
        options.allocators,
        options.files,
        lambda journal, reporter, fleet: experiments.run(
            options, MeasureExecutor(), reporter, journal, fleet
        ),
        notes=notes,
    )


# --- what was chosen, and what will run -----------------------------------------------------------


def _catalogue(files: Sequence[Path]) -> list[Definition]:
    shipped = sorted(experiments.default_folder().glob("*.toml"))
    return experiments.read_files([*shipped, *files])


def _list(definitions: Sequence[Definition]) -> str:
    width = max(LIST_WIDTH, tables.stdout_width())
    longest = max((len(each.name) for each in definitions), default=0)
    lines = []
    for each in definitions:
        points = wording.counted(len(points_of(each.parameters)), "point")
        about = f"({points}, {wording.rounds(each.rounds)})"
        lines.append(f"{each.name:<{longest}}  {each.title} {about}")
        lines += textwrap.wrap(
            each.question, width, initial_indent=INDENT, subsequent_indent=INDENT
        )
    return "".join(f"{line}\n" for line in lines)


def _chosen(params: dict[str, Any]) -> list[Definition]:
    """By name; without a name, the user's own files."""
    files = params["files"]
    if params["names"]:
        return experiments.select(params["names"], _catalogue(files))
    if files:
        return experiments.read_files(files)
    raise UserError("no experiment given.", f"Name some, or `all`. {experiments.SHOW_ALL}")


def _options(params: dict[str, Any], notes: list[str]) -> Options:
    """The options of the run, once everything that can be checked has been."""
    definitions = _chosen(params)
    available = known.discover(params["extra"])
    plans = [
        experiments.plan(
            definition,
            available,
            params["chosen"],
            params["reference"],
            params["rounds"],
            not params["no_causes"],
            notes.append,
        )
        for definition in definitions
    ]
    notes += known.advice(params["chosen"])
    return parameters.options_of(Options, params, plans=tuple(plans))


def _summary(plans: Sequence[Plan]) -> str:
    runs = sum(each.rounds * each.runs_a_round for each in plans)
    seconds = sum(each.rounds_seconds + each.causes_seconds for each in plans)
    time = f"{seconds / 60.0:.0f} min" if seconds >= 100.0 else f"{max(seconds, 1.0):.0f} s"
    return f"{wording.counted(len(plans), 'experiment')}, {runs:,} runs, about {time}"


def _described(each: Plan) -> str:
    definition = each.definition
    values = [f"{p.name} {' '.join(map(str, p.values))}" for p in definition.parameters]
    where = [describe(each.points[point]) or "the one point" for point in each.causes_points]
    if len(where) == len(each.points) > 1:
        where = ["every point"]
    lines = [
        ("experiment", f"{each.definition.name}: {definition.title}"),
        ("question", definition.question),
        ("file", definition.file),
        ("command", shlex.join([str(each.program), *definition.arguments])),
        ("sweep", "; ".join(values) or "none"),
        ("allocators", " ".join(allocator.name for allocator in each.allocators)),
        ("reference", f"{each.reference.name}, run twice in each round"),
        ("rounds", f"{each.rounds}, of {each.runs_a_round} runs each"),
        ("causes", f"counted at {'; '.join(where)}" if where else "not counted"),
        ("hang", f"after {definition.timeout_seconds:g} s"),
    ]
    return "\n".join(f"{label:<12}{text}" for label, text in lines)
