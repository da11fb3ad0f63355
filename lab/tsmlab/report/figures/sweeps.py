"""The figures that an experiment's file asks for: lines over a parameter, bars at its points.

Why: a student who writes an experiment names a metric and a parameter, and gets a figure that reads
like all others.
Refuses to: compute. Medians and intervals are the analysis's, models come with its findings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from tsmlab.experiments.model import CellSummary, Definition, Experiment, PlotRequest, Point
from tsmlab.report.figures import canvas, lines
from tsmlab.report.figures.canvas import INK, REST, label
from tsmlab.report.figures.of_comparison import Look
from tsmlab.report.figures.scales import quantity_axis
from tsmlab.wording import quantity

ROW, HEAD = 21.0, 66.0
# More panels than this make a figure too long to look at.
MOST_PANELS = 8
# How far an interval may reach, in longest bars.
LONGEST_INTERVAL = 2.0
# Panels whose longest bar is less than this share of another's have scales of their own.
OWN_SCALE_BELOW = 0.1


# The points of one panel: its title, and their indices in the order of the parameter on the x axis.
Group = tuple[str, list[int]]


def groups_of(experiment: Experiment, plot: PlotRequest) -> list[Group]:
    """A panel for each combination of the parameters that are not on the x axis. Where that would
    be too many, those that no panel was asked for stay at their last values (held())."""
    found = _combinations(experiment, plot, {})
    if len(found) > MOST_PANELS:
        found = _combinations(experiment, plot, held(experiment, plot))
    return found[:MOST_PANELS]


def held(experiment: Experiment, plot: PlotRequest) -> Point:
    """What stays at its last value in a figure that would else have too many panels."""
    if len(_combinations(experiment, plot, {})) <= MOST_PANELS:
        return {}
    last = experiment.points[-1]
    return {name: last[name] for name in last if name not in (_x(plot), plot.panels)}


def _x(plot: PlotRequest) -> str | None:
    return plot.x if plot.kind == "lines" else None


def _combinations(experiment: Experiment, plot: PlotRequest, fixed: Point) -> list[Group]:
    found: dict[str, list[int]] = {}
    for index, point in enumerate(experiment.points):
        if any(point[name] != value for name, value in fixed.items()):
            continue
        shown = {k: v for k, v in point.items() if k != _x(plot) and k not in fixed}
        found.setdefault(describe(shown, experiment.definition), []).append(index)
    return list(found.items())


def summaries_of(experiment: Experiment, metric: str) -> dict[tuple[int, str], CellSummary]:
    """By point and allocator."""
    if experiment.analysis is None:
        return {}
    return {(s.point, s.allocator): s for s in experiment.analysis.summaries if s.metric == metric}


def line_panels(
    experiment: Experiment, plot: PlotRequest, look: Look
) -> tuple[list[lines.Panel], lines.Scale]:
    """The lines of each panel, with the fitted models where there is one panel; and the x axis."""
    assert plot.x is not None
    known = summaries_of(experiment, plot.metric)
    values = [point[plot.x] for point in experiment.points]
    places, scale = _x_axis(experiment, plot, values)
    groups = groups_of(experiment, plot)
    panels = []
    for title, points in groups:
        drawn = [
            line
            for name in experiment.allocators
            if (line := _line(name, points, known, places, look))
        ]
        if len(groups) == 1:
            drawn += _models(experiment, plot, look)
        panels.append(lines.Panel(title, drawn))
    return [panel for panel in panels if panel.lines], scale


def _x_axis(
    experiment: Experiment, plot: PlotRequest, values: Sequence[Any]
) -> tuple[list[float], lines.Scale]:
    """Where each point lies; words get places in their order."""
    title = next((p.title for p in experiment.definition.parameters if p.name == plot.x), "")
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        numbers = [float(v) for v in values]
        positive = min(numbers, default=1.0) > 0
        return numbers, lines.Scale(title, "number", plot.log_x and positive)
    words = list(dict.fromkeys(map(str, values)))
    places = [float(words.index(str(v))) for v in values]
    return places, lines.Scale(title, "number", False, words)


def _line(
    name: str,
    points: Sequence[int],
    known: Mapping[tuple[int, str], CellSummary],
    places: Sequence[float],
    look: Look,
) -> lines.Line | None:
    found = [(places[p], known[p, name]) for p in points if (p, name) in known]
    found.sort(key=lambda pair: pair[0])
    if not found:
        return None
    return lines.Line(
        name,
        [x for x, _ in found],
        [s.median for _, s in found],
        look.styles[name],
        name in look.emphasised,
        [s.median if s.low is None else s.low for _, s in found],
        [s.median if s.high is None else s.high for _, s in found],
        marked=True,
    )


def _models(experiment: Experiment, plot: PlotRequest, look: Look) -> list[lines.Line]:
    findings = experiment.analysis.findings if experiment.analysis else []
    return [
        lines.through(curve.points, curve.label, look.styles[curve.allocator], True, model=True)
        for finding in findings
        for curve in finding.curves
        if curve.metric == plot.metric and curve.allocator in look.emphasised and curve.points
    ]


# --- bars -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BarPanel:
    title: str
    bars: Sequence[CellSummary]


def bar_panels(experiment: Experiment, plot: PlotRequest) -> list[BarPanel]:
    """A panel for each point, the allocators in the same order in all: the best one's first."""
    known = summaries_of(experiment, plot.metric)
    higher = experiment.definition.metric(plot.metric).higher_is_better
    order = sorted(
        experiment.allocators,
        key=lambda name: _standing(known, name, len(experiment.points), higher),
    )
    panels = [
        BarPanel(title, bars)
        for title, points in groups_of(experiment, plot)
        for point in points
        if (bars := [known[point, name] for name in order if (point, name) in known])
    ]
    return panels[:MOST_PANELS]


