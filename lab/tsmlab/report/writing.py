"""From results to the files of a report.

Why: which page a kind of results has, and what lies beside it, is told in one place.
Refuses to: compute. Every number of a report is in the results or was computed by their analysis.
"""

from collections.abc import Sequence
from pathlib import Path

from tsmlab.report import Results, folder, html
from tsmlab.report.pages import analysis, comparison, experiments, overview, replay, suite
from tsmlab.report.pages.common import Report
from tsmlab.results import Comparison
from tsmlab.suite_results import SuiteResults
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import ReplayResults


def write(results: Sequence[Results], directory: Path, force: bool) -> Path:
    """All files of the report; returns the path of the page to open."""
    reports = [of(each) for each in results]
    files = _files(reports[0]) if len(reports) == 1 else _all_files(reports)
    return folder.write(directory, files, force)


def of(results: Results) -> Report:
    """The report of one result."""
    if isinstance(results, Comparison):
        return comparison.report(results)
    if isinstance(results, SuiteResults):
        return suite.report(results)
    if isinstance(results, TraceAnalysis):
        return analysis.report(results)
    if isinstance(results, ReplayResults):
        return replay.report(results)
    return experiments.report(results)


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
    """A folder for each, by its name (numbered where names meet), and the page that leads there."""
    files: dict[str, bytes] = {}
    places = overview.places([report.name for report in reports])
    for place, report in zip(places, reports, strict=True):
        files |= _files(report, f"{place}/")
    entries = [
        overview.Entry(f"{place}/{folder.PAGE}", report.kind, report.title, report.summary)
        for place, report in zip(places, reports, strict=True)
    ]
    files[folder.PAGE] = overview.page(entries).encode()
    return files
