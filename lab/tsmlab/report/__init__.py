"""Pages: results as a self-contained HTML file, with figures and tables.

page.py has the model of a page, figures.py the figures, charts.py the Vega-Lite charts, html.py the
file. writing.py makes a page from the same blocks of text as a terminal's report, so that a verb
only adds a title, a question and its figures.
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
    """Writes the report of one result, or of several with a page that links to them, into a folder;
    returns the path of the page to open.

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
    """The results in a file; raises UserError if it holds none."""
    text = records.text_of(path, _REMEDY)
    schema = records.schema_of(text, str(path), _REMEDY)
    if schema not in _READERS:
        what = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UserError(f"{path} contains no results that can be shown: {what}.", _REMEDY)
    return _READERS[schema](text, str(path))
