"""Time against memory: a point for each allocator, and the front that no other beats in both.

Why: the fastest and the smallest are seldom the same; the front shows what each gain costs.
Refuses to: compute the front. It is the analysis's, drawn as a line of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from tsmlab.metrics import Unit
from tsmlab.report.figures.canvas import BAND, SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.labels import Box, Placer
from tsmlab.report.figures.scales import quantity_axis
from tsmlab.report.theme import PAGE_PAPER, REST_COLOUR, Style
from tsmlab.wording import quantity

LEFT, RIGHT, HEAD, FOOT = 58.0, 14.0, 26.0, 46.0


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    on_front: bool
    emphasised: bool
    style: Style


@dataclass(frozen=True)
class Axis:
    title: str
    unit: Unit
    higher_is_better: bool = False


def drawing(points: Sequence[Point], x: Axis, y: Axis) -> Drawing:
    def draw(form: Format) -> Canvas:
        height = 400.0 if not form.narrow else 340.0
        canvas = Canvas(form, height)
        width = form.width - LEFT - RIGHT
        axes = canvas.axes(LEFT, HEAD, width, height - HEAD - FOOT)
        ticks = 7 if not form.narrow else 4
        quantity_axis(axes, "x", [p.x for p in points], x.unit, ticks)
        quantity_axis(axes, "y", [p.y for p in points], y.unit, 6)
        _front(axes, points, y.higher_is_better)
        for point in points:
            _draw_point(canvas, axes, point, x, y)
        _labels(canvas, axes, points)
        canvas.text(LEFT + width, height - 12, f"{x.title} →", ha="right", color=SOFT)
        better = "higher" if y.higher_is_better else "lower"
        words = f"↑ {y.title}   (best: {better} left)"
        canvas.text(8, 11, words, color=SOFT)
        return canvas

    return draw


def _front(axes: Axes, points: Sequence[Point], upwards: bool) -> None:
    """Steps through the points of the front, and the region in which everybody is beaten."""
    front = sorted((p for p in points if p.on_front), key=lambda p: p.x)
    if not front:
        return
    right = axes.get_xlim()[1]
    far = axes.get_ylim()[0 if upwards else 1]
    xs, ys = [front[0].x], [far]
    for point in front:
        xs += [point.x, point.x]
        ys += [ys[-1], point.y]
    xs.append(right)
    ys.append(ys[-1])
    axes.fill([*xs, right], [*ys, far], color=BAND, linewidth=0, zorder=0.6)
    axes.plot(xs[1:], ys[1:], color=SOFT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1.5)


def _draw_point(canvas: Canvas, axes: Axes, point: Point, x: Axis, y: Axis) -> None:
    strong = point.emphasised or point.on_front
    colour = point.style.colour if strong else REST_COLOUR
    (mark,) = axes.plot(
        [point.x],
        [point.y],
        marker=point.style.marker,
        markersize=9.0 if point.on_front else 7.5 if strong else 5.5,
        markerfacecolor=colour if point.on_front or not strong else PAGE_PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.6 if strong else 0.8,
        linestyle="none",
        zorder=4 if point.on_front else 3,
    )
    front = ", on the front" if point.on_front else ""
    canvas.tip(
        mark,
        f"{point.name}: {quantity(point.y, y.unit)}, {quantity(point.x, x.unit)}{front}",
    )


def _labels(canvas: Canvas, axes: Axes, points: Sequence[Point]) -> None:
    """The front and the emphasised always, others where there is room."""
    size = canvas.form.size
    pixels: dict[str, tuple[float, float]] = {}
    for point in points:
        across, up = axes.transData.transform((point.x, point.y))
        pixels[point.name] = (float(across), canvas.height - float(up))
    bounds = Box(LEFT, HEAD - 8, canvas.form.width, canvas.height - FOOT)
    placer = Placer(bounds, size, list(pixels.values()))
    ordered = sorted(points, key=lambda p: (not p.on_front, not p.emphasised))
    for point in ordered:
        strong = point.on_front or point.emphasised
        x, y = pixels[point.name]
        place = placer.place(x, y, point.name, required=strong)
        if place is not None:
            canvas.text(
                place.x,
                place.y,
                point.name,
                ha=place.anchor,
                color=point.style.colour if strong else SOFT,
                fontweight="semibold" if point.on_front else "normal",
                fontsize=size if strong else size - 1,
            )
