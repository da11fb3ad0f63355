"""Time against memory: a point for each allocator, and the front that no other beats in both.

Why: the fastest and the smallest are seldom the same; the front shows what each gain costs.
Refuses to: compute the front. It is the analysis's, drawn as a line of steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tsmlab.metrics import MetricSpec
from tsmlab.report.figures import canvas
from tsmlab.report.figures.canvas import BAND, PAPER, SOFT
from tsmlab.report.figures.scales import quantity_axis
from tsmlab.report.theme import Style


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    on_front: bool
    style: Style


def panels(points: Sequence[Point], x: MetricSpec, y: MetricSpec) -> list[canvas.Panel]:
    """The points' names, then the points: those on the front are filled."""

    def draw(axes: Axes) -> None:
        quantity_axis(axes.xaxis, [p.x for p in points], x.unit)
        quantity_axis(axes.yaxis, [p.y for p in points], y.unit)
        _front(axes, points, y.higher_is_better)
        for point in points:
            axes.plot([point.x], [point.y], **_look(point))
        better = "higher" if y.higher_is_better else "lower"
        axes.set_title(f"↑ {y.name}   (best: {better} left)")
        axes.set_xlabel(f"{x.name} →")

    handles = [Line2D([], [], label=point.name, **_look(point)) for point in points]
    return [canvas.legend(handles), canvas.Panel(330.0, draw)]


def _look(point: Point) -> dict[str, Any]:
    return {
        "marker": point.style.marker,
        "markersize": 9.0 if point.on_front else 6.5,
        "markerfacecolor": point.style.colour if point.on_front else PAPER,
        "markeredgecolor": point.style.colour,
        "markeredgewidth": 1.6,
        "linestyle": "none",
        "zorder": 4 if point.on_front else 3,
    }


def _front(axes: Axes, points: Sequence[Point], upwards: bool) -> None:
    """Steps through the points of the front, and the region in which everybody is beaten."""
    front = sorted((p for p in points if p.on_front), key=lambda p: p.x)
    if not front:
        return
    xs = [*(point.x for point in front), axes.get_xlim()[1]]
    ys = [*(point.y for point in front), front[-1].y]
    far = axes.get_ylim()[0 if upwards else 1]
    axes.fill_between(xs, ys, far, step="post", color=BAND, linewidth=0, zorder=0.6)
    axes.step(
        [xs[0], *xs], [far, *ys], where="post", color=SOFT, linewidth=1.2, linestyle=(0, (4, 3))
    )
