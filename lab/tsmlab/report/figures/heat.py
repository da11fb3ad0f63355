"""A map of two quantities: each cell as dark as it holds much.

Why: sizes and lifetimes belong together, and one colour in steps shows where the mass is, in both
themes.
Refuses to: know what is in the cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tsmlab.report.figures.canvas import SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.scales import named_ticks
from tsmlab.report.theme import HUES

LEFT, HEAD, FOOT = 52.0, 40.0, 42.0
ROW = 17.0
# The steps of the colour, each ten times the one below.
STEPS = (0.10, 0.26, 0.46, 0.70, 1.0)
LEGEND_BOX = 11.0
GAP_BEFORE_LAST = 0.35


@dataclass(frozen=True)
class Cell:
    """`share`: of the whole map. tip: what it holds."""

    column: int
    row: int
    share: float
    tip: str


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


def drawing(heat: Heat) -> Drawing:
    def draw(form: Format) -> Canvas:
        plot = max(3, len(heat.rows)) * ROW
        canvas = Canvas(form, HEAD + plot + FOOT)
        axes = canvas.axes(LEFT, HEAD, form.width - LEFT - 8, plot)
        extra = GAP_BEFORE_LAST if heat.last_apart else 0.0
        last = len(heat.columns) - 1
        axes.set_xlim(-0.5, last + extra + 0.5)
        axes.set_ylim(-0.5, len(heat.rows) - 0.5)
        axes.grid(False)
        for cell in heat.cells:
            x = cell.column + (extra if cell.column == last else 0.0)
            box = Rectangle(
                (x - 0.5, cell.row - 0.5),
                1.0,
                1.0,
                facecolor=HUES["blue"].light,
                alpha=strength(cell.share),
                linewidth=0,
            )
            axes.add_patch(box)
            canvas.tip(box, cell.tip)
        _ticks(canvas, axes, heat, extra)
        canvas.text(6, HEAD - 12, f"↑ {heat.y_title}", color=SOFT)
        canvas.text(form.width - 8, canvas.height - 10, f"{heat.x_title} →", ha="right", color=SOFT)
        _legend(canvas, form)
        return canvas

    return draw


def _ticks(canvas: Canvas, axes: Axes, heat: Heat, extra: float) -> None:
    room = (canvas.form.width - LEFT) / max(1, len(heat.columns))
    every = max(1, math.ceil(canvas.form.size * 4.2 / room))
    last = len(heat.columns) - 1
    shown = [i for i in range(0, len(heat.columns), every) if not heat.last_apart or i < last - 1]
    if heat.last_apart:
        shown.append(last)
    places = [i + (extra if i == last else 0.0) for i in shown]
    named_ticks(axes, "x", places, [heat.columns[i] for i in shown])
    rows = range(0, len(heat.rows), max(1, math.ceil(canvas.form.size * 1.25 / ROW)))
    named_ticks(axes, "y", list(rows), [heat.rows[i] for i in rows])


def _legend(canvas: Canvas, form: Format) -> None:
    """What the steps mean, in the upper right corner."""
    words = ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"]
    x, y = form.width - 8, 12.0
    canvas.text(x, y, words[-1], ha="right", color=SOFT, fontsize=form.size - 1)
    x -= 5.0 * form.size * 0.62 + LEGEND_BOX
    for alpha in reversed(STEPS):
        box = Rectangle(
            (x / form.width, 1.0 - (y + LEGEND_BOX / 2) / canvas.height),
            LEGEND_BOX / form.width,
            LEGEND_BOX / canvas.height,
            transform=canvas.sheet.transFigure,
            facecolor=HUES["blue"].light,
            alpha=alpha,
            linewidth=0,
        )
        canvas.sheet.add_artist(box)
        x -= LEGEND_BOX + 2
    canvas.text(
        x + LEGEND_BOX - 4, y, f"up to {words[0]}", ha="right", color=SOFT, fontsize=form.size - 1
    )
