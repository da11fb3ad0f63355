"""The figures of a trace's analysis: live bytes over time, sizes and waste, sizes and lifetimes.

Why: what a program does with its memory is three pictures.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsmlab.report.figures import canvas, lines
from tsmlab.report.figures.canvas import Figure, render
from tsmlab.report.figures.scales import tick_words
from tsmlab.report.tables import of_texts
from tsmlab.report.theme import HUES, STATES, Style, styles_for
from tsmlab.traces.analysis import Measure, Predicted, SizeBucket, TraceAnalysis, waste
from tsmlab.traces.analysis_text import grouped, lifetime_words
from tsmlab.wording import quantity, share

# More lines than this cannot be told apart; the table has all.
MOST_LINES = 6
FIRST_NAMED = ("tsmalloc", "glibc", "jemalloc", "mimalloc", "tcmalloc", "lock-first")
CURVE_ROWS = 100
NEVER = "never"
MOST_SIZE_TICKS = 7
# The map of lifetimes: its rows, and the steps of its colour, each ten times the one below.
ROW = 18.0
STEPS = (0.10, 0.26, 0.46, 0.70, 1.0)
GAP_BEFORE_LAST = 0.35
MOST_TICKS = 6


def figures(analysis: TraceAnalysis) -> Iterator[Figure]:
    if len(analysis.curve) > 1:
        yield live(analysis)
    if any(bucket.allocated_bytes for bucket in analysis.buckets):
        yield sizes(analysis)
    if analysis.freed_objects:
        yield lifetimes(analysis, "ns")
        yield lifetimes(analysis, "bytes")


def live(analysis: TraceAnalysis) -> Figure:
    points = analysis.curve
    xs = [0.0, *(point.time_ns / 1e9 for point in points)]
    # Each stretch is drawn at its highest, so that no peak is lost.
    ys = [float(p.highest_bytes) for p in points]
    ys = [*ys, ys[-1]]
    line = lines.Line("live", xs, ys, styles_for(["tsmalloc"])["tsmalloc"], True, stepped=True)
    every = max(1, len(points) // CURVE_ROWS)
    rows = [
        [
            f"{p.event:,}",
            quantity(p.time_ns / 1e9, "seconds"),
            quantity(p.live_bytes, "bytes"),
            quantity(p.highest_bytes, "bytes"),
            f"{p.live_objects:,}",
        ]
        for p in points[::every]
    ]
    peak = quantity(analysis.peak.bytes, "bytes")
    heads = ("event", "time", "live bytes", "highest in its stretch", "objects")
    return render(
        "live",
        "Live bytes over time",
        f"A curve of live bytes over {quantity(analysis.seconds, 'seconds')}; its peak is {peak}.",
        f"Requested bytes of all live objects, at most {len(points):,} stretches of equally many "
        "events, each drawn at its highest. No allocator can need less.",
        of_texts("Live bytes", heads, rows, left=0),
        lines.panels(
            [lines.Panel("", [line])],
            lines.Scale("time", "seconds"),
            lines.Scale("live bytes", "bytes"),
        ),
    )


# --- sizes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WasteLine:
    """An allocator's waste in each of the bars, as shares of its blocks."""

    name: str
    wastes: Sequence[float]
    style: Style


def size_panels(
    buckets: Sequence[SizeBucket], wastes: Sequence[WasteLine], what: str
) -> list[canvas.Panel]:
    """A bar for each bucket, as high as its share of all bytes; then the wastes in each."""
    edges = [_edges(bucket.upper) for bucket in buckets]
    all_bytes = sum(bucket.allocated_bytes for bucket in buckets)
    parts = [bucket.allocated_bytes / all_bytes for bucket in buckets]
    lefts, widths = [low for low, _ in edges], [high - low for low, high in edges]

    def draw_bars(axes: Axes) -> None:
        axes.bar(lefts, parts, widths, align="edge", color=STATES["used"].light, linewidth=0)
        _scales(axes, edges, max(parts))
        axes.set_title(f"↑ {what}")

    def draw_lines(axes: Axes) -> None:
        xs = [x for low, high in edges for x in (low, high, math.nan)]
        # Where lines coincide, the first is seen.
        for line in reversed(wastes):
            ys = [y for waste in line.wastes for y in (waste, waste, math.nan)]
            axes.plot(xs, ys, color=line.style.colour, linewidth=2.0)
        _scales(axes, edges, max(max(line.wastes) for line in wastes))
        axes.set_title("↑ predicted waste")

    if not wastes:
        return [canvas.Panel(200.0, draw_bars)]
    handles = [Line2D([], [], color=line.style.colour, linewidth=2.0, label=line.name)
               for line in wastes]  # fmt: skip
    return [canvas.Panel(200.0, draw_bars), canvas.legend(handles), canvas.Panel(220.0, draw_lines)]


