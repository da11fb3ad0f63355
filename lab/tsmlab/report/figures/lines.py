"""Lines over time or a parameter: memory over time, scaling, latencies.

Why: the same kind of picture serves memory curves and sweeps, so that both read alike: emphasised
lines in their colour, named above the panels, all others thin and grey behind them.
Refuses to: compute. Points, intervals and models come in as they are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from tsmlab.metrics import Unit
from tsmlab.report.figures import canvas
from tsmlab.report.figures.canvas import INK, PAPER, REST, label
from tsmlab.report.figures.scales import quantity_axis
from tsmlab.report.theme import Style


@dataclass(frozen=True)
class Line:
    """A line of points (x, y); lows and highs are 95 % intervals, or empty. stepped: y holds until
    the next point. `model`: a fitted curve, drawn thin and dotted in its allocator's colour."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: Style | None
    emphasised: bool
    lows: Sequence[float] = field(default=())
    highs: Sequence[float] = field(default=())
    marked: bool = False
    stepped: bool = False
    model: bool = False


@dataclass(frozen=True)
class Scale:
    """An axis. names: where the values are words, at 0, 1, 2, ..."""

    title: str
    unit: Unit
    log: bool = False
    names: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]


def through(
    points: Sequence[Sequence[float]], name: str, style: Style | None, strong: bool, **kind: Any
) -> Line:
    """A line through points, `stepped` or a `model`."""
    return Line(name, [x for x, _ in points], [y for _, y in points], style, strong, **kind)


def panels(parts: Sequence[Panel], x: Scale, y: Scale, shared: bool = True) -> list[canvas.Panel]:
    """All panels, on `shared` scales or each on its own, below the names of their lines; lower ones
    where many are."""
    height = {1: 290.0, 2: 240.0, 3: 240.0}.get(len(parts), 200.0)

    def drawing(panel: Panel) -> canvas.Panel:
        scaled = parts if shared else [panel]
        return canvas.Panel(height, lambda axes: _draw(axes, panel, scaled, x, y))

    handles = {
        "others" if line.style and not line.emphasised else line.name: Line2D([], [], **_look(line))
        for panel in parts
        for line in panel.lines
        if not line.model
    }
    for name, handle in handles.items():
        handle.set_label(name)
    named = [handle for name, handle in handles.items() if name != "others"]
    named += [handles["others"]] if "others" in handles else []
    return [*([canvas.legend(named)] if len(named) > 1 else []), *map(drawing, parts)]


def _draw(axes: Axes, panel: Panel, parts: Sequence[Panel], x: Scale, y: Scale) -> None:
    _scales(axes, [line for each in parts for line in each.lines], x, y)
    title = f"{label(panel.title, 54)}\n" if panel.title else ""
    axes.set_title(f"{title}↑ {label(y.title, 54)}")
    axes.set_xlabel(f"{label(x.title, 54)} →")
    axes.grid(axis="x", visible=False)
    for line in panel.lines:
        look = _look(line)
        level = 1.8 if line.model else 3.0 if line.emphasised else 1.5
        if line.emphasised and line.lows:
            axes.vlines(line.xs, line.lows, line.highs, color=look["color"], linewidth=1.4)
        style = "steps-post" if line.stepped else "default"
        (drawn,) = axes.plot(line.xs, line.ys, **look, drawstyle=style, zorder=level)
        if not line.emphasised:
            canvas.tip(drawn, line.name)


def _look(line: Line) -> dict[str, Any]:
    strong = line.style if line.emphasised else None
    colour = strong.colour if strong else INK if line.style is None else REST
    dash = strong.dash if strong else (1.2, 2.0) if line.style is None else None
    dash = (1.0, 2.4) if line.model else dash
    return {
        "color": colour,
        "linewidth": 1.3 if line.model else 2.0 if line.emphasised else 1.0,
        "linestyle": "-" if dash is None else (0, dash),
        "marker": strong.marker if strong and line.marked else None,
        "markersize": 5.5,
        "markerfacecolor": PAPER,
        "markeredgewidth": 1.4,
    }


def _scales(axes: Axes, lines: Sequence[Line], x: Scale, y: Scale) -> None:
    xs = [value for line in lines for value in line.xs]
    ys = [value for line in lines for value in (*line.ys, *line.highs)]
    if x.names:
        axes.set_xticks(range(len(x.names)), [label(name, 12) for name in x.names])
        axes.set_xlim(-0.3, len(x.names) - 0.7)
    else:
        near_zero = min(xs, default=0.0) <= 0.5 * max(xs, default=1.0)
        quantity_axis(axes.xaxis, xs, x.unit, x.log, zero=near_zero)
    quantity_axis(axes.yaxis, ys, y.unit, y.log, zero=True)
    axes.xaxis.set_minor_locator(NullLocator())
