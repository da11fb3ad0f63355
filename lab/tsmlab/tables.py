"""Reports as blocks of lines and tables, for a terminal and as Markdown.

A table consists of columns of cells that know their width, so that the roomiest layout that fits
can be chosen.
"""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tsmlab.machine import Machine
from tsmlab.stats import Verdict

Results = TypeVar("Results")

PIPE_WIDTH = 120
# Spaces between the columns of a table, and of one that is too wide with these.
GAP = 2
NARROW_GAP = 1
STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.UNRESOLVED: "yellow"}


@dataclass(frozen=True)
class Cell:
    """style: a colour of the terminal, or a style of pages. hint: the tooltip. short: the text in a
    compact table, if it differs."""

    text: str
    style: str = ""
    hint: str = ""
    short: str | None = None


@dataclass(frozen=True)
class Column:
    """A column; those with a drop_priority are dropped if the terminal is too narrow, the highest
    first. A header may have several lines. joined: a folded table keeps it next to the column
    before. short: the header in a compact table, if it differs; None leaves the column out
    there."""

    header: str
    cells: Sequence[Cell] = ()
    left: bool = False
    drop_priority: int = 0
    joined: bool = False
    hint: str = ""
    short: str | None = ""

    @property
    def width(self) -> int:
        texts = [*self.header.splitlines(), *(cell.text for cell in self.cells)]
        return max(map(cell_len, texts), default=0)


def columns_of(
    headers: Sequence[str | Column], rows: Sequence[Sequence[str | Cell]], left: int = 1
) -> list[Column]:
    """The columns of some rows; the first ones, this many, hold text and the others numbers."""
    named = [
        header if isinstance(header, Column) else Column(header, left=place < left)
        for place, header in enumerate(headers)
    ]
    cells = [[each if isinstance(each, Cell) else Cell(each) for each in row] for row in rows]
    return [
        replace(column, cells=[row[place] for row in cells]) for place, column in enumerate(named)
    ]


def rows_of(columns: Sequence[Column]) -> Iterator[tuple[Cell, ...]]:
    return zip(*(column.cells for column in columns), strict=True)


