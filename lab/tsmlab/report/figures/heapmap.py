"""The heap as a picture: its blocks in the order of addresses, in rows of equal length.

Why: fragmentation is a shape. An area of the picture is as many bytes as it is large, so that used,
cached and free blocks can be compared by eye; a thin strip below each row tells the heaps apart.
Refuses to: draw a block larger than it is. Blocks too small to be seen are drawn together with
their neighbours, as mixed, and still add up to their bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from tsmlab.experiments.causes import used_share
from tsmlab.experiments.model import HeapMap
from tsmlab.report.figures.canvas import Figure, Panel, render
from tsmlab.report.tables import DataTable
from tsmlab.report.theme import HUES, STATES
from tsmlab.wording import quantity, share

# The picture in units of a figure: rows of blocks, each with a strip for its owners below.
WIDTH = 420.0
ROW, STRIP, GAP = 11.0, 2.5, 2.5
MOST_ROWS, LEAST_ROWS = 28, 4
BYTES_PER_ROW = 16 * 1024
# Pieces in one picture: more would cost more of the page than can be seen.
MOST_PIECES = 250
STATE_NAMES = ("used", "mixed", "cached", "free")


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of one state and owner; used: how many of them are in use."""

    start: int
    bytes: int
    state: str
    owner: int
    used: float
    blocks: int


@dataclass(frozen=True)
class Summary:
    """Sums over the picture, in bytes. largest_free: the longest row of free bytes."""

    total: int
    by_state: dict[str, int]
    used: float
    blocks: int
    largest_free: int
    chunks: int
    left_out: int


def pieces_of(heap: HeapMap) -> list[Piece]:
    """The heap's blocks in address order, one chunk after another without the room between."""
    pieces, place = [], 0
    for chunk in sorted(heap.chunks, key=lambda c: c.address):
        for block in chunk.blocks:
            if block.bytes <= 0:
                continue
            used = used_share(block) * block.bytes
            pieces.append(
                Piece(place, block.bytes, block.state, block.owner, used, max(1, block.count))
            )
            place += block.bytes
    return pieces


