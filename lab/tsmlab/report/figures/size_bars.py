"""Bars over sizes, and below them what each allocator would waste on them.

Why: waste matters where the bytes are; so both share one axis of sizes, in octaves.
Refuses to: smooth. Each bar, and each step of a line, is one bucket.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsmlab.report.figures import canvas
from tsmlab.report.figures.scales import tick_words
from tsmlab.report.theme import STATES, Style
from tsmlab.wording import share

MOST_TICKS = 7


@dataclass(frozen=True)
class Bar:
    """Sizes above `lower`, up to `upper`. part: its share of all bytes."""

    lower: int
    upper: int
    part: float


@dataclass(frozen=True)
class WasteLine:
    """An allocator's waste in each of the bars, as shares of its blocks."""

    name: str
    wastes: Sequence[float]
    style: Style


def panels(bars: Sequence[Bar], lines: Sequence[WasteLine], what: str) -> list[canvas.Panel]:
    edges = [_edges(bar) for bar in bars]
    lefts, widths = [low for low, _ in edges], [high - low for low, high in edges]

    def draw_bars(axes: Axes) -> None:
        parts = [bar.part for bar in bars]
        axes.bar(lefts, parts, widths, align="edge", color=STATES["used"].light, linewidth=0)
        _scales(axes, edges, max(parts))
        axes.set_title(f"↑ {what}")

    def draw_lines(axes: Axes) -> None:
        xs = [x for low, high in edges for x in (low, high, math.nan)]
        # Where lines coincide, the first is seen.
        for line in reversed(lines):
            ys = [y for waste in line.wastes for y in (waste, waste, math.nan)]
            axes.plot(xs, ys, color=line.style.colour, linewidth=2.0)
        _scales(axes, edges, max(max(line.wastes) for line in lines))
        axes.set_title("↑ predicted waste")

    if not lines:
        return [canvas.Panel(200.0, draw_bars)]
    handles = [Line2D([], [], color=line.style.colour, linewidth=2.0, label=line.name)
               for line in lines]  # fmt: skip
    return [canvas.Panel(200.0, draw_bars), canvas.legend(handles), canvas.Panel(220.0, draw_lines)]


def _edges(bar: Bar) -> tuple[float, float]:
    """Its ends in octaves; a bar for 0 bytes stands left of that for 1."""
    low = math.log2(bar.lower) if bar.lower > 0 else -1.0
    high = math.log2(bar.upper) if bar.upper > 0 else -1.0
    return (low, high) if high > low else (high - 1.0, high)


def _scales(axes: Axes, edges: Sequence[tuple[float, float]], highest: float) -> None:
    low, high = min(low for low, _ in edges), max(high for _, high in edges)
    axes.set(xlim=(low - 0.1, high + 0.1), ylim=(0.0, max(highest, 0.001) * 1.06))
    every = max(1, math.ceil((high - low) / MOST_TICKS))
    ticks = [k for k in range(max(0, math.ceil(low)), math.floor(high) + 1) if k % every == 0]
    axes.set_xticks(ticks, [tick_words(float(2**k), "bytes") for k in ticks])
    axes.set_xlabel("size →")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda part, _: share(part) if part else "0"))
