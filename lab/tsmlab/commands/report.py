"""`tsmalloc report`: results as a page with figures and exports."""

from pathlib import Path

import click

from tsmlab.commands.parameters import FILE, option

DEFAULT_FOLDER = Path("tsmalloc-report")


@click.command("report")
@click.argument("results", metavar="RESULTS...", nargs=-1, required=True, type=FILE)
@option(
    "-o --output DIR",
    "The directory to write to. [default: tsmalloc-report]",
    default=DEFAULT_FOLDER,
)
@option("-f --force", "Write into a directory even if it contains other files.")
def command(results: tuple[Path, ...], output: Path, force: bool) -> None:
    """Write the report of RESULTS: files that compare, service, bench, experiment or replay saved.

    DIR/index.html is self-contained: it loads nothing, and its tables need no script. Beside it are
    all results (results.json), the tables as Markdown (results.md) and a line for each run
    (runs.csv). Several RESULTS get a directory each, and DIR/index.html links to them. Figures are
    drawn by Vega, which npm downloads once if it is not installed.

    \b
    Examples:
      tsmalloc report ~/.local/state/tsmalloc/results/20261121-103028-perl-17585.json
      tsmalloc report a.json b.json -o both

    Exit status: 0 success; 1 usage error, or a file without such results.
    """
    # Imported here so that `tsmalloc report --help` need not wait for it.
    from tsmlab import report  # noqa: PLC0415

    report.check(output, force)
    page = report.write([report.read(path) for path in results], output, force)
    click.echo(str(page))
