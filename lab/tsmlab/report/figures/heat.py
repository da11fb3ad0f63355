"""A map of two quantities: each cell as dark as it holds much.

Why: sizes and lifetimes belong together, and one colour in steps shows where the mass is, in both
themes.
Refuses to: know what is in the cells.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from tsmlab.report.figures import canvas
from tsmlab.report.theme import HUES

ROW = 18.0
# The steps of the colour, each ten times the one below.
STEPS = (0.10, 0.26, 0.46, 0.70, 1.0)
GAP_BEFORE_LAST = 0.35
MOST_TICKS = 6


@dataclass(frozen=True)
class Cell:
    """`share`: of the whole map."""

    column: int
    row: int
    share: float


@dataclass(frozen=True)
class Heat:
    """Rows from below, columns from the left. last_apart: the last column stands apart from the
    others."""

    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Cell]
    last_apart: bool


def strength(share: float) -> float:
    """The opacity of a share: a step for each power of ten below the whole."""
    if share <= 0.0:
        return 0.0
    step = math.floor(-math.log10(share) + 1e-12)
    return STEPS[max(0, len(STEPS) - 1 - step)]


def panels(heat: Heat) -> list[canvas.Panel]:
    """What the steps mean, then the map."""
    words = ("to 0.01 %", "to 0.1 %", "to 1 %", "to 10 %", "to 100 %")
    handles = [Patch(label=w, **_look(step)) for w, step in zip(words, STEPS, strict=True)]
    extra = GAP_BEFORE_LAST if heat.last_apart else 0.0
    last = len(heat.columns) - 1

    def draw(axes: Axes) -> None:
        axes.set(xlim=(-0.5, last + extra + 0.5), ylim=(-0.5, len(heat.rows) - 0.5))
        axes.grid(visible=False)
        for cell in heat.cells:
            x = cell.column + (extra if cell.column == last else 0.0)
            axes.bar(x, 1.0, 1.0, cell.row - 0.5, **_look(strength(cell.share)))
        every = max(1, math.ceil(last / MOST_TICKS))
        # The name of a last one that stands apart needs room.
        inner = range(0, last - every if heat.last_apart else last + 1, every)
        shown = [*inner, *([last] if heat.last_apart else [])]
        places = [i + (extra if i == last else 0.0) for i in shown]
        axes.set_xticks(places, [heat.columns[i] for i in shown])
        axes.set_yticks(range(len(heat.rows)), heat.rows)
        axes.set_title(f"↑ {heat.y_title}")
        axes.set_xlabel(f"{heat.x_title} →")

    return [canvas.legend(handles), canvas.Panel(max(3, len(heat.rows)) * ROW + 60.0, draw)]


def _look(opacity: float) -> dict[str, Any]:
    return {"color": HUES["blue"].light, "alpha": opacity, "linewidth": 0}
