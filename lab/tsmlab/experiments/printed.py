"""The tables of the source reports, as far as they can be set beside ours.

Why: an experiment that repeats another one must say whether it found the same. A report's table
keeps the names that it was printed with, so its columns and rows are matched with ours here.
Refuses to: guess. A label that could mean two allocators means none, and a table that cannot be
read is only shown. Absolute figures of another machine are never compared, ratios and shapes are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tsmlab.experiments.measured import is_number
from tsmlab.experiments.model import Metric, Parameter, Reported

# What reports call the allocators that we call otherwise.
ALIASES = {"glibc": ("ptmalloc", "ptmalloc2", "ptmalloc3", "glibcmalloc")}
# What columns of a unit are called beside the title of the metric.
SYNONYMS = {
    "seconds": ("seconds", "time", "real", "realtime", "executiontime", "runtime", "wall"),
    "bytes": ("bytes", "segment", "datasegment", "datasegmentsize", "memory", "peakmemory"),
}
RANGE = re.compile(r"\s*([\d.,]+)\s*(?:-|–|to|\.\.)\s*([\d.,]+)\s*")


@dataclass(frozen=True)
class Figure:
    """One number of a table: whose it is, and at which value of the parameter, if it has one."""

    allocator: str
    x: float | None
    value: float


@dataclass(frozen=True)
class Printed:
    """A table of a report with the figures of one metric that were matched."""

    table: Reported
    figures: list[Figure]

    alone: bool

    @property
    def name(self) -> str:
        """As the sentences call it; several tables of one report differ in their machines."""
        report = self.table.report
        name = report if "eport" in report else f"report {report}"
        return name if self.alone else f"{name} ({self.table.machine})"

    def single_figures(self) -> dict[str, float]:
        """By allocator, for those that have one figure above 0 and no more."""
        names = dict.fromkeys(figure.allocator for figure in self.figures)
        return {
            name: own[0].value
            for name in names
            if len(own := self.of(name)) == 1 and own[0].value > 0.0
        }

    def of(self, allocator: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.allocator == allocator]

    def ratio(self, first: str, second: str) -> float | None:
        """The first's figure to the second's, where the table has one of each."""
        found = self.single_figures()
        return found[first] / found[second] if first in found and second in found else None

    def curve(self, allocator: str) -> list[tuple[float, float]]:
        return sorted((f.x, f.value) for f in self.of(allocator) if f.x is not None)


def printed(
    tables: Sequence[Reported],
    among: Sequence[str],
    metric: Metric,
    parameter: Parameter | None,
) -> list[Printed]:
    """The tables in which figures of the metric were found, for the allocators `among`."""
    reports = [table.report for table in tables]
    found = [
        Printed(table, _figures(table, among, metric, parameter), reports.count(table.report) == 1)
        for table in tables
    ]
    return [each for each in found if each.figures]


def _figures(
    table: Reported, among: Sequence[str], metric: Metric, parameter: Parameter | None
) -> list[Figure]:
    across = _parameter_column(table, parameter)
    down = _allocator_column(table, among)
    if down is not None:
        return _long(table, among, down, across, _metric_column(table, metric))
    wide = {
        column: name
        for column, header in enumerate(table.columns)
        if column != across and (name := match(header, among)) is not None
    }
    return _wide(table, wide, across, metric)


def _long(
    table: Reported, among: Sequence[str], down: int, across: int | None, column: int | None
) -> list[Figure]:
    """A row for each allocator, or for each allocator and value of the parameter."""
    if column is None:
        return []
    figures = []
    for row in table.rows:
        name = match(_cell(row, down), among)
        value = figure_of(_cell(row, column))
        if name is not None and value is not None:
            x = None if across is None else figure_of(_cell(row, across))
            figures.append(Figure(name, x, value))
    return figures


def _wide(
    table: Reported, columns: dict[int, str], across: int | None, metric: Metric
) -> list[Figure]:
    """A column for each allocator; a row for each value of the parameter, or for each metric."""
    figures = []
    for row in table.rows:
        if across is None and len(table.rows) > 1 and not _row_is_about(row, columns, metric):
            continue
        x = None if across is None else figure_of(_cell(row, across))
        for column, name in columns.items():
            value = figure_of(_cell(row, column))
            if value is not None:
                figures.append(Figure(name, x, value))
    return figures


def _row_is_about(row: Sequence[Any], columns: dict[int, str], metric: Metric) -> bool:
    labels = [cell for column, cell in enumerate(row) if column not in columns]
    return any(isinstance(label, str) and _is_metric(label, metric) for label in labels)


def _cell(row: Sequence[Any], column: int) -> Any:
    return row[column] if column < len(row) else None


# --- which column is what -------------------------------------------------------------------------


def _allocator_column(table: Reported, among: Sequence[str]) -> int | None:
    """The column in which most cells name allocators, if at least two different ones are named."""
    best, most = None, 1
    for column in range(len(table.columns)):
        named = {match(_cell(row, column), among) for row in table.rows} - {None}
        if len(named) > most:
            best, most = column, len(named)
    return best


def _parameter_column(table: Reported, parameter: Parameter | None) -> int | None:
    if parameter is None:
        return None
    wanted = {squeeze(parameter.name), squeeze(parameter.title)}
    found = [i for i, header in enumerate(table.columns) if squeeze(without_unit(header)) in wanted]
    return found[0] if found else None


def _metric_column(table: Reported, metric: Metric) -> int | None:
    """By name or title; else by what columns of such a unit are called."""
    exact = [i for i, header in enumerate(table.columns) if _is_exactly(header, metric)]
    found = exact or [i for i, header in enumerate(table.columns) if _is_metric(header, metric)]
    return found[0] if found else None


def _is_exactly(header: str, metric: Metric) -> bool:
    title = squeeze(without_unit(metric.title))
    return squeeze(without_unit(header)) in (squeeze(metric.name), title)


def _is_metric(header: str, metric: Metric) -> bool:
    return _is_exactly(header, metric) or squeeze(without_unit(header)) in SYNONYMS.get(
        metric.unit, ()
    )


def without_unit(header: str) -> str:
    """time, s; time (s); time [s]: what stands before the unit."""
    return re.split(r"[,(\[]", header, maxsplit=1)[0]


def squeeze(text: str) -> str:
    """Letters and digits alone, so that "no lock" is nolock."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def match(label: Any, among: Sequence[str]) -> str | None:
    """The allocator that a label means; None if it is none, or might be two."""
    if not isinstance(label, str):
        return None
    wanted = squeeze(without_unit(label))
    wanted = wanted.removesuffix("fit") or wanted
    exact = [name for name in among if squeeze(name) == wanted]
    if exact:
        return exact[0]
    parts = [name for name in among if wanted in _names_of(name)]
    return parts[0] if len(parts) == 1 else None


def _names_of(allocator: str) -> set[str]:
    parts = {squeeze(part) for part in allocator.split("-")}
    return parts | set(ALIASES.get(allocator, ()))


def figure_of(cell: Any) -> float | None:
    """A number as it was printed: 0.7064, "41,680,165", or the middle of "0.089-0.116"."""
    if is_number(cell):
        return float(cell)
    if not isinstance(cell, str):
        return None
    between = RANGE.fullmatch(cell)
    texts = between.groups() if between else (re.sub(r"\s*[a-zA-Zµ%]*\s*$", "", cell),)
    try:
        numbers = [float(text.replace(",", "")) for text in texts]
    except ValueError:
        return None
    return sum(numbers) / len(numbers)
