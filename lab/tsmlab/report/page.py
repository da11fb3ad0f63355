"""The model of a page: its contents in order. html.py writes it.

A page has a title, the answer as one sentence, warnings, and sections of figures and of the blocks
that a terminal's report consists of. All text is plain, and escaped when the page is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tsmlab.report.theme import Style
from tsmlab.results import ResultWarning
from tsmlab.tables import Block, Cell, Column, columns_of
from tsmlab.text import slug

Spec = dict[str, Any]


def table_of(
    caption: str,
    headers: Sequence[str | Column],
    rows: Sequence[Sequence[str | Cell]],
    left: int = 1,
) -> Block:
    return Block(caption, table=columns_of(headers, rows, left))


@dataclass(frozen=True)
class Figure:
    """Vega-Lite panels, one below the other, with the same numbers as a table. charts.py makes the
    usual ones. Colours in a panel are the page's variables, as in `var(--blue)`. series: the
    legend's entries; each toggles everything with its name in the field `series`."""

    name: str
    title: str
    caption: str
    panels: Sequence[Spec]
    table: Block
    series: Mapping[str, Style] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A heading and its parts; a string is HTML. folded: closed until clicked."""

    title: str
    parts: Sequence[Block | Figure | str]
    folded: bool = False
    anchor: str = ""

    @property
    def id(self) -> str:
        return self.anchor or slug(self.title, "section")


@dataclass(frozen=True)
class Page:
    """One page. name: of its folder and its data file. answer: the first sentence, the
    recommendation if there is one. also: further answers. facts: other findings, by label. use: the
    command that applies the recommendation. files: to write next to the page, by name. script: runs
    on the page, besides that of the figures."""

    kind: str
    title: str
    answer: str
    sections: Sequence[Section]
    also: Sequence[str] = ()
    warnings: Sequence[ResultWarning] = ()
    failures: Sequence[str] = ()
    name: str = "report"
    question: str = ""
    facts: Sequence[tuple[str, str]] = ()
    use: str = ""
    extent: str = ""
    footer: str = ""
    is_command: bool = False
    script: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [p for section in self.sections for p in section.parts if isinstance(p, Figure)]
