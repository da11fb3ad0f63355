"""The forest plot: a row for each allocator, its ratio as a point, its 95 % interval as a line.

Why: whether two allocators differ is seen at once: by whether their intervals keep apart, and from
which side of 1 they do.
Refuses to: rank. The rows come in the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from tsmlab.report.figures.canvas import BAND, INK, SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.scales import ratio_axis
from tsmlab.report.text import shortened, with_minus
from tsmlab.report.theme import PAGE_PAPER, REST_COLOUR, Style
from tsmlab.wording import change, three_digits

ROW = 21.0
HEAD = 44.0
FOOT = 30.0


@dataclass(frozen=True)
class Ratio:
    """One row of one panel. `resolved`: a verdict was reached, so the point is filled."""

    name: str
    ratio: float
    low: float | None
    high: float | None
    resolved: bool
    words: str


@dataclass(frozen=True)
class Panel:
    """One quantity. `band`: the ratios within which a difference does not count."""

    title: str
    better: str
    worse: str
    ratios: Sequence[Ratio]
    band: tuple[float, float] | None


@dataclass(frozen=True)
class Rows:
    """Who has a row, from the top; who of them stands out; and what 1 is.

    plain: ratios are shown as numbers, not as changes."""

    names: Sequence[str]
    emphasised: frozenset[str]
    reference: str
    styles: Mapping[str, Style]
    plain: bool = False


def drawing(rows: Rows, panels: Sequence[Panel]) -> Drawing:
    """Panels side by side on a wide page, one below the other on a narrow one."""

    def draw(form: Format) -> Canvas:
        plot = len(rows.names) * ROW
        label, value = (112.0, 62.0) if not form.narrow else (98.0, 54.0)
        across = len(panels) if not form.narrow else 1
        down = 1 if not form.narrow else len(panels)
        part = HEAD + plot + FOOT
        canvas = Canvas(form, part * down + (18.0 * (down - 1)))
        gap = 26.0
        width = (form.width - label - (value + gap) * across + gap) / across
        for number, panel in enumerate(panels):
            column, line = (0, number) if form.narrow else (number, 0)
            left = label + column * (width + value + gap)
            top = HEAD + line * (part + 18.0)
            axes = canvas.axes(left, top, width, plot)
            _draw_panel(canvas, axes, rows, panel, 5 if not form.narrow else 4)
            canvas.text(
                left, top - 32, panel.title, fontweight="semibold", fontsize=form.size + 0.5
            )
            _directions(canvas, axes, panel, left, top, width)
            if column == 0:
                _names(canvas, rows, label, top)
            _values(canvas, rows, panel, left + width + 8, top)
        return canvas

    return draw


def _draw_panel(canvas: Canvas, axes: Axes, rows: Rows, panel: Panel, ticks: int) -> None:
    ends = [
        end
        for ratio in panel.ratios
        for end in (ratio.ratio, ratio.low, ratio.high)
        if end is not None
    ]
    ratio_axis(axes, [*ends, *(panel.band or ())], ticks, rows.plain)
    axes.set_ylim(len(rows.names) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    if panel.band:
        axes.axvspan(*panel.band, color=BAND, linewidth=0, zorder=0.5)
    axes.axvline(1.0, color=SOFT, linewidth=1.2, zorder=1)
    places = {name: place for place, name in enumerate(rows.names)}
    for ratio in panel.ratios:
        _draw_ratio(canvas, axes, rows, ratio, places[ratio.name])


def _draw_ratio(canvas: Canvas, axes: Axes, rows: Rows, ratio: Ratio, place: int) -> None:
    strong = ratio.name in rows.emphasised
    style = rows.styles[ratio.name]
    colour = style.colour if strong else REST_COLOUR
    if ratio.low is not None and ratio.high is not None:
        axes.plot([ratio.low, ratio.high], [place, place], color=colour, linewidth=2.2, zorder=2)
    (point,) = axes.plot(
        [ratio.ratio],
        [place],
        marker=style.marker,
        markersize=7.0 if strong else 5.5,
        markerfacecolor=colour if ratio.resolved else PAGE_PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        linestyle="none",
        zorder=3,
    )
    canvas.tip(point, f"{ratio.name}: {ratio.words}")


def _directions(
    canvas: Canvas, axes: Axes, panel: Panel, left: float, top: float, width: float
) -> None:
    """Which side is the good one, where there is room for the words."""
    size = canvas.form.size - 1
    one = axes.transData.transform((1.0, 0.0))[0]
    for room, x, align, words in (
        (one - left, one - 6, "right", f"← {panel.better}"),
        (left + width - one, one + 6, "left", f"{panel.worse} →"),
    ):
        if room > 6.2 * len(words):
            canvas.text(x, top - 11, words, ha=align, color=SOFT, fontsize=size)


def _names(canvas: Canvas, rows: Rows, right: float, top: float) -> None:
    for place, name in enumerate(rows.names):
        strong = name in rows.emphasised
        colour = rows.styles[name].colour if strong else SOFT
        canvas.text(
            right - 10,
            top + (place + 0.5) * ROW,
            shortened(name, 17),
            ha="right",
            color=colour,
            fontweight="semibold" if strong else "normal",
        )


def _values(canvas: Canvas, rows: Rows, panel: Panel, left: float, top: float) -> None:
    by_name = {ratio.name: ratio for ratio in panel.ratios}
    for place, name in enumerate(rows.names):
        y = top + (place + 0.5) * ROW
        if name in by_name:
            ratio = by_name[name]
            strong = name in rows.emphasised
            words = three_digits(ratio.ratio) if rows.plain else with_minus(change(ratio.ratio))
            canvas.text(left, y, words, color=INK if strong else SOFT)
        elif name == rows.reference:
            canvas.text(left, y, "is 1", color=SOFT)