def summary_of(heap: HeapMap) -> Summary:
    pieces = pieces_of(heap)
    by_state = dict.fromkeys(STATE_NAMES, 0)
    for piece in pieces:
        by_state[piece.state] += piece.bytes
    free = [b.bytes // max(1, b.count) for c in heap.chunks for b in c.blocks if b.state == "free"]
    return Summary(
        total=sum(by_state.values()),
        by_state=by_state,
        used=sum(piece.used for piece in pieces),
        blocks=sum(piece.blocks for piece in pieces),
        largest_free=max(free, default=0),
        chunks=len(heap.chunks),
        left_out=max(0, heap.total_chunks - len(heap.chunks)),
    )


def merged(pieces: Sequence[Piece], most: int = MOST_PIECES) -> list[Piece]:
    """At most `most` pieces: neighbours that are small become one, mixed unless they are alike."""
    total = sum(piece.bytes for piece in pieces)
    if len(pieces) <= most:
        return list(pieces)
    # A piece of this size stands alone; at most half of the pieces can be as large as that.
    large = max(1, 2 * total // most)
    found: list[Piece] = []
    group: list[Piece] = []
    for piece in pieces:
        full = sum(p.bytes for p in group) >= large
        if group and (piece.bytes >= large or full):
            found.append(_joined(group))
            group = []
        if piece.bytes >= large:
            found.append(piece)
        else:
            group.append(piece)
    return [*found, _joined(group)] if group else found


def _joined(group: Sequence[Piece]) -> Piece:
    states = {piece.state for piece in group}
    weights: dict[int, int] = {}
    for piece in group:
        weights[piece.owner] = weights.get(piece.owner, 0) + piece.bytes
    return Piece(
        group[0].start,
        sum(piece.bytes for piece in group),
        states.pop() if len(states) == 1 else "mixed",
        max(weights, key=lambda owner: weights[owner]),
        sum(piece.used for piece in group),
        sum(piece.blocks for piece in group),
    )


@dataclass(frozen=True)
class Rectangle:
    """A piece, or what of it lies in one row: pixels from the left, and the row's number."""

    row: int
    left: float
    width: float
    piece: Piece


@dataclass(frozen=True)
class Grid:
    """How the bytes are wrapped: `row_bytes` in each of `rows`."""

    row_bytes: float
    rows: int

    @property
    def height(self) -> float:
        return self.rows * (ROW + STRIP + GAP) - GAP


def grid_for(total: int) -> Grid:
    """Few rows for a small heap, more for a large one, all of them full but the last."""
    wanted = min(MOST_ROWS, max(LEAST_ROWS, total // BYTES_PER_ROW))
    return Grid(max(1.0, total / wanted), wanted)


def rectangles(pieces: Sequence[Piece], grid: Grid) -> Iterator[Rectangle]:
    """Each piece, cut at the ends of the rows. Their widths add up to the bytes."""
    for piece in pieces:
        start, end = float(piece.start), float(piece.start + piece.bytes)
        while end - start > 1e-6 * grid.row_bytes:
            row = min(grid.rows - 1, int(start / grid.row_bytes + 1e-9))
            stop = min(end, (row + 1) * grid.row_bytes) if row < grid.rows - 1 else end
            scale = WIDTH / grid.row_bytes
            yield Rectangle(
                row, (start - row * grid.row_bytes) * scale, (stop - start) * scale, piece
            )
            start = stop


def figure(name: str, title: str, heap: HeapMap, table: DataTable, caption: str) -> Figure:
    """The picture of one heap."""
    known = summary_of(heap)
    grid = grid_for(known.total)
    drawn = list(rectangles(merged(pieces_of(heap)), grid))
    parts = ", ".join(
        f"{share(known.by_state[state] / known.total)} {state}"
        for state in STATE_NAMES
        if known.by_state[state]
    )
    description = (
        f"A heap of {quantity(known.total, 'bytes')} in {known.blocks:,} blocks: {parts}."
        if known.total
        else "An empty heap."
    )
    panel = Panel(grid.height + 6.0, lambda axes: _draw(axes, drawn, grid))
    return render(name, title, description, caption, table, [panel])


def _draw(axes: Axes, drawn: Sequence[Rectangle], grid: Grid) -> None:
    axes.axis("off")
    axes.set(xlim=(0.0, WIDTH), ylim=(grid.height, 0.0))
    for state in STATE_NAMES:
        parts = [(r.row, r.left, r.width) for r in drawn if r.piece.state == state]
        _lay(axes, parts, ROW / 2, ROW, STATES[state].light)
    owners = sorted({r.piece.owner for r in drawn})
    hues = list(HUES.values())[: len(owners)]
    for place, hue in enumerate(hues if len(owners) > 1 else ()):
        own = {owner for number, owner in enumerate(owners) if number % len(hues) == place}
        _lay(axes, list(_strips(drawn, own)), ROW + STRIP / 2, STRIP, hue.light)


def _lay(
    axes: Axes, parts: Sequence[tuple[int, float, float]], below: float, height: float, colour: str
) -> None:
    """Parts of rows as one path of lines that are as thick as they are high, which is shorter than
    rectangles. It is not simplified: matplotlib would leave out what is small."""
    if not parts:
        return
    ends = [(x, row * (ROW + STRIP + GAP) + below)
            for row, left, width in parts
            for x in (left, left + width)]  # fmt: skip
    path = Path(ends, [Path.MOVETO, Path.LINETO] * len(parts))
    path.should_simplify = False
    axes.add_patch(PathPatch(path, fill=False, color=colour, linewidth=height, antialiased=False))


def _strips(drawn: Sequence[Rectangle], owners: set[int]) -> Iterator[tuple[int, float, float]]:
    """What belongs to them, row by row; neighbours are one strip."""
    row, left, right = -1, 0.0, 0.0
    for r in drawn:
        if r.piece.owner not in owners:
            continue
        if r.row != row or r.left > right + 1e-6:
            if row >= 0:
                yield row, left, right - left
            row, left = r.row, r.left
        right = r.left + r.width
    if row >= 0:
        yield row, left, right - left
