"""The figures of a comparison, from its results.

Why: here it is decided what each figure shows and what stands out in it; how it is drawn is told
beside this file, and every number comes from the analysis or from a sample.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tsmlab.allocators import ENGINE
from tsmlab.metrics import PEAK_MEMORY, TIME, MetricSpec
from tsmlab.render import ranked_rows
from tsmlab.report import series
from tsmlab.report.figures import canvas, lines, ratios, runs
from tsmlab.report.figures.canvas import BAND, PAPER, SOFT, Figure, render
from tsmlab.report.figures.scales import ratio_axis
from tsmlab.report.tables import Column, DataTable, of_texts
from tsmlab.report.theme import Style, styles_for
from tsmlab.results import Comparison, Row
from tsmlab.stats import Verdict
from tsmlab.wording import change, quantity, rounds

# Up to so many allocators, each has its colour; of more, only those that matter most.
ALL_IN_COLOUR = 8


@dataclass(frozen=True)
class Look:
    """How allocators are drawn, and which stand out, in all figures of one report."""

    styles: Mapping[str, Style]
    emphasised: frozenset[str]

    def line(self, points: Sequence[Sequence[float]], name: str, **kind: Any) -> lines.Line:
        """An allocator's line through points."""
        return lines.through(points, name, self.styles[name], name in self.emphasised, **kind)

    def strong(self, names: Sequence[str]) -> list[str]:
        """Those of them that stand out."""
        return [name for name in names if name in self.emphasised]


def look_of(comparison: Comparison) -> Look:
    names = [info.name for info in comparison.allocators]
    styles = styles_for(names)
    if len(names) <= ALL_IN_COLOUR:
        return Look(styles, frozenset(names))
    analysis = comparison.analysis
    wanted = [ENGINE, comparison.reference, analysis.recommended or comparison.reference]
    wanted += [leaders.best for leaders in analysis.leaders.values()]
    wanted += [info.name for info in comparison.allocators if info.family == "user"]
    wanted += [info.name for info in comparison.allocators if info.family != "tsmalloc"]
    wanted += [row.allocator for row in analysis.rows]
    known = [name for name in dict.fromkeys(wanted) if name in styles]
    return Look(styles, frozenset(known[:ALL_IN_COLOUR]))


def figures(comparison: Comparison, look: Look) -> Iterator[Figure]:
    """All figures that the results have data for; of the runs of a sweep together, only their
    ratios mean something."""
    if any(row.rank is not None for row in comparison.analysis.rows):
        whole = (time_against_memory, memory_over_time, run_order, distribution)
        makers = (forest, *(() if comparison.points else whole))
        for make in makers:
            if (figure := make(comparison, look)) is not None:
                yield figure


# --- ratios ---------------------------------------------------------------------------------------


