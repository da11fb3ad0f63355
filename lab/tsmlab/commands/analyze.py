"""`tsmalloc analyze`: what a recorded program did with its memory.

Sizes, lifetimes and frees across threads decide which allocator suits a program, and a trace knows
all of them exactly. Nothing is run.
"""

from pathlib import Path

import click

from tsmlab import report, tables
from tsmlab.commands.parameters import FILE, image_option, option
from tsmlab.errors import print_error
from tsmlab.traces import analysis, analysis_text, files
from tsmlab.traces.analysis import analyse


@click.command("analyze")
@image_option
@option("--json", "Print JSON instead of tables.", "as_json")
@option("--report DIR", "Write a report with figures into this directory.", "directory")
@option("-f --force", "Write into a --report directory that is not empty.")
@click.argument("trace", metavar="TRACE", type=FILE)
def command(
    trace: Path, image: int | None, as_json: bool, directory: Path | None, force: bool
) -> None:
    """Show what the program recorded in TRACE did with its memory.

    Shows sizes, lifetimes, temporary objects, cross-thread frees, what the peak consists of, what
    is left at the end, and resizes. All terms are defined in docs/formats/trace.md.

    \b
    Examples:
      tsmalloc analyze lab/traces/sqlite3.tstrace
      tsmalloc analyze mine.tstrace --report pages
      tsmalloc analyze mine.tstrace --json

    Exit status: 0 success; 1 usage error, or a file that is not a trace.
    """
    files.check_traces([trace])
    if directory is not None:
        report.check(directory, force)
    found = analyse(trace, image)
    if directory is not None:
        print_error(f"report     {report.write(found, directory, force)}")
    if as_json:
        click.echo(analysis.to_json(found))
    else:
        click.echo(tables.for_stdout(analysis_text.report, found), nl=False)
