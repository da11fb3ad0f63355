"""From results to the files of a report: which page a kind of results has, and what lies beside."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tsmlab.bench_text import SuiteResults
from tsmlab.report import Results, comparison, folder, html, replay, service, suite, trace
from tsmlab.report.page import Data, Page
from tsmlab.results import Comparison
from tsmlab.study import Study
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import ReplayResults


def write(results: Sequence[Results], directory: Path, force: bool) -> Path:
    pages = [page for each in results for page in pages_of(each)]
    files = _files(pages[0]) if len(pages) == 1 else _all_files(pages)
    return folder.write(directory, files, force)


def of(results: Results | SuiteResults | ReplayResults) -> Page:
    [page] = pages_of(results)
    return page


def pages_of(results: Results | SuiteResults | ReplayResults) -> list[Page]:
    """The pages of one result: each experiment of a run has its own."""
    if isinstance(results, SuiteResults | ReplayResults):
        results = results.study
    if isinstance(results, TraceAnalysis):
        return [trace.page(results)]
    study = Study.of("compare", [results]) if isinstance(results, Comparison) else results
    if study.suite:
        return [_with_data(suite.page(SuiteResults(study)), study)]
    if study.replay:
        return [_with_data(replay.page(ReplayResults(study)), study)]
    if study.service:
        return [_with_data(service.page(study), study)]
    parts = [replace(study, parts=[part]) for part in study.parts]
    return [_with_data(comparison.page(each.comparison), each) for each in parts]


def _with_data(page: Page, study: Study) -> Page:
    """Its raw data are a document that every verb reads."""
    return replace(page, data=Data(asdict(study), _thin))


def _thin(data: dict[str, Any]) -> None:
    """Without curves over time, and without buckets of latencies."""
    for part in data["parts"]:
        for sample in part["samples"]:
            measurement = sample["measurement"]
            measurement.pop("series", None)
            for life in measurement.get("lives", []):
                life.pop("series", None)
            line = measurement.get("replay") or {}
            for curve in ("samples", "meters"):
                line.pop(curve, None)
            for latency in (line.get("latency") or {}).values():
                latency.pop("buckets", None)


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