def _edges(upper: int) -> tuple[float, float]:
    """The ends of a bucket in octaves; that for 0 bytes stands left of that for 1."""
    lower = lower_of(upper)
    low = math.log2(lower) if lower > 0 else -1.0
    high = math.log2(upper) if upper > 0 else -1.0
    return (low, high) if high > low else (high - 1.0, high)


def _scales(axes: Axes, edges: Sequence[tuple[float, float]], highest: float) -> None:
    low, high = min(low for low, _ in edges), max(high for _, high in edges)
    axes.set(xlim=(low - 0.1, high + 0.1), ylim=(0.0, max(highest, 0.001) * 1.06))
    every = max(1, math.ceil((high - low) / MOST_SIZE_TICKS))
    ticks = [k for k in range(max(0, math.ceil(low)), math.floor(high) + 1) if k % every == 0]
    axes.set_xticks(ticks, [tick_words(float(2**k), "bytes") for k in ticks])
    axes.set_xlabel("size →")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda part, _: share(part) if part else "0"))


def sizes(analysis: TraceAnalysis) -> Figure:
    buckets = [b for b in analysis.buckets if b.allocations]
    shown = _shown(analysis)
    kept = [i for i, bucket in enumerate(analysis.buckets) if bucket.allocations]
    drawn = [
        WasteLine(
            group[0].allocator + (f" +{len(group) - 1}" if len(group) > 1 else ""),
            [_waste(group[0], analysis.buckets, i) for i in kept],
            styles_for([group[0].allocator])[group[0].allocator],
        )
        for group in shown
    ]
    heads = ["up to", "allocations", "bytes", "at the peak"]
    heads += [f"waste, {group[0].allocator}" for group in shown]
    rows = [
        [
            f"{bucket.upper:,}",
            f"{bucket.allocations:,}",
            quantity(bucket.allocated_bytes, "bytes"),
            quantity(bucket.at_peak_bytes, "bytes"),
            *(share(_waste(group[0], analysis.buckets, i)) for group in shown),
        ]
        for i, bucket in zip(kept, buckets, strict=True)
    ]
    predicted = (
        " Below, the share of each block that was not asked for, as each allocator's size classes "
        "have it; alignment, headers and half-empty pages are not in it."
        if shown
        else ""
    )
    return render(
        "sizes",
        "Sizes and predicted waste" if shown else "Sizes",
        f"Bars of bytes by size, in {len(buckets)} buckets.",
        f"The bytes of all allocations by their size, eight bars to an octave.{predicted}",
        of_texts("Sizes", heads, rows, left=0),
        size_panels(buckets, drawn, "share of allocated bytes"),
    )


def _shown(analysis: TraceAnalysis) -> list[list[Predicted]]:
    """At most so many lines: those that people ask for first."""

    def importance(predicted: Predicted) -> int:
        known = predicted.allocator in FIRST_NAMED
        return FIRST_NAMED.index(predicted.allocator) if known else len(FIRST_NAMED)

    groups = [sorted(group, key=importance) for group in grouped(analysis.predicted)]
    return sorted(groups, key=lambda group: importance(group[0]))[:MOST_LINES]


def lower_of(upper: int) -> int:
    """The bound of the bucket below, of eight to an octave."""
    if upper <= 8:
        return upper - 1 if upper else 0
    return upper - (1 << ((upper - 1).bit_length() - 1)) // 8


def _waste(predicted: Predicted, buckets: Sequence[SizeBucket], place: int) -> float:
    return waste(buckets[place].allocated_bytes, predicted.by_size[place][0])


# --- lifetimes ------------------------------------------------------------------------------------