def _standing(
    known: Mapping[tuple[int, str], CellSummary], name: str, points: int, higher: bool
) -> tuple[int, float]:
    own = [known[p, name].median for p in range(points) if (p, name) in known]
    mean = sum(own) / len(own) if own else 0.0
    return -len(own), -mean if higher else mean


def bars_drawn(panels: Sequence[BarPanel], y: lines.Scale, look: Look) -> list[canvas.Panel]:
    """Bars; or points, which need no zero, where the axis is logarithmic."""

    def drawing(panel: BarPanel) -> canvas.Panel:
        height = HEAD + len(panel.bars) * ROW
        return canvas.Panel(height, lambda axes: _draw(axes, panel, panels, y, look))

    return [drawing(panel) for panel in panels]


def _like(panel: BarPanel, panels: Sequence[BarPanel]) -> list[CellSummary]:
    """The bars that share a panel's scale: all, or its own where panels are too unlike for one."""
    longest = [max(bar.median for bar in each.bars) for each in panels]
    shared = [panel] if min(longest) < OWN_SCALE_BELOW * max(longest) else panels
    return [bar for each in shared for bar in each.bars]


def _farthest(bars: Sequence[CellSummary]) -> float:
    """An interval of few rounds may be many times as long as any bar: it ends there then."""
    return LONGEST_INTERVAL * max(bar.median for bar in bars)


def cut(panels: Sequence[BarPanel]) -> bool:
    """Whether an interval ends at the edge of the figure."""
    return any(
        bar.high is not None and bar.high > _farthest(_like(panel, panels))
        for panel in panels
        for bar in panel.bars
    )


def _draw(
    axes: Axes,
    panel: BarPanel,
    panels: Sequence[BarPanel],
    y: lines.Scale,
    look: Look,
) -> None:
    shared = _like(panel, panels)
    most = _farthest(shared)
    values = [bar.median for bar in shared]
    dots = y.log and min(values) > 0
    ends = [min(bar.high or bar.median, most) for bar in shared]
    quantity_axis(axes.xaxis, [*values, *ends], y.unit, dots, zero=True)
    names = [bar.allocator for bar in panel.bars]
    strong = {name: look.styles[name] for name in look.strong(names)}
    canvas.name_rows(axes, names, [quantity(bar.median, y.unit) for bar in panel.bars], strong)
    for place, bar in enumerate(panel.bars):
        colour = strong[bar.allocator].colour if bar.allocator in strong else REST
        if dots:
            marker = look.styles[bar.allocator].marker
            axes.plot([bar.median], [place], marker=marker, color=colour, linestyle="none")
        else:
            axes.barh([place], [bar.median], height=0.62, color=colour)
    spans = [(place, max(bar.low, axes.get_xlim()[0]), min(bar.high, most))
             for place, bar in enumerate(panel.bars)
             if bar.low is not None and bar.high is not None]  # fmt: skip
    if spans:
        axes.hlines(*zip(*spans, strict=True), color=INK, linewidth=1.5, zorder=4)
    if panel.title:
        axes.set_title(label(panel.title, 54))
    axes.set_xlabel(f"{label(y.title, 54)} →")


def describe(point: Point, definition: Definition) -> str:
    """threads 4, fit best; empty where nothing is swept."""
    titles = {parameter.name: parameter.title for parameter in definition.parameters}
    return ", ".join(f"{titles.get(name, name)} {value}" for name, value in point.items())


def heading(point: Point) -> str:
    """4, best: the values alone, for the head of a column; swept() says what they are."""
    return ", ".join(map(str, point.values()))


def swept(definition: Definition) -> str:
    """, by threads and fit: what the values of heading() are; empty where nothing is swept."""
    titles = [parameter.title for parameter in definition.parameters]
    return f", by {' and '.join(titles)}" if titles else ""
