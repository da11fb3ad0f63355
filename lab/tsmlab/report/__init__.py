"""Pages: results as one file of HTML that stands alone, with figures, tables and the raw data.

To make a page, describe it and render it:

    from tsmlab.report import charts, html
    from tsmlab.report.page import Figure, Page, figure_sections, table_of
    from tsmlab.report.theme import styles_for

    styles = styles_for(["tsmalloc"])
    line = charts.Line("tsmalloc", [(100, 1.2e-3), (200, 1.4e-3)], styles["tsmalloc"])
    panel = charts.lines([line], charts.Axis("load"), charts.Axis("p99", "seconds"))
    table = table_of("Latency", ("load", "p99"), [["100/s", "1.2 ms"], ["200/s", "1.4 ms"]])
    figure = Figure("latency", "Latency over load", "Lower is better.", [panel], table,
                    charts.legend(styles))
    page = Page("service", "redis", "Recommendation: ...", figure_sections([figure]))
    text = html.render(page)

page.py has the model (Page, Section, and the parts of a section: DataTable, Figure, Text, Code,
Terms), charts.py the usual figures as Vega-Lite, html.py the file. A figure is any list of
Vega-Lite panels; all text is escaped.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tsmlab import records, results, study
from tsmlab.errors import UserError
from tsmlab.report.folder import check
from tsmlab.results import Comparison
from tsmlab.study import Study
from tsmlab.traces import analysing, analysis
from tsmlab.traces.analysis import TraceAnalysis

__all__ = ["Results", "check", "read", "write"]

Results = Study | Comparison | TraceAnalysis


def write(results: Results | Sequence[Results], directory: Path, force: bool = False) -> Path:
    """Writes the report of one result, or of each of several with a page that leads to them, into
    a folder; returns the path of the page to open.

    Raises UserError if the folder holds something else, unless `force` is given."""
    from tsmlab.report import writing  # noqa: PLC0415 (loads jinja2)

    check(directory, force)
    several = [results] if isinstance(results, Results) else list(results)
    return writing.write(several, directory, force)


_REMEDY = (
    "Give a file that `tsmalloc compare`, `service`, `bench`, `experiment` or `replay` saved (its "
    "path was printed at the end) or wrote with --export-json."
)
_READERS: dict[str, Callable[[str, str], Results]] = {
    results.SCHEMA: study.from_json,
    analysing.SCHEMA: analysis.from_json,
}


def read(path: Path) -> Results:
    """The results in a file; raises UserError for one that holds none."""
    text = records.text_of(path, _REMEDY)
    schema = records.schema_of(text, str(path), _REMEDY)
    if schema not in _READERS:
        what = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UserError(f"{path} holds no results that can be shown: {what}.", _REMEDY)
    return _READERS[schema](text, str(path))
