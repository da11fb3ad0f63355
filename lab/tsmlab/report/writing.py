"""From results to the files of a report: which page a kind of results has, and what lies beside."""

from collections.abc import Sequence
from pathlib import Path

from tsmlab.bench_text import SuiteResults
from tsmlab.report import Results, comparison, folder, html, replay, suite, trace
from tsmlab.report.page import Page
from tsmlab.results import Comparison
from tsmlab.study import Study
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import ReplayResults


def write(results: Sequence[Results], directory: Path, force: bool) -> Path:
    """All files of the report; returns the path of the page to open."""
    pages = [of(part) for each in results for part in _parts(each)]
    files = _files(pages[0]) if len(pages) == 1 else _all_files(pages)
    return folder.write(directory, files, force)


def _parts(results: Results) -> Sequence[Results | SuiteResults | ReplayResults]:
    """Each experiment of a run has a page of its own."""
    if not isinstance(results, Study):
        return [results]
    if results.suite:
        return [SuiteResults(results)]
    return [ReplayResults(results)] if results.replay else results.parts


def of(results: Results | SuiteResults | ReplayResults) -> Page:
    """The page of one result."""
    if isinstance(results, Comparison):
        return comparison.page(results)
    if isinstance(results, SuiteResults):
        return suite.page(results)
    if isinstance(results, TraceAnalysis):
        return trace.page(results)
    if isinstance(results, ReplayResults):
        return replay.page(results)
    raise AssertionError("experiments are reported one by one")


def _files(page: Page, prefix: str = "") -> dict[str, bytes]:
    """By their paths in the folder. Bytes in names that are no text stay recognisable."""
    files = {f"{prefix}{name}": text.encode(errors="backslashreplace")
             for name, text in page.files.items()}  # fmt: skip
    return {**files, f"{prefix}{folder.PAGE}": html.render(page).encode()}


def _all_files(pages: Sequence[Page]) -> dict[str, bytes]:
    """A folder for each, by its name (numbered where names meet), and the page that leads there. It
    compares nothing: results may come from different machines and programs."""
    files: dict[str, bytes] = {}
    entries = []
    for page in pages:
        number, place = 1, page.name
        while f"{place}/{folder.PAGE}" in files:
            number += 1
            place = f"{page.name}-{number}"
        files |= _files(page, f"{place}/")
        entries.append((f"{place}/{folder.PAGE}", page))
    files[folder.PAGE] = html.overview(f"{len(pages)} reports", entries).encode()
    return files