def stdout_width() -> int:
    """The width of stdout. A pipe has none, and gets a wide one, so that no table in a log is
    cut."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else PIPE_WIDTH


def table_width(columns: Sequence[Column], gap: int = GAP) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def narrowed(columns: Sequence[Column], gap: int, width: int) -> list[Column]:
    """Drops columns by drop_priority until it fits."""
    kept = list(columns)
    while table_width(kept, gap) > width and any(column.drop_priority for column in kept):
        kept.remove(max(kept, key=lambda column: column.drop_priority))
    return kept


def compact(columns: Sequence[Column]) -> list[Column]:
    """The same table in short forms."""
    return [
        replace(
            column,
            header=column.short or column.header,
            cells=[c if c.short is None else replace(c, text=c.short) for c in column.cells],
        )
        for column in columns
        if column.short is not None
    ]


def rich_table(columns: Sequence[Column], gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.header),
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for cells in rows_of(columns):
        table.add_row(*(Text(cell.text, style=cell.style) for cell in cells))
    return table


def plain_text(columns: Sequence[Column]) -> str:
    sheet = Sheet(table_width(columns))
    sheet.table(columns)
    return "".join(f"{line.rstrip()}\n" for line in sheet.text.splitlines())


@dataclass(frozen=True)
class Block:
    """A part of a report: a title, lines, a table with notes below it, failures, and labelled
    sentences.

    style: of the lines; "bold" ones, which are the answer, are wrapped, "dim" ones cut, and "code"
    ones are command lines on pages. short_notes: those below a compact table, if they differ. cut:
    also cut the table if it is too wide even if compact; it is folded if `folded` is set. where:
    "text" blocks are not on pages, which say it elsewhere; "document" blocks are not on terminals;
    "markdown" blocks are on neither.
    """

    title: str = ""
    lines: Sequence[str] = ()
    table: Sequence[Column] = ()
    notes: Sequence[str] = ()
    short_notes: Sequence[str] = ()
    fails: Sequence[str] = ()
    labelled: Sequence[tuple[str, str]] = ()
    style: str = ""
    cut: bool = False
    folded: bool = False
    where: Literal["everywhere", "text", "document", "markdown"] = "everywhere"


LABEL_WIDTH = 11
# Labels whose text is a command to copy.
COMMANDS = ("use it",)


def text_of(blocks: Iterable[Block], width: int, colours: bool = False) -> str:
    """A report for a terminal, or for a pipe, with the given width."""
    sheet = Sheet(width, colours)
    shown = [block for block in blocks if block.where in ("everywhere", "text")]
    for number, block in enumerate(shown):
        if number:
            sheet.gap()
        sheet.block(block)
    return sheet.text


def markdown_of(blocks: Iterable[Block]) -> list[str]:
    """The lines of the same report as Markdown."""
    lines: list[str] = []
    for block in blocks:
        items = [f"**{line}**" if block.style == "bold" else line for line in block.lines]
        items = [f"`{line}`" if line.startswith("$ ") else line for line in items]
        own = [f"**{block.title}**", ""] if block.title else []
        own += [*(f"- {line}" for line in items), ""] if items else []
        if block.table:
            own += [*markdown_table(block.table), ""]
        rest = [f"- {line.strip()}" for line in (*block.notes, *block.fails)]
        rest += [
            f"- **{label}** {f'`{text}`' if label in COMMANDS else text}"
            for label, text in block.labelled
        ]
        lines += own + ([*rest, ""] if rest else [])
    return lines


class Sheet:
    """Collects the lines and tables of a report as text. It is not printed here, because rich would
    end the process if the reader of a pipe is gone, and there is more to do then."""

    def __init__(self, width: int, colours: bool = False) -> None:
        self.width = width
        self.colours = colours
        self._file = io.StringIO()
        self._console = Console(
            file=self._file, width=width, force_terminal=colours, highlight=False
        )

    def write_lines(self, *lines: str, style: str = "", **options: Any) -> None:
        """Lines are not wrapped, unless rich is told to."""
        for line in lines:
            self._console.print(Text(line, style=style), **(options or {"soft_wrap": True}))

    def gap(self) -> None:
        self._console.print()

    def block(self, block: Block) -> None:
        print_options: dict[str, dict[str, Any]] = {
            "bold": {"soft_wrap": False},
            "dim": {"no_wrap": True, "overflow": "ellipsis"},
        }
        if block.title:
            self.write_lines(block.title, style="bold", soft_wrap=False)
        self.write_lines(*block.lines, style=block.style, **print_options.get(block.style, {}))
        notes = block.notes
        # A pipe gets the whole table at its full width.
        room = self.width if self.colours or block.cut else sys.maxsize
        if block.folded:
            for part in folded(block.table, self.width):
                self.table(part)
        elif table_width(block.table) <= room:
            self.table(block.table, may_be_cut=block.cut)
        else:
            columns = narrowed(compact(block.table), NARROW_GAP, room)
            self.table(columns, NARROW_GAP, may_be_cut=block.cut)
            notes = block.short_notes or notes
        self.write_lines(*notes, style="dim", **print_options["dim"])
        self.write_lines(*block.fails, style="red")
        indent = max([LABEL_WIDTH, *(len(label) + 2 for label, _ in block.labelled)])
        for label, text in block.labelled:
            self.write_lines(_hanging(label, text, self.width, indent))

    def table(self, columns: Sequence[Column], gap: int = GAP, may_be_cut: bool = False) -> None:
        """At full width: a wrapped line can be read, a cut one cannot."""
        if not columns:
            return
        if not may_be_cut:
            self._console.width = max(self.width, table_width(columns, gap))
        self._console.print(rich_table(columns, gap))
        self._console.width = self.width

    @property
    def text(self) -> str:
        return self._file.getvalue()


def _hanging(label: str, text: str, width: int, indent: int) -> str:
    """Wraps a sentence next to its label; a command line stays in one piece."""
    start = label.ljust(indent)
    if label in COMMANDS:
        return start + text
    return textwrap.fill(
        text,
        width=max(40, width),
        initial_indent=start,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def folded(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Splits the table into parts that are narrow enough, each with the first column again."""
    first, *others = columns
    groups: list[list[Column]] = []
    for column in others:
        groups[-1:] = [[*groups[-1], column]] if column.joined else [*groups[-1:], [column]]
    part = [first]
    for group in groups:
        if len(part) > 1 and table_width([*part, *group]) > width:
            yield part
            part = [first]
        part += group
    yield part


def for_stdout(report: Callable[[Results, int, bool], str], results: Results) -> str:
    """A report with the width and the colours that stdout allows."""
    return report(results, stdout_width(), sys.stdout.isatty())


def markdown_table(columns: Sequence[Column]) -> list[str]:
    lines = [_markdown_line([" ".join(column.header.splitlines()) for column in columns])]
    lines.append("|" + "|".join(" :-- " if c.left else " --: " for c in columns) + "|")
    return lines + [_markdown_line([cell.text for cell in cells]) for cells in rows_of(columns)]


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def measured_on(machine: Machine, created: str) -> str:
    """A sentence about where and when it was measured, for documents. `created` is ISO 8601."""
    facts = [machine.cpu, f"{machine.usable_cores} cores", machine.system, machine.kernel]
    if machine.memory_bytes:
        facts.append(f"{machine.memory_bytes / 2**30:.3g} GiB of memory")
    facts.append(f"transparent huge pages {machine.transparent_hugepages or '?'}")
    facts.append(f"load {machine.load_at_start:.2f} at the start")
    return f"Measured on {', '.join(fact for fact in facts if fact)}; {created}."
