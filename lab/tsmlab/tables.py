"""A table as columns of cells, for a terminal and as Markdown.

Why: whatever reports a comparison needs columns that know how wide they are, to choose what fits,
and the same table for a document.
"""

import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tsmlab.machine import Machine
from tsmlab.stats import Verdict

Results = TypeVar("Results")

PIPE_WIDTH = 120
STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.UNRESOLVED: "yellow"}


@dataclass(frozen=True)
class Cell:
    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A column; `expendable` ones go where the terminal is too narrow, the highest number first. A
    header may have several lines."""

    header: str
    cells: list[Cell]
    left: bool = False
    expendable: int = 0

    @property
    def width(self) -> int:
        texts = [*self.header.splitlines(), *(cell.text for cell in self.cells)]
        return max(map(cell_len, texts), default=0)


@dataclass(frozen=True)
class Layout:
    """How tight the table is set. Compact: no versions, and signs instead of words."""

    compact: bool
    gap: int


ROOMY = Layout(compact=False, gap=2)
COMPACT = Layout(compact=True, gap=1)


def stdout_width() -> int:
    """The columns that stdout has. A pipe has no width; it gets a wide one, so that no table in a
    log is cut."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else PIPE_WIDTH


def table_width(columns: Sequence[Column], layout: Layout) -> int:
    return sum(column.width for column in columns) + layout.gap * (len(columns) - 1)


def narrowed(columns: Sequence[Column], layout: Layout, width: int) -> list[Column]:
    """Without the expendable ones, as far as it is too wide."""
    kept = list(columns)
    while table_width(kept, layout) > width and any(column.expendable for column in kept):
        kept.remove(max(kept, key=lambda column: column.expendable))
    return kept


def fitted(
    columns_in: Callable[[Layout], Sequence[Column]], width: int
) -> tuple[list[Column], Layout]:
    """The roomiest table that fits; the narrowest one where none does."""
    if table_width(roomy := list(columns_in(ROOMY)), ROOMY) <= width:
        return roomy, ROOMY
    return narrowed(columns_in(COMPACT), COMPACT, width), COMPACT


def rich_table(columns: Sequence[Column], layout: Layout) -> Table:
    table = Table(box=None, padding=(0, layout.gap, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.header),
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(cell.text, style=cell.style) for cell in cells))
    return table


def plain_text(columns: Sequence[Column], layout: Layout = ROOMY) -> str:
    """The table without colours, as wide as it is."""
    sheet = Sheet(table_width(columns, layout))
    sheet.table(columns, layout)
    return sheet.text


class Sheet:
    """A report that is being written: lines and tables. It becomes text, and is not printed: rich
    would end the process where the reader of a pipe has gone away, and there is more to do then."""

    def __init__(self, width: int, colours: bool = False) -> None:
        self.width = width
        self.colours = colours
        self._file = io.StringIO()
        self._console = Console(
            file=self._file, width=width, force_terminal=colours, highlight=False
        )

    def say(self, *lines: str | Text, style: str = "", **how: Any) -> None:
        """Lines as long as they are, unless rich is told how else to print them."""
        for line in lines:
            text = Text(line, style=style) if isinstance(line, str) else line
            self._console.print(text, **(how or {"soft_wrap": True}))

    def gap(self) -> None:
        self._console.print()

    def table(
        self, columns: Sequence[Column], layout: Layout = ROOMY, may_be_cut: bool = False
    ) -> None:
        """As wide as it is: a wrapped line can be read, a cut one cannot."""
        if not may_be_cut:
            self._console.width = max(self.width, table_width(columns, layout))
        self._console.print(rich_table(columns, layout))
        self._console.width = self.width

    @property
    def text(self) -> str:
        return self._file.getvalue()


def for_stdout(report: Callable[[Results, int, bool], str], results: Results) -> str:
    """A report, as wide and as colourful as stdout allows."""
    return report(results, stdout_width(), sys.stdout.isatty())


def markdown_table(columns: Sequence[Column]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [_markdown_line([" ".join(column.header.splitlines()) for column in columns])]
    lines.append("|" + "|".join(" :-- " if c.left else " --: " for c in columns) + "|")
    table = zip(*(column.cells for column in columns), strict=True)
    return lines + [_markdown_line([cell.text for cell in cells]) for cells in table]


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def measured_on(machine: Machine, created: str) -> str:
    """The sentence that says where and when, for documents. `created` is ISO 8601."""
    facts = [machine.cpu, f"{machine.usable_cores} cores", machine.system, machine.kernel]
    return f"Measured on {', '.join(fact for fact in facts if fact)}; {created}."
