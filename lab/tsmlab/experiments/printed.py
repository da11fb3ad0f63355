"""The tables of the source reports, as far as they can be set beside ours.

Why: an experiment that repeats another one must say whether it found the same. A report's table
keeps the names that it was printed with, so its columns and rows are matched with ours here.
Refuses to: guess. A table that cannot be read is only shown. Absolute figures of another machine
are never compared; ratios, orders and shapes are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tsmlab.experiments.measured import is_number
from tsmlab.experiments.model import Definition, Metric, Parameter, Reported
from tsmlab.experiments.phrases import is_duration, noun

# What reports call the allocators that we call otherwise.
ALIASES = {"glibc": ("ptmalloc", "ptmalloc2", "ptmalloc3", "glibcmalloc")}
# Whose figures they are where a table names nobody.
ANY = "*"
# What the column of a time is called beside the title of the metric.
TIMES = ("seconds", "time", "real", "realtime", "executiontime", "runtime", "wall", "walltime")
HEADED = re.compile(r"\s*([\d.,]+)\s+(\D+?)\s*")
RANGE = re.compile(r"\s*([\d.,]+)\s*(?:-|–|to|\.\.)\s*([\d.,]+)\s*")


@dataclass(frozen=True)
class Figure:
    """One number of a table. label: what the table calls the allocator; "" where it names none.
    along and x: the swept parameter and its value; None where the table has none. case: what its
    row is about beside that (another machine, say)."""

    label: str
    allocator: str
    value: float
    along: str | None = None
    x: float | None = None
    case: str = ""


@dataclass(frozen=True)
class Printed:
    """The figures of one metric that were matched in a table, or in one case of it."""

    name: str
    figures: list[Figure]

    def of(self, allocator: str) -> list[Figure]:
        """Those of an allocator, or those that the table gives for all that it measured."""
        return [figure for figure in self.figures if figure.allocator in (allocator, ANY)]

    def single_figures(self) -> dict[str, Figure]:
        """By allocator, for those that are named and have one figure above 0, and no more."""
        names = dict.fromkeys(f.allocator for f in self.figures if f.allocator != ANY)
        return {
            name: own[0] for name in names if len(own := self.of(name)) == 1 and own[0].value > 0.0
        }

    def ratio(self, first: str, second: str) -> float | None:
        """The first's figure to the second's, where the table has one of each."""
        found = self.single_figures()
        if first not in found or second not in found or found[first].label == found[second].label:
            return None
        return found[first].value / found[second].value

    def curve(self, allocator: str, parameter: Parameter) -> list[tuple[float, float]]:
        """Its figures over the parameter, in rising order."""
        own = [f for f in self.of(allocator) if f.along == parameter.name and f.x is not None]
        return sorted((f.x or 0.0, f.value) for f in own)


def printed(definition: Definition, among: Sequence[str], metric: Metric) -> list[Printed]:
    """The tables in which figures of the metric were found, for the allocators `among`; a table
    with a row for each of several cases comes once for each. A table whose heads do not say what
    its figures are is about the experiment's first metric."""
    tables = definition.reported
    reports = [table.report for table in tables]
    found = []
    for table in tables:
        name = table.report if "eport" in table.report else f"report {table.report}"
        if reports.count(table.report) > 1:
            name = f"{name} ({table.machine})"
        figures = _Reader(table, definition, among, metric).figures()
        for case in dict.fromkeys(figure.case for figure in figures):
            own = [figure for figure in figures if figure.case == case]
            found.append(Printed(f"{name} ({case})" if case else name, own))
    return found


