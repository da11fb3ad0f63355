"""The model of a page: what every verb says, in which order. html.py writes it.

A page has a title, the answer as one sentence, warnings, and sections of parts: texts, tables,
figures, command lines, or a widget with a script of its own. All text is plain: whatever it holds
is escaped when the page is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tsmlab.report.tables import DataTable
from tsmlab.text import slug

Spec = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """An entry of a figure's legend, which hides and shows what has this name in the field
    `series`. colour: a name of theme.py; sign: the mark that it is drawn with; strength: of the
    colour."""

    name: str
    colour: str
    sign: str = "●"
    strength: float = 1.0


@dataclass(frozen=True)
class Figure:
    """Panels of Vega-Lite below one another, with the same numbers as a table. charts.py makes the
    usual ones. Colours in a panel are the page's variables, as in `var(--blue)`."""

    name: str
    title: str
    caption: str
    panels: Sequence[Spec]
    table: DataTable
    series: Sequence[Series] = ()
    zooms: bool = True


@dataclass(frozen=True)
class Text:
    """A paragraph; a note is set smaller."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Code:
    """A command line. label: what a screen reader says of it."""

    text: str
    label: str


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Widget:
    """Something drawn by a script of our own. markup, style and script are trusted, so nothing from
    elsewhere may be in them: that goes into data, which the script finds as JSON in the element
    whose id is the name."""

    name: str
    markup: str
    style: str
    script: str
    data: Any


Part = DataTable | Figure | Text | Code | Terms | Widget


@dataclass(frozen=True)
class Section:
    """A heading and its parts. wide: as wide as the window. folded: closed until asked for."""

    title: str
    parts: Sequence[Part]
    folded: bool = False
    wide: bool = False
    anchor: str = ""

    @property
    def id(self) -> str:
        return self.anchor or slug(self.title, "section")

    @property
    def tables(self) -> list[DataTable]:
        return [part for part in self.parts if isinstance(part, DataTable)]


@dataclass(frozen=True)
class Warned:
    """A warning: one line, which opens to its cause and its remedy."""

    line: str
    more: str = ""


@dataclass(frozen=True)
class Data:
    """The results as plain values, to be embedded as far as the page stays small. thin: drops what
    is largest from a copy of them."""

    values: Mapping[str, Any]
    thin: Callable[[dict[str, Any]], None] = lambda _: None


@dataclass(frozen=True)
class Page:
    """One page. name: of its folder and its data's file. answer: the first sentence, the
    recommendation if there is one. facts: what else is found, by label. use: the command that puts
    the recommendation to use. files: what is written beside the page, by name."""

    kind: str
    title: str
    answer: str
    sections: Sequence[Section]
    warnings: Sequence[Warned] = ()
    failures: Sequence[str] = ()
    name: str = "report"
    window_title: str = ""
    question: str = ""
    facts: Sequence[tuple[str, str]] = ()
    use: str = ""
    extent: str = ""
    footer: str = ""
    is_command: bool = False
    data: Data | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self._parts() if isinstance(part, Figure)]

    @property
    def widgets(self) -> list[Widget]:
        return [part for part in self._parts() if isinstance(part, Widget)]

    def _parts(self) -> Iterator[Part]:
        return itertools.chain.from_iterable(section.parts for section in self.sections)


def figure_sections(figures: Sequence[Figure]) -> list[Section]:
    """A section for each figure, so that the contents name it."""
    return [Section(figure.title, [figure], anchor=f"s-{figure.name}") for figure in figures]
