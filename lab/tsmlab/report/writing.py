"""From results to the files of a report.

Why: which page a kind of results has, and what lies beside it, is told in one place.
Refuses to: compute. Every number of a report is in the results or was computed by their analysis.
"""

from collections.abc import Sequence
from pathlib import Path

from tsmlab import __version__
from tsmlab.bench_text import SuiteResults
from tsmlab.report import Results, folder, html
from tsmlab.report.pages import analysis, comparison, replay, suite
from tsmlab.report.pages.common import Report
from tsmlab.results import Comparison
from tsmlab.study import Study
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import ReplayResults


def write(results: Sequence[Results], directory: Path, force: bool) -> Path:
    """All files of the report; returns the path of the page to open."""
    parts = [part for each in results for part in _parts(each)]
    reports = [of(each) for each in parts]
    files = _files(reports[0]) if len(reports) == 1 else _all_files(reports)
    return folder.write(directory, files, force)


def _parts(results: Results) -> Sequence[Results | SuiteResults | ReplayResults]:
    """Each experiment of a run has a page of its own."""
    if not isinstance(results, Study):
        return [results]
    if results.suite:
        return [SuiteResults(results)]
    return [ReplayResults(results)] if results.replay else results.parts


def of(results: Results | SuiteResults | ReplayResults) -> Report:
    """The report of one result."""
    if isinstance(results, Comparison):
        return comparison.report(results)
    if isinstance(results, SuiteResults):
        return suite.report(results)
    if isinstance(results, TraceAnalysis):
        return analysis.report(results)
    if isinstance(results, ReplayResults):
        return replay.report(results)
    raise AssertionError("experiments are reported one by one")


def _files(report: Report, prefix: str = "") -> dict[str, bytes]:
    """By their paths in the folder. Bytes in names that are no text stay recognisable."""
    files = {}
    for figure in report.figures:
        files[f"{prefix}figures/{figure.name}.svg"] = figure.svg_file.encode()
        files[f"{prefix}figures/{figure.name}.png"] = figure.png_file
    files[f"{prefix}results.md"] = report.markdown.encode(errors="backslashreplace")
    files[f"{prefix}runs.csv"] = report.csv.encode(errors="backslashreplace")
    files[f"{prefix}{folder.PAGE}"] = html.page(report).encode()
    return files


def _all_files(reports: Sequence[Report]) -> dict[str, bytes]:
    """A folder for each, by its name (numbered where names meet), and the page that leads there. It
    compares nothing: results may come from different machines and programs."""
    files: dict[str, bytes] = {}
    entries = []
    for report in reports:
        number, place = 1, report.name
        while f"{place}/{folder.PAGE}" in files:
            number += 1
            place = f"{report.name}-{number}"
        files |= _files(report, f"{place}/")
        entries.append({"href": f"{place}/{folder.PAGE}", "report": report})
    page = {
        "title": f"{len(reports)} reports",
        "kind": "reports",
        "entries": entries,
        "contents": [],
        "footer": f"Written by tsmalloc {__version__}. Each report is a file that stands alone.",
    }
    files[folder.PAGE] = html.from_template("overview.html", page=page).encode()
    return files