def forest_panels(comparison: Comparison) -> list[ratios.Panel]:
    """A panel for each judged metric, the ranking one first."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    others = [s for s in comparison.metrics if s.judged and s.key != primary.key]
    return [_panel(comparison, spec) for spec in (primary, *others)]


def _panel(comparison: Comparison, spec: MetricSpec) -> ratios.Panel:
    found = []
    for row in ranked_rows(comparison):
        summary = row.metrics.get(spec.key)
        if summary is None or summary.ratio is None:
            continue
        resolved = summary.verdict is not Verdict.UNRESOLVED
        found.append(ratios.Ratio.of(row.allocator, summary.ratio, resolved))
    floor = comparison.analysis.noise_floors.get(spec.key)
    reach = 1.0 + max(comparison.settings.margin, floor or 0.0)
    good, bad = {TIME: ("faster", "slower"), PEAK_MEMORY: ("smaller", "larger")}.get(
        spec.key, ("worse", "better") if spec.higher_is_better else ("better", "worse")
    )
    title = f"{spec.name[:1].upper()}{spec.name[1:]} against {comparison.reference}"
    return ratios.Panel(title, good, bad, found, (1.0 / reach, reach))


def forest(comparison: Comparison, look: Look) -> Figure | None:
    panels = forest_panels(comparison)
    rows = ranked_rows(comparison)
    if not any(panel.ratios for panel in panels):
        return None
    names = [row.allocator for row in rows]
    subject = ratios.Rows(names, look.emphasised, comparison.reference, look.styles)
    specs = [s for s in comparison.metrics if s.judged]
    specs.sort(key=lambda s: s.key != comparison.analysis.primary_metric)
    heads = ["allocator"]
    for spec in specs:
        heads += [f"{spec.name}, ratio", "95 % interval", "p adjusted"]
    cells = [[row.allocator, *(t for s in specs for t in _ratio_texts(row, s))] for row in rows]
    best = rows[0].allocator
    return render(
        "ratios",
        f"Ratios to {comparison.reference}, with 95 % intervals",
        f"A row for each of {len(names)} allocators, best first ({best}), with its ratio to "
        f"{comparison.reference} in {' and in '.join(s.name for s in specs)}.",
        f"Points are geometric means over {rounds(comparison.analysis.rounds)}, lines their 95 % "
        "intervals; a hollow point is unresolved. Within the shaded band a difference does not "
        "count: it is smaller than the margin, or than the noise floor.",
        of_texts("Ratios, as drawn", heads, cells),
        ratios.panels(subject, panels),
    )


def _ratio_texts(row: Row, spec: MetricSpec) -> list[str]:
    summary = row.metrics.get(spec.key)
    if summary is None or summary.ratio is None:
        return ["", "", ""]
    estimate = summary.ratio
    interval = "none"
    if estimate.low is not None and estimate.high is not None:
        interval = f"{estimate.low:.4f} to {estimate.high:.4f}"
    adjusted = "" if summary.p_adjusted is None else f"{summary.p_adjusted:.2g}"
    return [f"{estimate.ratio:.4f}", interval, adjusted]


# --- time against memory --------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    on_front: bool
    style: Style


def front_panels(points: Sequence[Point], x: MetricSpec, y: MetricSpec) -> list[canvas.Panel]:
    """The points' names, then the points, as ratios to the reference, by which the front is
    judged: those on it are filled."""

    def draw(axes: Axes) -> None:
        ratio_axis(axes.xaxis, [p.x for p in points])
        ratio_axis(axes.yaxis, [p.y for p in points])
        _front(axes, points, y.higher_is_better)
        for point in points:
            axes.plot([point.x], [point.y], **_point_look(point))
        better = "higher" if y.higher_is_better else "lower"
        axes.set_title(f"↑ {y.name}   (best: {better} left)")
        axes.set_xlabel(f"{x.name} →")

    handles = [Line2D([], [], label=point.name, **_point_look(point)) for point in points]
    return [canvas.legend(handles), canvas.Panel(330.0, draw)]


def _point_look(point: Point) -> dict[str, Any]:
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
    """Steps through the points of the front, and the region in which each is beaten."""
    front = sorted((p for p in points if p.on_front), key=lambda p: p.x)
    if not front:
        return
    best = max if upwards else min  # a point that is behind another by less than the margin
    steps = list(itertools.accumulate((point.y for point in front), best))
    xs = [*(point.x for point in front), axes.get_xlim()[1]]
    ys = [*steps, steps[-1]]
    far = axes.get_ylim()[0 if upwards else 1]
    axes.fill_between(xs, ys, far, step="post", color=BAND, linewidth=0, zorder=0.6)
    axes.step(
        [xs[0], *xs], [far, *ys], where="post", color=SOFT, linewidth=1.2, linestyle=(0, (4, 3))
    )


def front_points(comparison: Comparison, look: Look) -> list[Point]:
    """The ratios of memory and of the primary metric to the reference, of those that have both."""
    found = []
    for row in ranked_rows(comparison):
        x, y = (
            _ratio(row, key, comparison.reference)
            for key in (PEAK_MEMORY, comparison.analysis.primary_metric)
        )
        if x is not None and y is not None:
            found.append(Point(row.allocator, x, y, row.pareto, look.styles[row.allocator]))
    return found


def _ratio(row: Row, key: str, reference: str) -> float | None:
    summary = row.metrics.get(key)
    if row.allocator == reference:
        return 1.0 if summary else None
    return summary.ratio.ratio if summary and summary.ratio else None


def time_against_memory(comparison: Comparison, look: Look) -> Figure | None:
    points = front_points(comparison, look)
    if len(points) < 2:
        return None
    primary = comparison.metric(comparison.analysis.primary_metric)
    memory = comparison.metric(PEAK_MEMORY)
    front = [p.name for p in points if p.on_front]
    cells = [[p.name, change(p.y), change(p.x), "yes" if p.on_front else ""] for p in points]
    heads = ("allocator", primary.name, memory.name, Column("on the front", left=True))
    return render(
        "tradeoff",
        f"{primary.name[:1].upper()}{primary.name[1:]} against memory",
        f"Ratios of {len(points)} allocators. On the Pareto front: {', '.join(front)}.",
        f"Ratios to {comparison.reference}, as in the table. Filled points lie on the Pareto "
        "front: no other allocator is better in both by more than the margin. A point in the "
        "shaded region is beaten in both by one of them.",
        of_texts(f"Ratios to {comparison.reference}, as drawn", heads, cells),
        front_panels(points, memory, primary),
    )


# --- memory over time -----------------------------------------------------------------------------


def memory_lines(comparison: Comparison, look: Look) -> list[lines.Line]:
    """A curve for each allocator whose typical run was sampled."""
    found = []
    for row in ranked_rows(comparison):
        sample = series.typical_run(comparison, row.allocator, TIME)
        if sample is None:
            continue
        found.append(look.line(series.thinned(series.of_sample(sample)), row.allocator))
    return found


def memory_over_time(comparison: Comparison, look: Look) -> Figure | None:
    curves = memory_lines(comparison, look)
    if not curves:
        return None
    grey = "" if len(curves) <= len(look.emphasised) else " All others are grey."
    return render(
        "memory",
        "Memory over time",
        f"Resident memory of one run under each of {len(curves)} allocators.",
        "Resident memory of the whole process tree in one run of each allocator: the one whose "
        f"time is nearest to its median.{grey}",
        memory_table("Memory of the runs shown", curves),
        lines.panels(
            [lines.Panel("", curves)],
            lines.Scale("time since the start", "seconds"),
            lines.Scale("resident memory", "bytes"),
        ),
    )


def memory_table(caption: str, curves: Sequence[lines.Line]) -> DataTable:
    """The numbers of curves of memory over time."""
    cells = []
    for curve in curves:
        points = list(zip(curve.xs, curve.ys, strict=True))
        sizes = (max(curve.ys), series.mean_bytes(points), curve.ys[-1])
        duration = quantity(curve.xs[-1], "seconds")
        cells.append([curve.name, duration, *(quantity(size, "bytes") for size in sizes)])
    return of_texts(caption, ("allocator", "run", "highest", "mean over time", "at the end"), cells)


# --- runs -----------------------------------------------------------------------------------------


def measured_runs(comparison: Comparison, spec: MetricSpec) -> list[runs.Run]:
    """All measured runs that did not fail, in the order in which they were made."""
    medians = {
        row.allocator: row.metrics[spec.key].median
        for row in comparison.analysis.rows
        if spec.key in row.metrics
    }
    measured = [s for s in comparison.samples if s.phase == "measured"]
    found = []
    for number, sample in enumerate(measured, start=1):
        value = sample.values.get(spec.key)
        if sample.failure is None and value is not None and medians.get(sample.allocator):
            relative = value / medians[sample.allocator]
            found.append(runs.Run(number, sample.round, sample.allocator, value, relative))
    return found


def run_order(comparison: Comparison, look: Look) -> Figure | None:
    spec = comparison.metric(TIME)
    measured = measured_runs(comparison, spec)
    if len(measured) < 2:
        return None
    middles = runs.round_medians(measured)
    span = runs.shown_span(measured)
    outside = sum(abs(run.relative - 1.0) > span for run in measured)
    edge = f" {outside} lie outside and are drawn at the edge, as triangles." if outside else ""
    numbers = sorted({run.round for run in measured})
    cells = [
        [str(number), f"{deviation * 100:+.2f} %", str(sum(r.round == number for r in measured))]
        for number, (_, deviation) in zip(numbers, middles, strict=True)
    ]
    strong = look.strong([row.allocator for row in comparison.analysis.rows])
    return render(
        "run-order",
        "The runs in their order",
        f"The times of {len(measured)} runs as deviations from the median of their allocator.",
        "Each point is a run, against the median of its own allocator; the line joins the medians "
        "of the rounds. A slope or a step in it is drift of the machine, which pairing takes out "
        f"of the ratios.{edge}",
        of_texts("Each round against all", ("round", "median deviation", "runs"), cells, left=0),
        runs.order_panels(measured, strong, look.styles, "slower"),
    )


def distribution(comparison: Comparison, look: Look) -> Figure | None:
    spec = comparison.metric(comparison.analysis.primary_metric)
    measured = measured_runs(comparison, spec)
    rows = [row for row in ranked_rows(comparison) if spec.key in row.metrics]
    if len(measured) < 2:
        return None
    names = [row.allocator for row in rows]
    heads = ("allocator", "runs", "lowest", "median", "highest", "MAD")
    cells = []
    for row in rows:
        summary = row.metrics[spec.key]
        values = (summary.minimum, summary.median, summary.maximum, summary.mad)
        odd = ", ".join(map(str, summary.outlier_rounds))
        texts = [quantity(value, spec.unit) for value in values]
        cells.append([row.allocator, str(summary.runs), *texts, odd])
    return render(
        "distribution",
        f"Each run's {spec.name}",
        f"A row for each of {len(names)} allocators with a mark for every run and its median.",
        "Every run that did not fail, outliers included; the bar is the median. Two clouds in one "
        "row mean two states of the program or of the machine.",
        of_texts(
            f"Distribution of {spec.name}", (*heads, Column("outlier rounds", left=True)), cells
        ),
        runs.distribution_panels(
            [run for run in measured if run.name in names],
            names,
            look.strong(names),
            look.styles,
            {row.allocator: row.metrics[spec.key].median for row in rows},
            spec.unit,
            spec.name,
        ),
    )
