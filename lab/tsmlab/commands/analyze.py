"""`tsmalloc analyze`: what a recorded program did with its memory.

Sizes, lifetimes and frees across threads decide which allocator suits a program, and a trace knows
all of them exactly. Nothing is run.
"""

from pathlib import Path

import click

from tsmlab import export, report, tables
from tsmlab.commands import parameters
from tsmlab.commands.parameters import FILE, image_option, option
from tsmlab.errors import EXIT_OK, tell
from tsmlab.traces import analysis, analysis_text, files
from tsmlab.traces.analysis import TraceAnalysis, analyse


@click.command("analyze")
@image_option
@option("--json", "Print JSON instead of tables.", "as_json")
@option("--html FILE", "Write a page with figures into this file.", type=FILE)
@option("--report DIR", "Write the page, and its tables as files.", "directory", type=FILE)
@option("-f --force", "Overwrite the file; write into any --report folder.")
@click.argument("trace", metavar="TRACE", type=FILE)
def command(
    trace: Path,
    image: int | None,
    as_json: bool,
    html: Path | None,
    directory: Path | None,
    force: bool,
) -> int:
    """Say what the program recorded in TRACE did with its memory.

    Sizes, lifetimes, temporary objects, frees across threads, what the peak is made of, what is
    left at the end, resizes. All terms are defined in docs/formats/trace.md.

    \b
    Examples:
      tsmalloc analyze lab/traces/sqlite3.tstrace
      tsmalloc analyze mine.tstrace --html mine.html
      tsmalloc analyze mine.tstrace --json

    Exit status: 0; 1 wrong usage, or a file that is no trace.
    """
    files.check_traces([trace])
    if html is not None:
        export.check_new(html, force)
    if directory is not None:
        report.check(directory, force)
    found = analyse(trace, image)
    page = report.write(found, directory, force) if directory is not None else None
    if page is not None:
        tell(f"report     {page}")
    if html is not None:
        parameters.write(html, _drawn(found) if page is None else page.read_bytes())
        tell(f"page       {html}")
    if as_json:
        click.echo(analysis.to_json(found))
    else:
        click.echo(tables.for_stdout(analysis_text.report, found), nl=False)
    return EXIT_OK


def _drawn(found: TraceAnalysis) -> str:
    # Imported here: `tsmalloc analyze --help` need not wait for it.
    from tsmlab.report import html, writing  # noqa: PLC0415

    return html.render(writing.of(found))