class _Reader:
    """Finds out what the columns of one table are."""

    def __init__(
        self,
        table: Reported,
        definition: Definition,
        among: Sequence[str],
        metric: Metric,
    ) -> None:
        self.table = table
        self.among = among
        self.metric = metric
        self.parameters = definition.parameters
        self.is_first = definition.main_metric.name == metric.name
        self.across = self._parameter_column()
        self.down = self._allocator_column()

    def figures(self) -> list[Figure]:
        column = self._metric_column()
        if self.down is not None:
            if column is not None:
                return self._long(column)
            return self._matrix() if self.is_first else []
        wide = self._wide_columns()
        if wide:
            return self._wide(wide)
        if self.across is not None and column is not None:
            return self._nameless(column)
        return []

    # --- the shapes -------------------------------------------------------------------------------

    def _long(self, column: int) -> list[Figure]:
        """A row for each allocator, or for each allocator and value of a parameter."""
        return [
            figure
            for row in self.table.rows
            for figure in self._named(_cell(row, self.down), _cell(row, column), *self._x(row))
        ]

    def _matrix(self) -> list[Figure]:
        """A row for each allocator, a column for each value of a parameter: "10 iterations"."""
        figures = []
        for column, header in enumerate(self.table.columns):
            place = self._value_in(header)
            if place is not None and column != self.down:
                for row in self.table.rows:
                    figures += self._named(_cell(row, self.down), _cell(row, column), *place)
        return figures

    def _wide(self, columns: dict[int, bool]) -> list[Figure]:
        """A column for each allocator; a row for each value of a parameter, each metric, or each
        case. columns: whether the header says that they are about the metric."""
        figures: list[Figure] = []
        said = all(columns.values())
        for row in self.table.rows:
            texts = [cell for i, cell in enumerate(row) if i not in columns and _is_text(row, i)]
            named = any(_is_metric(text, self.metric) for text in texts)
            if not (named or said or (self.is_first and not self._rows_are_metrics())):
                continue
            several = self.across is None and len(self.table.rows) > 1
            case = " ".join(texts) if several and not named else ""
            for column in columns:
                label = without_unit(self.table.columns[column])
                own = self._named(label, _cell(row, column), *self._x(row))
                figures += [replace(figure, case=case) for figure in own]
        return figures

    def _rows_are_metrics(self) -> bool:
        """Whether some row is labelled by the metric, so that others are about other ones."""
        cells = (cell for row in self.table.rows for cell in row if isinstance(cell, str))
        return any(_is_metric(cell, self.metric) for cell in cells)

    def _nameless(self, column: int) -> list[Figure]:
        """A row for each value of the parameter, and no word of who was measured."""
        figures = []
        for row in self.table.rows:
            value = figure_of(_cell(row, column))
            if value is not None:
                figures.append(Figure("", ANY, value, *self._x(row)))
        return figures

    def _named(self, label: Any, cell: Any, along: str | None, x: float | None) -> list[Figure]:
        value = figure_of(cell)
        if value is None or not isinstance(label, str):
            return []
        return [Figure(label, name, value, along, x) for name in matches(label, self.among)]

    def _x(self, row: Sequence[Any]) -> tuple[str | None, float | None]:
        if self.across is None:
            return None, None
        column, parameter = self.across
        return parameter.name, figure_of(_cell(row, column))

    # --- the columns ------------------------------------------------------------------------------

    def _allocator_column(self) -> int | None:
        """The column in which most cells name allocators, if two or more of them do."""
        best, most = None, 1
        for column in range(len(self.table.columns)):
            labels = {_cell(row, column) for row in self.table.rows if _is_text(row, column)}
            named = [label for label in labels if matches(label, self.among)]
            if len(named) > most:
                best, most = column, len(named)
        return best

    def _parameter_column(self) -> tuple[int, Parameter] | None:
        for column, header in enumerate(self.table.columns):
            for parameter in self.parameters:
                if squeeze(without_unit(header)) in _words_for(parameter):
                    return column, parameter
        return None

    def _metric_column(self) -> int | None:
        """By name or title; else by what columns of such a unit are called."""
        headers = list(enumerate(self.table.columns))
        exact = [i for i, header in headers if _is_exactly(header, self.metric)]
        found = exact or [i for i, header in headers if _is_metric(header, self.metric)]
        return found[0] if found else None

    def _wide_columns(self) -> dict[int, bool]:
        """Columns headed by an allocator, as "lock" or "lock, time, s": whether they say that they
        are about the metric. Those that are about another one are left out."""
        found = {}
        for column, header in enumerate(self.table.columns):
            label, _, rest = header.partition(",")
            if self.across is not None and column == self.across[0]:
                continue
            if matches(label, self.among):
                about = any(_is_metric(part, self.metric) for part in rest.split(","))
                if about or not rest.strip():
                    found[column] = about
        return found

    def _value_in(self, header: str) -> tuple[str, float] | None:
        """The parameter and its value in a header like "10 iterations"."""
        between = HEADED.fullmatch(header)
        if between is None:
            return None
        value = figure_of(between[1])
        for parameter in self.parameters:
            if value is not None and squeeze(between[2]) in _words_for(parameter):
                return parameter.name, value
        return None


def _words_for(parameter: Parameter) -> set[str]:
    return {
        squeeze(parameter.name),
        squeeze(without_unit(parameter.title)),
        squeeze(noun(parameter)),
    }


def _is_text(row: Sequence[Any], column: int) -> bool:
    return isinstance(_cell(row, column), str)


def _cell(row: Sequence[Any], column: int | None) -> Any:
    return row[column] if column is not None and column < len(row) else None


# --- words -------------------------------------------------------------------------


def _is_exactly(header: str, metric: Metric) -> bool:
    title = squeeze(without_unit(metric.title))
    return squeeze(without_unit(header)) in (squeeze(metric.name), title)


def _is_metric(header: str, metric: Metric) -> bool:
    word = squeeze(without_unit(header))
    return _is_exactly(header, metric) or (is_duration(metric) and word in TIMES)


def without_unit(header: str) -> str:
    """time, s; time (s); time [s]: what stands before the unit."""
    return re.split(r"[,(\[]", header, maxsplit=1)[0]


def squeeze(text: str) -> str:
    """Letters and digits alone, so that "no lock" is nolock."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def matches(label: str, among: Sequence[str]) -> list[str]:
    """The allocators that a label means: the one so called, or all that have it as a part of their
    names ("first fit" is lock-first, and rwlock-first, too)."""
    wanted = squeeze(without_unit(label))
    wanted = wanted.removesuffix("fit") or wanted
    exact = [name for name in among if squeeze(name) == wanted]
    return exact or [name for name in among if wanted and wanted in _names_of(name)]


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