def lifetimes(analysis: TraceAnalysis, measure: Measure) -> Figure:
    cells = analysis.lifetimes(measure).by_size
    left = left_by_octave(analysis)
    size_bounds = _octaves([c.size for c in cells] + list(left))
    life_bounds = _octaves([c.lifetime for c in cells])
    whole = sum(c.objects for c in cells) + sum(left.values())
    words = [lifetime_words(measure, bound) for bound in life_bounds]
    drawn = {
        (life_bounds.index(c.lifetime), size_bounds.index(c.size)): c.objects / whole for c in cells
    }
    column = len(life_bounds)
    drawn |= {(column, size_bounds.index(size)): n / whole for size, n in left.items()}
    what = "time" if measure == "ns" else "bytes allocated meanwhile"
    rows = [
        [
            quantity(c.size, "bytes"),
            words[life_bounds.index(c.lifetime)],
            f"{c.objects:,}",
            quantity(c.bytes, "bytes"),
        ]
        for c in cells
    ]
    rows += [[quantity(size, "bytes"), NEVER, f"{objects:,}", ""] for size, objects in left.items()]
    heads = ("size up to", "lifetime up to", "objects", "bytes")
    return render(
        f"lifetimes-{measure}",
        "Sizes and lifetimes" if measure == "ns" else "Sizes and lifetimes in bytes",
        f"A map of {whole:,} objects by size and lifetime.",
        f"Each cell is an octave of sizes and one of lifetimes in {what}; its colour says which "
        "share of all objects is in it"
        + (
            ", in steps of ten. The column apart holds what is never freed."
            if left
            else ", in steps of ten."
        ),
        of_texts("Sizes and lifetimes", heads, rows, left=0, headed=False),
        heat_panels(
            "lifetime" if measure == "ns" else what,
            [*words, *([NEVER] if left else [])],
            [tick_words(bound, "bytes") for bound in size_bounds],
            drawn,
            last_apart=bool(left),
        ),
    )


def heat_panels(
    x_title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Mapping[tuple[int, int], float],
    last_apart: bool,
) -> list[canvas.Panel]:
    """What the steps of the colour mean, then a map of shares of the whole by column and row, the
    first row lowest. last_apart: the last column stands apart from the others."""
    words = ("to 0.01 %", "to 0.1 %", "to 1 %", "to 10 %", "to 100 %")
    handles = [Patch(label=w, **_look(step)) for w, step in zip(words, STEPS, strict=True)]
    extra = GAP_BEFORE_LAST if last_apart else 0.0
    last = len(columns) - 1

    def draw(axes: Axes) -> None:
        axes.set(xlim=(-0.5, last + extra + 0.5), ylim=(-0.5, len(rows) - 0.5))
        axes.grid(visible=False)
        for (column, row), part in cells.items():
            x = column + (extra if column == last else 0.0)
            axes.bar(x, 1.0, 1.0, row - 0.5, **_look(strength(part)))
        every = max(1, math.ceil(last / MOST_TICKS))
        # The name of a last one that stands apart needs room.
        inner = range(0, last - every if last_apart else last + 1, every)
        shown = [*inner, *([last] if last_apart else [])]
        axes.set_xticks(
            [i + (extra if i == last else 0.0) for i in shown], [columns[i] for i in shown]
        )
        axes.set_yticks(range(len(rows)), rows)
        axes.set_title("↑ size")
        axes.set_xlabel(f"{x_title} →")

    return [canvas.legend(handles), canvas.Panel(max(3, len(rows)) * ROW + 60.0, draw)]


def strength(part: float) -> float:
    """The opacity of a share: a step for each power of ten below the whole."""
    if part <= 0.0:
        return 0.0
    step = math.floor(-math.log10(part) + 1e-12)
    return STEPS[max(0, len(STEPS) - 1 - step)]


def _look(opacity: float) -> dict[str, Any]:
    return {"color": HUES["blue"].light, "alpha": opacity, "linewidth": 0}


def left_by_octave(analysis: TraceAnalysis) -> dict[int, int]:
    """Objects that are live at the end, by the upper ends of octaves of their sizes."""
    found: dict[int, int] = {}
    for bucket in analysis.buckets:
        if bucket.left:
            bound = octave_of(bucket.upper)
            found[bound] = found.get(bound, 0) + bucket.left
    return found


def octave_of(value: int) -> int:
    """The upper end of its octave: a power of two, or 0."""
    return 1 << (value - 1).bit_length() if value > 0 else 0


def _octaves(bounds: Sequence[int]) -> list[int]:
    """All octaves between the first and the last that occur, so that the axis has no gaps."""
    low, high = min(bounds), max(bounds)
    found = [low]
    while found[-1] < high:
        found.append(found[-1] * 2 if found[-1] else 1)
    return found
