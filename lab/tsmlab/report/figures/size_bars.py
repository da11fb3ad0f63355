"""Bars over sizes, and below them what each allocator would waste on them.

Why: waste matters where the bytes are; so both share one axis of sizes, in octaves.
Refuses to: smooth. Each bar, and each step of a line, is one bucket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tsmlab.report.figures.canvas import SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.labels import spread, text_width
from tsmlab.report.figures.scales import named_ticks
from tsmlab.report.text import shortened
from tsmlab.report.theme import STATES, Style
from tsmlab.wording import quantity, share

LEFT, HEAD, FOOT, BETWEEN = 52.0, 40.0, 42.0, 52.0
BARS, LINES = 150.0, 170.0
MAX_NAME = 16


@dataclass(frozen=True)
class Bar:
    """Sizes above `lower`, up to `upper`. part: its share of all bytes."""

    lower: int
    upper: int
    part: float
    tip: str


@dataclass(frozen=True)
class WasteLine:
    """An allocator's waste in each of the bars, as shares of its blocks."""

    name: str
    wastes: Sequence[float]
    style: Style


def drawing(bars: Sequence[Bar], lines: Sequence[WasteLine], what: str) -> Drawing:
    def draw(form: Format) -> Canvas:
        height = HEAD + BARS + (BETWEEN + LINES if lines else 0.0) + FOOT
        canvas = Canvas(form, height)
        longest = max((len(shortened(line.name, MAX_NAME)) for line in lines), default=0)
        right = text_width("m" * longest, form.size) + 12.0 if lines else 8.0
        width = form.width - LEFT - right
        upper = canvas.axes(LEFT, HEAD, width, BARS)
        _bars(canvas, upper, bars)
        canvas.text(6, HEAD - 14, f"↑ {what}", color=SOFT)
        if lines:
            top = HEAD + BARS + BETWEEN
            lower = canvas.axes(LEFT, top, width, LINES)
            _lines(canvas, lower, bars, lines, (top, LEFT + width))
            canvas.text(6, top - 14, "↑ predicted waste", color=SOFT)
        for axes in (upper, lower) if lines else (upper,):
            _size_axis(axes, bars, 4 if form.narrow else 9)
        canvas.text(LEFT + width, height - 10, "size →", ha="right", color=SOFT)
        return canvas

    return draw


def _edges(bar: Bar) -> tuple[float, float]:
    """Its ends in octaves; a bar for 0 bytes stands left of that for 1."""
    low = math.log2(bar.lower) if bar.lower > 0 else -1.0
    high = math.log2(bar.upper) if bar.upper > 0 else -1.0
    return (low, high) if high > low else (high - 1.0, high)


def _size_axis(axes: Axes, bars: Sequence[Bar], most: int) -> None:
    low = min(_edges(bar)[0] for bar in bars)
    high = max(_edges(bar)[1] for bar in bars)
    axes.set_xlim(low - 0.1, high + 0.1)
    every = max(1, math.ceil((high - low) / most))
    ticks = [k for k in range(math.ceil(low), math.floor(high) + 1) if k % every == 0 and k >= 0]
    named_ticks(axes, "x", ticks, [quantity(float(2**k), "bytes") for k in ticks])


def _bars(canvas: Canvas, axes: Axes, bars: Sequence[Bar]) -> None:
    for bar in bars:
        left, right = _edges(bar)
        box = Rectangle(
            (left, 0.0), right - left, bar.part, facecolor=STATES["used"].light, linewidth=0
        )
        axes.add_patch(box)
        canvas.tip(box, bar.tip)
    _share_axis(axes, max(bar.part for bar in bars))


def _share_axis(axes: Axes, highest: float) -> None:
    top = max(highest, 0.001) * 1.06
    axes.set_ylim(0.0, top)
    power = 10.0 ** math.floor(math.log10(top))
    step = next(f * power for f in (0.2, 0.25, 0.5, 1.0, 2.0) if top / (f * power) <= 5.0)
    ticks = [number * step for number in range(math.floor(top / step) + 1)]
    named_ticks(axes, "y", ticks, [share(tick) if tick else "0" for tick in ticks])


def _lines(
    canvas: Canvas,
    axes: Axes,
    bars: Sequence[Bar],
    lines: Sequence[WasteLine],
    corner: tuple[float, float],
) -> None:
    ends = []
    for place, line in enumerate(lines):
        xs, ys = [], []
        for bar, value in zip(bars, line.wastes, strict=True):
            xs += [*_edges(bar), math.nan]
            ys += [value, value, math.nan]
        # Where lines coincide, the first is seen.
        level = 3.0 - 0.01 * place
        (drawn,) = axes.plot(xs, ys, color=line.style.colour, linewidth=2.0, zorder=level)
        canvas.tip(drawn, f"{line.name}: {share(min(line.wastes))} to {share(max(line.wastes))}")
        ends.append(line.wastes[-1])
    highest = max(max(line.wastes) for line in lines)
    _share_axis(axes, highest)
    top, right = corner
    axes_top = axes.get_ylim()[1]
    wanted = [top + LINES * (1.0 - end / axes_top) for end in ends]
    heights = spread(wanted, canvas.form.size * 1.25, top, top + LINES - 12.0)
    for line, height in zip(lines, heights, strict=True):
        words = shortened(line.name, MAX_NAME)
        canvas.text(right + 7, height, words, color=line.style.colour, fontweight="semibold")
