"""Lines over time or a parameter, named at their right ends: memory over time, scaling.

Why: the same kind of picture serves memory curves and sweeps, so that both read alike: emphasised
lines in their colour with a name at the end, all others thin and grey behind them.
Refuses to: compute. Points, intervals and models come in as they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tsmlab.metrics import Unit
from tsmlab.report.figures.canvas import INK, SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.labels import LETTER, Box, Placer, spread, text_width
from tsmlab.report.figures.scales import from_zero, named_ticks, quantity_axis
from tsmlab.report.text import shortened
from tsmlab.report.theme import PAGE_PAPER, REST_COLOUR, Style
from tsmlab.wording import quantity

LEFT, HEAD, FOOT = 56.0, 42.0, 42.0
MAX_NAME = 18
# Lines that end this near to the edge (as a share of the axes) are named in the margin.
AT_EDGE = 0.12
POINTS_OF_A_LINE = 40
# A label that would cover more than this (in square pixels) sends all of them to the margin.
CROWDED = 60.0


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


def drawing(panels: Sequence[Panel], x: Scale, y: Scale, height: float = 330.0) -> Drawing:
    """Panels share both scales: two in a row on a wide page, else one below the other."""

    def draw(form: Format) -> Canvas:
        across = 1 if form.narrow else min(2, len(panels))
        down = -(-len(panels) // across)
        plot = height - HEAD - FOOT
        canvas = Canvas(form, height * down)
        part = form.width / across
        right = min(_room(panels, form), 0.34 * part)
        for number, panel in enumerate(panels):
            left, top = part * (number % across), height * (number // across)
            axes = canvas.axes(left + LEFT, top + HEAD, part - LEFT - right, plot)
            _scales(axes, panels, x, y, 4 if form.narrow or across > 1 else 7)
            for line in panel.lines:
                _draw_line(canvas, axes, line, y)
            _ends(canvas, axes, panel, left + part - right)
            _titles(canvas, panel, x, y, left, top, part - right, height)
        return canvas

    return draw


def _titles(
    canvas: Canvas,
    panel: Panel,
    x: Scale,
    y: Scale,
    left: float,
    top: float,
    width: float,
    height: float,
) -> None:
    title = f"{panel.title}   " if panel.title else ""
    if title:
        fitting = int(width / (canvas.form.size * LETTER * 1.1))
        canvas.text(left + 6, top + 10, shortened(title, fitting), fontweight="semibold")
    canvas.text(left + 6, top + (27 if title else 20), f"↑ {y.title}", color=SOFT)
    canvas.text(left + width, top + height - 10, f"{x.title} →", ha="right", color=SOFT)


def _room(panels: Sequence[Panel], form: Format) -> float:
    names = [line.name for panel in panels for line in panel.lines if _is_named(line)]
    longest = max((len(shortened(name, MAX_NAME)) for name in names), default=0)
    return text_width("m" * longest, form.size) + 18.0


def _is_named(line: Line) -> bool:
    return line.emphasised and not line.model and len(line.xs) > 0


def _scales(axes: Axes, panels: Sequence[Panel], x: Scale, y: Scale, ticks: int) -> None:
    lines = [line for panel in panels for line in panel.lines]
    xs = [value for line in lines for value in line.xs]
    ys = [value for line in lines for value in (*line.ys, *line.highs)]
    if x.names:
        named_ticks(axes, "x", range(len(x.names)), [shortened(n, 12) for n in x.names])
        axes.set_xlim(-0.3, len(x.names) - 0.7)
    elif x.log:
        quantity_axis(axes, "x", xs, x.unit, ticks, log=True)
    else:
        low, high = min(xs, default=0.0), max(xs, default=1.0)
        if low > 0.5 * high:
            quantity_axis(axes, "x", xs, x.unit, ticks, log=False)
        else:
            from_zero(axes, "x", high, x.unit, ticks)
    if y.log:
        quantity_axis(axes, "y", ys, y.unit, 6, log=True)
    else:
        from_zero(axes, "y", max(ys, default=1.0), y.unit, 6)


def _draw_line(canvas: Canvas, axes: Axes, line: Line, y: Scale) -> None:
    strong = line.emphasised and line.style is not None
    colour = line.style.colour if strong and line.style else REST_COLOUR
    dash = line.style.dash if strong and line.style else None
    if line.style is None and line.emphasised:
        colour, dash = INK, (1.2, 2.0)
    if line.model:
        dash = (1.0, 2.4)
    bounds = (line.lows, line.highs) if len(line.lows) == len(line.xs) else ((), ())
    if line.lows and strong:
        axes.vlines(line.xs, *bounds, color=colour, linewidth=1.4, zorder=2)
    level = 1.8 if line.model else 3.0 if line.emphasised else 1.5
    (drawn,) = axes.plot(
        line.xs,
        line.ys,
        color=colour,
        linewidth=1.3 if line.model else 2.0 if line.emphasised else 0.9,
        linestyle="-" if dash is None else (0, dash),
        drawstyle="steps-post" if line.stepped else "default",
        marker=line.style.marker if line.marked and strong and line.style else None,
        markersize=5.5,
        markerfacecolor=PAGE_PAPER,
        markeredgewidth=1.4,
        zorder=level,
    )
    if len(line.ys):
        last = f"{quantity(line.ys[-1], y.unit)} at the end"
        canvas.tip(drawn, f"{line.name}: highest {quantity(max(line.ys), y.unit)}, {last}")


def _ends(canvas: Canvas, axes: Axes, panel: Panel, edge: float) -> None:
    """The names: beside the ends of their lines; in the margin where all lines reach it, or where
    the ends are crowded."""
    named = [line for line in panel.lines if _is_named(line)]
    if not named:
        return
    high, box = canvas.height, axes.get_window_extent()
    ends = [axes.transData.transform((line.xs[-1], line.ys[-1])) for line in named]
    places = [(float(x), high - float(y)) for x, y in ends]
    if all(edge - x < AT_EDGE * (box.x1 - box.x0) for x, _ in places):
        _in_margin(canvas, named, places, edge, (high - box.y1, high - box.y0))
        return
    obstacles = [
        (float(x), high - float(y))
        for line in panel.lines
        for x, y in axes.transData.transform(_some_points(line))
    ]
    bounds = Box(box.x0, high - box.y1 - 12, canvas.form.width, high - box.y0)
    placer = Placer(bounds, canvas.form.size, [*places, *obstacles])
    words = [shortened(line.name, MAX_NAME) for line in named]
    found = [placer.place(x, y, w, True) for (x, y), w in zip(places, words, strict=True)]
    if placer.worst > CROWDED:
        _in_margin(canvas, named, places, edge, (high - box.y1, high - box.y0))
        return
    for line, place, word in zip(named, found, words, strict=True):
        assert place is not None
        colour = line.style.colour if line.style else INK
        canvas.text(place.x, place.y, word, ha=place.anchor, color=colour, fontweight="semibold")


def _some_points(line: Line) -> list[tuple[float, float]]:
    """Enough of a line's points to tell where it runs."""
    step = max(1, len(line.xs) // POINTS_OF_A_LINE)
    return list(zip(line.xs[::step], line.ys[::step], strict=True))


def _in_margin(
    canvas: Canvas,
    named: Sequence[Line],
    ends: Sequence[tuple[float, float]],
    edge: float,
    bounds: tuple[float, float],
) -> None:
    """Beside the axes, moved apart where they would touch, with thin lines to where they belong."""
    places = spread([y for _, y in ends], canvas.form.size * 1.25, *bounds)
    for line, (x, y), place in zip(named, ends, places, strict=True):
        colour = line.style.colour if line.style else INK
        if abs(place - y) > 3 or edge - x > 12:
            _leader(canvas, (x + 4, y), (edge + 4, place), colour)
        words = shortened(line.name, MAX_NAME)
        canvas.text(edge + 7, place, words, color=colour, fontweight="semibold")


def _leader(
    canvas: Canvas, start: tuple[float, float], end: tuple[float, float], colour: str
) -> None:
    """A thin line from the end of a line to its name."""
    wide, high = canvas.form.width, canvas.height
    xs = [start[0] / wide, end[0] / wide]
    ys = [1 - start[1] / high, 1 - end[1] / high]
    canvas.sheet.add_artist(Line2D(xs, ys, color=colour, linewidth=0.6, alpha=0.7))
