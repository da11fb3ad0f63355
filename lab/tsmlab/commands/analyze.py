"""`tsmalloc analyze`: what a recorded program did with its memory.

Sizes, lifetimes and frees across threads decide which allocator suits a program, and a trace knows
all of them exactly. Nothing is run but the question for size classes.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from tsmlab import allocators as known
from tsmlab import export, report, tables
from tsmlab.allocators import ENGINE
from tsmlab.commands import parameters
from tsmlab.commands.parameters import FILE, extra_option, image_option, option
from tsmlab.errors import EXIT_OK, tell
from tsmlab.traces import analysis, analysis_text, files
from tsmlab.traces.analysis import TraceAnalysis, analyse
from tsmlab.traces.size_classes import classes_of

# The heaps of the course all round to 16 bytes: one stands for them.
DEFAULT = (ENGINE, "lock-first", "system")


@click.command("analyze")
@option(
    "-a --allocators NAMES",
    "Whose waste to predict: names, globs, groups, with commas or repeatedly; none for none. "
    "[default: tsmalloc, lock-first, system, and yours]",
    "chosen",
    multiple=True,
)
@extra_option
@image_option
@option("--json", "Print JSON instead of tables.", "as_json")
@option("--html FILE", "Write a page with figures into this file.", type=FILE)
@option("--report DIR", "Write the page, and its tables as files.", "directory", type=FILE)
@option("-f --force", "Overwrite the file; write into any --report folder.")
@option("-q --quiet", "No notes.")
@click.argument("trace", metavar="TRACE", type=FILE)
def command(
    trace: Path,
    chosen: Sequence[str],
    extra: Sequence[str],
    image: int | None,
    as_json: bool,
    html: Path | None,
    directory: Path | None,
    force: bool,
    quiet: bool,
) -> int:
    """Say what the program recorded in TRACE did with its memory.

    Sizes, lifetimes, temporary objects, frees across threads, what the peak is made of, what is
    left at the end, resizes; and what the size classes of each allocator would waste. All terms are
    defined in docs/formats/trace.md.

    \b
    Examples:
      tsmalloc analyze lab/traces/sqlite3.tstrace
      tsmalloc analyze mine.tstrace --html mine.html
      tsmalloc analyze mine.tstrace -a tsmalloc,jemalloc --json

    Exit status: 0; 1 wrong usage, or a file that is no trace.
    """
    files.check_traces([trace])
    if html is not None:
        export.check_new(html, force)
    if directory is not None:
        report.check(directory, force)
    found = _analysed(trace, image, chosen, extra, quiet)
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


def _analysed(
    trace: Path, image: int | None, chosen: Sequence[str], extra: Sequence[str], quiet: bool
) -> TraceAnalysis:
    def note(text: str) -> None:
        if not quiet:
            tell(text)

    if list(chosen) == ["none"]:
        return analyse(trace, image)
    available = known.discover(extra, versions=False)
    own = [each.name for each in available if each.family == "user"]
    built = {each.name for each in available}
    default = [name for name in DEFAULT if name in built or name in known.GROUPS]
    return analyse(
        trace, image, classes_of(known.select(chosen or [*default, *own], available), note)
    )


def _drawn(found: TraceAnalysis) -> str:
    # Imported here: `tsmalloc analyze --help` need not wait for it.
    from tsmlab.report import html, writing  # noqa: PLC0415

    return html.render(writing.of(found))
