"""Each single run: in the order in which they were made, and as each allocator's distribution.

Why: a median hides drift, two groups and outliers; these two pictures show all runs there are.
Refuses to: drop a run. One far outside is drawn at the edge, as a triangle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tsmlab.metrics import Unit
from tsmlab.report.figures import canvas
from tsmlab.report.figures.canvas import INK, REST, SOFT
from tsmlab.report.figures.scales import quantity_axis
from tsmlab.report.theme import Style

ROW = 21.0
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


def order_panels(
    runs: Sequence[Run], emphasised: Sequence[str], styles: Mapping[str, Style], higher: str
) -> list[canvas.Panel]:
    """Deviations from each allocator's own median, in the order of the runs; a line joins the
    medians of the rounds."""
    names = {run.name for run in runs}
    looks = {name: (styles[name].marker, styles[name].colour, 4.6) for name in emphasised}
    rest = names - looks.keys()
    handles = [_handle(name, *look) for name, look in looks.items()]
    handles += [_handle("others", "o", REST, 3.4)] if rest else []
    handles.append(Line2D([], [], color=INK, linewidth=1.8, label="rounds"))

    def draw(axes: Axes) -> None:
        span = shown_span(runs)
        axes.set_ylim(-span * 1.08, span * 1.08)
        axes.set_xlim(0, max(run.number for run in runs) + 1)
        axes.axhline(0.0, color=SOFT, linewidth=1.0, zorder=1)
        _scatter(axes, [run for run in runs if run.name in rest], span, "o", REST, 3.4)
        for name, look in looks.items():
            _scatter(axes, [run for run in runs if run.name == name], span, *look)
        xs, ys = zip(*round_medians(runs), strict=True)
        axes.plot(xs, np.clip(ys, -span, span), color=INK, linewidth=1.8, zorder=4)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_title(f"↑ {higher} than the allocator's own median")
        axes.set_xlabel("run →")

    return [canvas.legend(handles), canvas.Panel(260.0, draw)]


def _handle(name: str, marker: str, colour: str, size: float) -> Line2D:
    return Line2D(
        [],
        [],
        marker=marker,
        color=colour,
        markersize=size + 1.5,
        markeredgewidth=0,
        linestyle="none",
        label=name,
    )


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


def distribution_panels(
    runs: Sequence[Run],
    names: Sequence[str],
    emphasised: Sequence[str],
    styles: Mapping[str, Style],
    medians: Mapping[str, float],
    unit: Unit,
    title: str,
) -> list[canvas.Panel]:
    """A row for each allocator, a mark for each run, a bar at the median."""

    def draw(axes: Axes) -> None:
        quantity_axis(axes.xaxis, [run.value for run in runs], unit)
        shown = {name: styles[name] for name in emphasised}
        canvas.name_rows(axes, names, [""] * len(names), shown)
        for place, name in enumerate(names):
            own = [run.value for run in runs if run.name == name]
            axes.plot(
                own,
                [place + _jitter(number) for number in range(len(own))],
                linestyle="none",
                marker=styles[name].marker if name in shown else "o",
                markersize=4.2 if name in shown else 3.4,
                color=styles[name].colour if name in shown else REST,
                alpha=0.62,
                markeredgewidth=0,
            )
            ends = (place - 0.38, place + 0.38)
            axes.plot([medians[name]] * 2, ends, color=INK, linewidth=2, zorder=3)
        axes.set_xlabel(f"{title} →")

    return [canvas.Panel(50.0 + len(names) * ROW, draw)]


def _jitter(number: int) -> float:
    """Up and down a little, always the same: runs of one value stay countable."""
    return ((number * 5) % 7 - 3) * 0.075


def _scatter(
    axes: Axes, runs: Sequence[Run], span: float, marker: str, colour: str, size: float
) -> None:
    kinds: dict[str, list[Run]] = {marker: [], "^": [], "v": []}
    for run in runs:
        far = abs(run.relative - 1.0) > span
        kinds[("^" if run.relative > 1.0 else "v") if far else marker].append(run)
    for shape, chosen in kinds.items():
        if chosen:
            axes.plot(
                [run.number for run in chosen],
                [float(np.clip(run.relative - 1.0, -span, span)) for run in chosen],
                linestyle="none",
                marker=shape,
                markersize=size,
                color=colour,
                alpha=0.75,
                markeredgewidth=0,
                zorder=2 if colour == REST else 3,
            )
