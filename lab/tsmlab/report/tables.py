"""A table of a page: headers, rows, and what each cell is marked with."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """Text, with a mark (a class) and a longer form to be shown on pointing at it."""

    text: str
    mark: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Column:
    """`left`: text, which is set to the left; numbers go to the right."""

    header: str
    left: bool = False
    hint: str = ""


@dataclass(frozen=True)
class DataTable:
    """The first column heads its row, unless `headed` is false. heat: cells are tinted boxes."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    headed: bool = True
    marks: Sequence[str] = field(default=())
    heat: bool = False

    @property
    def marked_rows(self) -> list[tuple[str, Sequence[Cell]]]:
        """Each row with its own mark."""
        marks = list(self.marks) or [""] * len(self.rows)
        return list(zip(marks, self.rows, strict=True))


def of_texts(
    caption: str,
    heads: Sequence[str | Column],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    headed: bool = True,
) -> DataTable:
    """A table of plain texts, with so many columns of words before those of numbers."""
    columns = [
        head if isinstance(head, Column) else Column(head, left=place < left)
        for place, head in enumerate(heads)
    ]
    return DataTable(caption, columns, [[Cell(text) for text in row] for row in rows], headed)
