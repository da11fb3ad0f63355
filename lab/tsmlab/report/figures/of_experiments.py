"""The figures of one experiment, from its results.

Why: here it is decided which figures an experiment has, and what stands out in them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tsmlab.allocators import ENGINE
from tsmlab.experiments.model import Cell, CellSummary, Curve, Experiment, HeapMap, PlotRequest
from tsmlab.metrics import Unit
from tsmlab.report import series
from tsmlab.report.figures import heapmap, lines, sweeps
from tsmlab.report.figures.canvas import Figure, render
from tsmlab.report.figures.of_comparison import ALL_IN_COLOUR, Look, memory_table
from tsmlab.report.tables import DataTable, of_texts
from tsmlab.report.theme import Style
from tsmlab.text import slug
from tsmlab.wording import counted, quantity, share

# The heap maps shown of one experiment.
MOST_MAPS = 4


@dataclass(frozen=True)
class Subject(Look):
    """One experiment, and how its allocators are drawn."""

    experiment: Experiment
    anchor: str


def subject_of(experiment: Experiment, styles: Mapping[str, Style]) -> Subject:
    names = experiment.allocators
    wanted = list(names) if len(names) <= ALL_IN_COLOUR else _wanted(experiment)
    known = [name for name in dict.fromkeys(wanted) if name in names][:ALL_IN_COLOUR]
    anchor = f"x-{slug(experiment.definition.name, 'experiment')}"
    return Subject(styles, frozenset(known), experiment, anchor)


def _wanted(experiment: Experiment) -> list[str]:
    """Of many: the engine, glibc, the pair that is asked about, the best, then the peers."""
    wanted = [ENGINE, "glibc"]
    for request in experiment.definition.analyses:
        wanted += [str(request.options[k]) for k in ("first", "second") if k in request.options]
    known = sweeps.summaries_of(experiment, experiment.definition.main_metric.name)
    last = len(experiment.points) - 1
    higher = experiment.definition.main_metric.higher_is_better
    at_end = [s for (point, _), s in known.items() if point == last]
    at_end.sort(key=lambda s: -s.median if higher else s.median)
    wanted += [s.allocator for s in (*at_end[:1], *at_end[-1:])]
    wanted += [name for name in experiment.allocators if "-" not in name]
    return wanted + [s.allocator for s in at_end]


def figures(subject: Subject) -> Iterator[Figure]:
    """Those that the file asks for, then memory over time."""
    for number, plot in enumerate(subject.experiment.definition.plots, start=1):
        figure = _plot(subject, plot, f"{subject.anchor}-{number}")
        if figure is not None:
            yield figure
    if (figure := memory(subject)) is not None:
        yield figure


def _plot(subject: Subject, plot: PlotRequest, name: str) -> Figure | None:
    metric = subject.experiment.definition.metric(plot.metric)
    table = summaries_table(subject.experiment, plot)
    title = plot.title or metric.title
    what = "Medians; the lines through the points" if metric.source == "run" else "Counted once"
    y = lines.Scale(metric.title, metric.unit, plot.log_y)
    if plot.kind == "lines" and plot.x is not None:
        parts, x = sweeps.line_panels(subject.experiment, plot, subject)
        if not parts:
            return None
        panels = lines.panels(parts, x, y)
        has_model = any(line.model for part in parts for line in part.lines)
        models = " Dotted: the fitted model." if has_model else ""
    else:
        bars = sweeps.bar_panels(subject.experiment, plot)
        if not bars:
            return None
        panels = sweeps.bars_drawn(bars, y, subject)
        models = " An interval that leaves the figure ends at its edge." if sweeps.cut(bars) else ""
        what = what.replace("the lines through the points", "the lines over the bars' ends")
    intervals = f"{what} are 95 % intervals." if metric.source == "run" else f"{what}."
    many = len(subject.experiment.allocators) > len(subject.emphasised)
    grey = " The allocators that are not named are grey." if many and plot.kind == "lines" else ""
    better = "Higher" if metric.higher_is_better else "Lower"
    return render(
        name,
        title,
        f"{metric.title} of {len(subject.experiment.allocators)} allocators at "
        f"{len(subject.experiment.points)} points.",
        f"{intervals} {better} is better.{models}{grey}{_held(subject, plot)}",
        table,
        panels,
    )


def _held(subject: Subject, plot: PlotRequest) -> str:
    fixed = sweeps.held(subject.experiment, plot)
    where = sweeps.describe(fixed, subject.experiment.definition)
    return f" Shown at {where}; all points are in the table." if fixed else ""


def summaries_table(experiment: Experiment, plot: PlotRequest) -> DataTable:
    """Every median with its interval, as drawn: a row for each allocator."""
    metric = experiment.definition.metric(plot.metric)
    known = sweeps.summaries_of(experiment, plot.metric)
    points = sorted({point for point, _ in known})
    heads = [sweeps.heading(experiment.points[p]) or metric.title for p in points]
    rows = []
    for name in experiment.allocators:
        own = [known.get((point, name)) for point in points]
        rows.append([name, *(_with_interval(s, metric.unit) if s else "-" for s in own)])
    interval = ", with 95 % intervals" if any(s.low is not None for s in known.values()) else ""
    by = sweeps.swept(experiment.definition)
    return of_texts(f"{metric.title}{by}{interval}", ["allocator", *heads], rows)


def _with_interval(summary: CellSummary, unit: Unit) -> str:
    """4.10 ms [3.95, 4.26]: the unit is told once, unless an end has another one."""
    middle = quantity(summary.median, unit)
    if summary.low is None or summary.high is None:
        return middle
    ends = [quantity(summary.low, unit), quantity(summary.high, unit)]
    shown = middle.lstrip("0123456789.")
    if shown and all(end.lstrip("0123456789.") == shown for end in ends):
        ends = [end.removesuffix(shown) for end in ends]
    return f"{middle} [{', '.join(ends)}]"


# --- memory over time -----------------------------------------------------------------------------


def memory_point(experiment: Experiment) -> int | None:
    """The point with the most curves; of several the last, where most happens."""
    counts = [
        sum(1 for cell in experiment.cells if cell.point == point and _curve(cell))
        for point in range(len(experiment.points))
    ]
    if not any(counts):
        return None
    return max(range(len(counts)), key=lambda point: (counts[point], point))


def _curve(cell: Cell) -> Curve | None:
    memory = cell.causes.memory if cell.causes else None
    return memory if memory is not None and len(memory.resident) > 1 else None


def memory_lines(subject: Subject, point: int) -> list[lines.Line]:
    """The resident memory of each allocator; then the live bytes, which are the program's own."""
    found, lives = [], []
    for name in subject.experiment.allocators:
        cell = subject.experiment.cell(point, name)
        curve = _curve(cell) if cell else None
        if curve is None:
            continue
        found.append(subject.line(series.thinned(curve.resident), name))
        if len(curve.live) > 1:
            lives.append((name, curve.live))
    if lives:
        # They differ in their times only; shown is the one of the middle length.
        lives.sort(key=lambda each: each[1][-1][0])
        _, live = lives[len(lives) // 2]
        found.append(lines.through(series.thinned(live), "live bytes", None, True))
    return found


def memory(subject: Subject) -> Figure | None:
    point = memory_point(subject.experiment)
    if point is None:
        return None
    curves = memory_lines(subject, point)
    where = sweeps.describe(subject.experiment.points[point], subject.experiment.definition)
    at = f", at {where}" if where else ""
    live = any(curve.style is None for curve in curves)
    dotted = " Dotted: the bytes that the program had requested and not yet freed." if live else ""
    return render(
        f"{subject.anchor}-memory",
        f"Memory over time{at}",
        f"Resident memory of one run under each of {len(curves) - live} allocators.",
        f"Resident memory of the whole process tree, in a run that was not timed{at}.{dotted}",
        memory_table(f"Memory of the runs shown{at}", curves),
        lines.panels(
            [lines.Panel("", curves)],
            lines.Scale("time since the start", "seconds"),
            lines.Scale("memory", "bytes"),
        ),
    )


# --- heap maps ------------------------------------------------------------------------------------


def chosen_maps(subject: Subject) -> tuple[list[tuple[Cell, HeapMap]], int]:
    """The last map of each cell at the last point that has any, and how many maps there are."""
    cells = [cell for cell in subject.experiment.cells if cell.causes and cell.causes.maps]
    count = sum(len(cell.causes.maps) for cell in cells if cell.causes)
    if not cells:
        return [], 0
    last = max(cell.point for cell in cells)
    order = subject.experiment.allocators
    shown = [cell for cell in cells if cell.point == last and cell.allocator in order]
    shown.sort(
        key=lambda cell: (cell.allocator not in subject.emphasised, order.index(cell.allocator))
    )
    return [(cell, cell.causes.maps[-1]) for cell in shown[:MOST_MAPS] if cell.causes], count


def maps(subject: Subject) -> tuple[list[Figure], str]:
    """The pictures of heaps, and a sentence on which they are."""
    chosen, count = chosen_maps(subject)
    if not chosen:
        return [], ""
    point = subject.experiment.points[chosen[0][0].point]
    where = sweeps.describe(point, subject.experiment.definition)
    labels = sorted({heap.label for _, heap in chosen if heap.label})
    when = f", {', '.join(labels)}" if labels else ""
    at = f" at {where}" if where else ""
    others = f" The results hold {count} maps in all." if count > len(chosen) else ""
    return [_map(subject, cell, heap) for cell, heap in chosen], f"Heaps{at}{when}.{others}"


def _map(subject: Subject, cell: Cell, heap: HeapMap) -> Figure:
    known = heapmap.summary_of(heap)
    whole = known.total or 1
    rows = [
        [state, quantity(size, "bytes"), share(size / whole)]
        for state, size in known.by_state.items()
        if size
    ]
    rows.append(["whole", quantity(known.total, "bytes"), share(1.0)])
    chunks = counted(known.chunks, "chunk")
    left = f" ({known.left_out} more are left out)" if known.left_out else ""
    largest = quantity(known.largest_free, "bytes")
    # Slabs, and small neighbours in a coarse map, are drawn together.
    free = f"; the largest free block drawn alone has {largest}" if known.largest_free else ""
    caption = (
        f"{quantity(known.total, 'bytes')} in {chunks}{left}, {known.blocks:,} blocks; "
        f"{share(known.used / whole)} in use{free}."
    )
    name = f"{subject.anchor}-map-{slug(cell.allocator)}"
    table = of_texts(f"The heap of {cell.allocator}", ("state", "bytes", "share"), rows)
    return heapmap.figure(name, cell.allocator, heap, table, caption)
