"""Where words go beside what they name: labels at the ends of lines and beside points.

Why: a label where the eye is needs no legend; but labels must not lie on one another.
Refuses to: measure letters exactly. Their widths are estimated for an average sans-serif, and a
little generously, since the page's font is the reader's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The average letter's width and a line's height, as shares of the letters' size.
LETTER = 0.56
LINE = 1.25
# A place that costs no more than this (about pixels that are covered) counts as free.
FREE = 12.0


def text_width(words: str, size: float) -> float:
    return len(words) * size * LETTER


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near as possible to those wanted, in their order, `gap` apart, within the bounds.

    Where they cannot all fit, they are evenly spread over the whole range."""
    if not wanted:
        return []
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    if gap * (len(wanted) - 1) > high - low:
        gap = (high - low) / max(1, len(wanted) - 1)
    # Blocks of labels that touch: each sits at the mean of what its members want.
    blocks: list[list[int]] = [[i] for i in order]
    starts = [_start(block, wanted, gap, low, high) for block in blocks]
    changed = True
    while changed:
        changed = False
        for k in range(len(blocks) - 1):
            if starts[k] + gap * len(blocks[k]) > starts[k + 1] + 1e-9:
                blocks[k : k + 2] = [blocks[k] + blocks[k + 1]]
                starts[k : k + 2] = [_start(blocks[k], wanted, gap, low, high)]
                changed = True
                break
    places = [0.0] * len(wanted)
    for block, start in zip(blocks, starts, strict=True):
        for step, i in enumerate(block):
            places[i] = start + step * gap
    return places


def _start(
    block: Sequence[int], wanted: Sequence[float], gap: float, low: float, high: float
) -> float:
    ideal = sum(wanted[i] - step * gap for step, i in enumerate(block)) / len(block)
    return min(max(ideal, low), high - gap * (len(block) - 1))


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, wide) * max(0.0, high)


@dataclass(frozen=True)
class Place:
    """The text's middle in height, and the end that it is anchored at."""

    x: float
    y: float
    anchor: str


class Placer:
    """Places labels beside points, in pixels, y downwards, each where it covers least.

    worst: how much the worst of the required labels covers."""

    def __init__(self, bounds: Box, size: float, points: Sequence[tuple[float, float]]) -> None:
        self._bounds = bounds
        self._size = size
        self.worst = 0.0
        self._taken = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in points]

    def place(self, x: float, y: float, words: str, required: bool) -> Place | None:
        """The best place; None where there is no free one and the label is not required."""
        wide, half = text_width(words, self._size), self._size * LINE / 2
        best: tuple[float, Place, Box] | None = None
        for number, (dx, dy, anchor) in enumerate(_CANDIDATES):
            px, py = x + dx, y + dy
            left = {"left": px, "right": px - wide, "center": px - wide / 2}[anchor]
            box = Box(left, py - half, left + wide, py + half)
            cost = sum(box.overlap(other) for other in self._taken) + self._outside(box) * 4
            cost += number * 0.5
            if best is None or cost < best[0]:
                best = (cost, Place(px, py, anchor), box)
        assert best is not None
        cost, place, box = best
        self.worst = max(self.worst, cost if required else 0.0)
        if cost > FREE and not required:
            return None
        self._taken.append(box)
        return place

    def _outside(self, box: Box) -> float:
        bounds = self._bounds
        return sum(
            max(0.0, excess) * self._size
            for excess in (
                bounds.left - box.left,
                box.right - bounds.right,
                bounds.top - box.top,
                box.bottom - bounds.bottom,
            )
        )


_CANDIDATES = (
    (9.0, 0.0, "left"),
    (-9.0, 0.0, "right"),
    (0.0, -13.0, "center"),
    (0.0, 13.0, "center"),
    (8.0, -11.0, "left"),
    (8.0, 11.0, "left"),
    (-8.0, -11.0, "right"),
    (-8.0, 11.0, "right"),
    (10.0, -22.0, "left"),
    (10.0, 22.0, "left"),
    (-10.0, -22.0, "right"),
    (-10.0, 22.0, "right"),
)
