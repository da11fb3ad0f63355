"""Each single run: in the order in which they were made, and as each allocator's distribution.

Why: a median hides drift, two groups and outliers; these two pictures show all runs there are.
Refuses to: drop a run. One far outside is drawn at the edge, as a triangle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tsmlab.metrics import Unit
from tsmlab.report.figures.canvas import INK, SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.scales import named_ticks, quantity_axis
from tsmlab.report.text import shortened
from tsmlab.report.theme import REST_COLOUR, Style

LEFT, RIGHT, HEAD, FOOT = 56.0, 12.0, 30.0, 42.0
ROW = 19.0
# The strip shows at least this much to each side, and most of the runs.
LEAST_SPAN = 0.03
SHOWN_SHARE = 0.97


@dataclass(frozen=True)
class Run:
    """One run: which it was, its value, and that value over the allocator's median."""

    number: int
    round: int
    name: str
    value: float
    relative: float


def order_drawing(
    runs: Sequence[Run], emphasised: Sequence[str], styles: Mapping[str, Style], higher: str
) -> Drawing:
    """Deviations from each allocator's own median, in the order of the runs; a line joins the
    medians of the rounds."""

    def draw(form: Format) -> Canvas:
        height = 270.0
        canvas = Canvas(form, height)
        axes = canvas.axes(LEFT, HEAD, form.width - LEFT - RIGHT, height - HEAD - FOOT)
        span = shown_span(runs)
        axes.set_ylim(-span * 1.08, span * 1.08)
        axes.set_xlim(0, max(run.number for run in runs) + 1)
        _percent_ticks(axes, span)
        axes.axhline(0.0, color=SOFT, linewidth=1.0, zorder=1)
        strong = [*emphasised]
        _scatter(axes, [r for r in runs if r.name not in strong], span, "o", REST_COLOUR, 3.2)
        for name in strong:
            own = [r for r in runs if r.name == name]
            _scatter(axes, own, span, styles[name].marker, styles[name].colour, 4.6)
        middles = round_medians(runs)
        xs = [x for x, _ in middles]
        ys = [float(np.clip(y, -span, span)) for _, y in middles]
        (line,) = axes.plot(xs, ys, color=INK, linewidth=1.8, zorder=4)
        canvas.tip(line, "the median of each round's deviations")
        axes.xaxis.set_major_locator(_whole(6 if not form.narrow else 4))
        canvas.text(8, 11, f"↑ {higher} than the allocator's own median", color=SOFT)
        canvas.text(form.width - RIGHT, height - 10, "run →", ha="right", color=SOFT)
        return canvas

    return draw


def shown_span(runs: Sequence[Run]) -> float:
    """How far from 0 the strip reaches: to nearly all runs, the rest at the edge."""
    deviations = [abs(run.relative - 1.0) for run in runs]
    if not deviations:
        return LEAST_SPAN
    return max(LEAST_SPAN, float(np.quantile(deviations, SHOWN_SHARE)) * 1.15)


def round_medians(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """For each round the middle of its runs' numbers and the median of their deviations."""
    rounds = sorted({run.round for run in runs})
    own = {number: [run for run in runs if run.round == number] for number in rounds}
    return [
        (
            float(np.mean([run.number for run in own[number]])),
            float(np.median([run.relative - 1.0 for run in own[number]])),
        )
        for number in rounds
    ]


def distribution_drawing(
    runs: Sequence[Run],
    names: Sequence[str],
    emphasised: Sequence[str],
    styles: Mapping[str, Style],
    medians: Mapping[str, float],
    unit: Unit,
    title: str,
) -> Drawing:
    """A row for each allocator, a mark for each run, a bar at the median."""

    def draw(form: Format) -> Canvas:
        label = 112.0 if not form.narrow else 98.0
        height = 14.0 + len(names) * ROW + FOOT
        canvas = Canvas(form, height)
        width = form.width - label - RIGHT
        axes = canvas.axes(label, 14.0, width, len(names) * ROW)
        values = [run.value for run in runs]
        quantity_axis(axes, "x", values, unit, 7 if not form.narrow else 4)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        for place, name in enumerate(names):
            strong = name in emphasised
            colour = styles[name].colour if strong else REST_COLOUR
            own = [run for run in runs if run.name == name]
            axes.plot(
                [run.value for run in own],
                [place + _jitter(k) for k in range(len(own))],
                linestyle="none",
                marker=styles[name].marker if strong else "o",
                markersize=4.2 if strong else 3.4,
                color=colour,
                alpha=0.62,
                markeredgewidth=0,
                zorder=2,
            )
            middle = medians[name]
            axes.plot(
                [middle, middle], [place - 0.38, place + 0.38], color=INK, linewidth=2, zorder=3
            )
            canvas.text(
                label - 10,
                14.0 + (place + 0.5) * ROW,
                shortened(name, 17),
                ha="right",
                color=colour if strong else SOFT,
                fontweight="semibold" if strong else "normal",
            )
        canvas.text(form.width - RIGHT, height - 10, f"{title} →", ha="right", color=SOFT)
        return canvas

    return draw


def _jitter(number: int) -> float:
    """Up and down a little, always the same: runs of one value stay countable."""
    return ((number * 5) % 7 - 3) * 0.075


def _scatter(
    axes: Axes, runs: Sequence[Run], span: float, marker: str, colour: str, size: float
) -> None:
    inside = [r for r in runs if abs(r.relative - 1.0) <= span]
    kinds = (
        (inside, marker),
        ([r for r in runs if r.relative - 1.0 > span], "^"),
        ([r for r in runs if r.relative - 1.0 < -span], "v"),
    )
    for chosen, shape in kinds:
        if chosen:
            axes.plot(
                [r.number for r in chosen],
                [float(np.clip(r.relative - 1.0, -span, span)) for r in chosen],
                linestyle="none",
                marker=shape,
                markersize=size,
                color=colour,
                alpha=0.75,
                markeredgewidth=0,
                zorder=2 if colour == REST_COLOUR else 3,
            )


def _percent_ticks(axes: Axes, span: float) -> None:
    step = next(
        s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1e4) if span / s <= 3.6
    )
    count = int(span * 1.08 / step)
    places = [k * step for k in range(-count, count + 1)]
    named_ticks(axes, "y", places, ["0" if p == 0 else f"{p * 100:+.0f} %" for p in places])


def _whole(most: int) -> MaxNLocator:
    return MaxNLocator(nbins=most, integer=True)
