"""The model of a page: its contents in order. html.py writes it.

A page has a title, the answer as one sentence, warnings, and sections of parts: texts, tables,
figures or command lines. All text is plain, and escaped when the page is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tsmlab.tables import Cell, Column, columns_of
from tsmlab.text import slug

Spec = dict[str, Any]


@dataclass(frozen=True)
class DataTable:
    """The first column of words heads its row."""

    caption: str
    columns: Sequence[Column]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def head(self) -> int | None:
        return next((place for place, column in enumerate(self.columns) if column.left), None)


def table_of(
    caption: str,
    headers: Sequence[str | Column],
    rows: Sequence[Sequence[str | Cell]],
    left: int = 1,
) -> DataTable:
    return DataTable(caption, columns_of(headers, rows, left))


@dataclass(frozen=True)
class Series:
    """An entry of a figure's legend, which toggles everything with this name in the field `series`.
    colour: a name in theme.py; sign: its symbol."""

    name: str
    colour: str
    sign: str = "●"


@dataclass(frozen=True)
class Figure:
    """Vega-Lite panels, one below the other, with the same numbers as a table. charts.py makes the
    usual ones. Colours in a panel are the page's variables, as in `var(--blue)`."""

    name: str
    title: str
    caption: str
    panels: Sequence[Spec]
    table: DataTable
    series: Sequence[Series] = ()


@dataclass(frozen=True)
class Text:
    """A paragraph; notes are set smaller."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Code:
    """A command line. label: for screen readers."""

    text: str
    label: str


@dataclass(frozen=True)
class Terms:
    items: Sequence[tuple[str, str]]


Part = DataTable | Figure | Text | Code | Terms


@dataclass(frozen=True)
class Section:
    """A heading and its parts. folded: closed until clicked."""

    title: str
    parts: Sequence[Part]
    folded: bool = False
    anchor: str = ""

    @property
    def id(self) -> str:
        return self.anchor or slug(self.title, "section")


@dataclass(frozen=True)
class Warned:
    """A warning: one line, which opens to show its cause and its remedy."""

    line: str
    more: str = ""


@dataclass(frozen=True)
class Page:
    """One page. name: of its folder and its data file. answer: the first sentence, the
    recommendation if there is one. also: further answers. facts: other findings, by label. use: the
    command that applies the recommendation. files: to write next to the page, by name."""

    kind: str
    title: str
    answer: str
    sections: Sequence[Section]
    also: Sequence[str] = ()
    warnings: Sequence[Warned] = ()
    failures: Sequence[str] = ()
    name: str = "report"
    question: str = ""
    facts: Sequence[tuple[str, str]] = ()
    use: str = ""
    extent: str = ""
    footer: str = ""
    is_command: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [p for section in self.sections for p in section.parts if isinstance(p, Figure)]
