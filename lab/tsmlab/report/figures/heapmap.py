"""The heap as a picture: its blocks in the order of addresses, in rows of equal length.

Why: fragmentation is a shape. An area of the picture is as many bytes as it is large, so that used,
cached and free blocks can be compared by eye; a thin strip below each row tells the heaps apart.
Refuses to: draw a block larger than it is. Blocks too small to be seen are drawn together with
their neighbours, as mixed, and still add up to their bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib.image
import numpy as np

from tsmlab.experiments.model import HeapMap
from tsmlab.report import svg
from tsmlab.report.figures.canvas import Figure
from tsmlab.report.tables import DataTable
from tsmlab.report.text import visible
from tsmlab.report.theme import HUES, STATES, SURFACES
from tsmlab.wording import quantity, share

# The picture in pixels: rows of blocks, each with a strip for its owners below.
WIDTH = 352.0
ROW, STRIP, GAP = 9.0, 2.0, 2.0
MOST_ROWS, LEAST_ROWS = 28, 4
BYTES_PER_ROW = 16 * 1024
# Pieces in one picture: more would cost more of the page than anybody can see.
MOST_PIECES = 300
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
    """What the picture shows, in bytes. largest_free: the longest row of free bytes."""

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
            share_used = {"used": 1.0, "mixed": block.used_share}.get(block.state, 0.0)
            used = share_used * block.bytes
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
    title = visible(title)
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
    box = f"0 0 {WIDTH:g} {max(1.0, grid.height):g}"
    page = svg.wrapped(_body(drawn, themed=True), name, title, description, box, True)
    alone = svg.wrapped(_body(drawn, themed=False), name, title, description, box, False)
    return Figure(name, title, description, caption, page, page, alone, _png(drawn, grid), table)


def _body(drawn: Sequence[Rectangle], themed: bool) -> str:
    """One path for each state and for each owner's strip: a path is shorter than rectangles."""
    paths = [(STATES[state].light, _path(drawn, state)) for state in STATE_NAMES]
    paths += [(colour, data) for colour, data in _strips(drawn)]
    return "".join(
        f'<path fill="{svg.paint(colour, themed)}" d="{data}"/>' for colour, data in paths if data
    )


def _path(drawn: Sequence[Rectangle], state: str) -> str:
    return "".join(
        f"M{_digits(r.left)} {_top(r.row):g}h{_digits(r.width)}v{ROW:g}h-{_digits(r.width)}z"
        for r in drawn
        if r.piece.state == state
    )


def _strips(drawn: Sequence[Rectangle]) -> Iterator[tuple[str, str]]:
    """Who owns what, where there is more than one owner; neighbours of one owner are one strip."""
    owners = sorted({r.piece.owner for r in drawn})
    if len(owners) < 2:
        return
    hues = list(HUES.values())
    paths: dict[str, str] = {}
    for row, left, width, owner in _owned(drawn):
        colour = hues[owners.index(owner) % len(hues)].light
        top = _top(row) + ROW
        data = f"M{_digits(left)} {top:g}h{_digits(width)}v{STRIP:g}h-{_digits(width)}z"
        paths[colour] = paths.get(colour, "") + data
    yield from paths.items()


def _owned(drawn: Sequence[Rectangle]) -> Iterator[tuple[int, float, float, int]]:
    current: list[float] = []
    key: tuple[int, int] | None = None
    for r in drawn:
        if key == (r.row, r.piece.owner):
            current[1] = r.left + r.width
            continue
        if key is not None:
            yield key[0], current[0], current[1] - current[0], key[1]
        key, current = (r.row, r.piece.owner), [r.left, r.left + r.width]
    if key is not None:
        yield key[0], current[0], current[1] - current[0], key[1]


def _top(row: int) -> float:
    return row * (ROW + STRIP + GAP)


def _digits(number: float) -> str:
    """Two digits: a hundredth of a pixel, so that what is drawn adds up."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _png(drawn: Sequence[Rectangle], grid: Grid, scale: int = 3) -> bytes:
    """The same picture in pixels."""
    high, wide = int(max(1.0, grid.height) * scale), int(WIDTH * scale)
    pixels = np.empty((high, wide, 3), dtype=np.uint8)
    pixels[:] = _rgb(SURFACES["paper"].light)
    for r in drawn:
        top, bottom = int(_top(r.row) * scale), int((_top(r.row) + ROW) * scale)
        left, right = round(r.left * scale), round((r.left + r.width) * scale)
        pixels[top:bottom, left:right] = _rgb(STATES[r.piece.state].light)
    owners = sorted({r.piece.owner for r in drawn})
    hues = list(HUES.values())
    for row, start, width, owner in _owned(drawn) if len(owners) > 1 else ():
        top = int((_top(row) + ROW) * scale)
        left, right = round(start * scale), round((start + width) * scale)
        colour = hues[owners.index(owner) % len(hues)].light
        pixels[top : top + int(STRIP * scale), left:right] = _rgb(colour)
    data = io.BytesIO()
    matplotlib.image.imsave(data, pixels, format="png", metadata={"Software": ""})
    return data.getvalue()


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
