"""The page of a trace's analysis: what a program does with its memory. The sentences and tables are
the terminal's (analysis_text.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tsmlab import export
from tsmlab.report import charts, parts
from tsmlab.report.charts import Axis, Line
from tsmlab.report.page import (
    Data,
    DataTable,
    Figure,
    Page,
    Section,
    Series,
    figure_sections,
    table_of,
)
from tsmlab.report.theme import Style, styles_for
from tsmlab.text import shortened, slug
from tsmlab.traces import analysis_text
from tsmlab.traces.analysis import CurvePoint, Measure, Predicted, SizeBucket, TraceAnalysis, waste
from tsmlab.traces.analysis_text import grouped, lifetime_words
from tsmlab.wording import quantity, share

# More lines than this cannot be told apart; the table has all.
MOST_LINES = 6
FIRST_NAMED = ("tsmalloc", "glibc", "jemalloc", "mimalloc", "tcmalloc", "lock-first")
CURVE_ROWS = 100
NEVER = "never"
# Of the map of lifetimes: the steps of its colour, each ten times the one below.
STEPS = (
    ("to 100%", 0.1, 1.0),
    ("to 10%", 0.01, 0.7),
    ("to 1%", 0.001, 0.46),
    ("to 0.1%", 0.0001, 0.26),
    ("to 0.01%", 0.0, 0.1),
)
TERMS = """\
Event: One call of the program, in the order in which its threads made them.
Live bytes: The requested sizes of all objects that are allocated and not yet freed. The peak is
  the first moment at which they are highest.
Lifetime: From an object's allocation to its free: in time, in events, or in bytes allocated by
  all threads meanwhile.
Temporary: An object that its own thread frees before that thread allocates another.
Cross-thread: A free by another thread than the one that allocated the object.
Left: Live at the end of the program image; what was inherited in a fork counts apart.
Predicted waste: What size classes add to requests, as a share of the blocks, without alignment,
  headers and pages that are partly in use.
"""


def page(analysis: TraceAnalysis) -> Page:
    sums = [(parts.capital(label), text) for label, text in analysis_text.sums(analysis)]
    tables = [
        Section(title, [DataTable(title, columns)], anchor=f"t-{slug(title)}")
        for title, columns in analysis_text.all_tables(analysis)
    ]
    program = analysis.image["program"] or "a program"
    allocated = analysis.amount("allocations")
    peak = quantity(analysis.peak.bytes, "bytes")
    return Page(
        kind="trace",
        name=slug(f"trace-{analysis.trace}"),
        title=shortened(analysis.trace, 140),
        window_title=f"{shortened(analysis.trace, 40)}: what {shortened(program, 40)} allocates",
        is_command=True,
        question=f"What does {shortened(program, 60)} do with its memory?",
        answer=f"{allocated.objects:,} allocations of {quantity(allocated.bytes, 'bytes')} in all, "
        f"of which at most {peak} are live at once; {share(analysis.temporary_share)} are "
        f"temporary, and {share(analysis.cross_thread_share)} of all frees are by another thread.",
        facts=sums,
        failures=analysis_text.damage_lines(analysis),
        extent=analysis_text.heading(analysis),
        sections=[
            *figure_sections(list(figures(analysis))),
            *tables,
            parts.reading(TERMS),
        ],
        data=Data(dict(analysis.raw), thin),
        files={
            "results.md": analysis_text.markdown(analysis),
            "runs.csv": export.csv_lines(CurvePoint._fields, analysis.curve),
        },
    )


def thin(data: dict[str, Any]) -> None:
    """What is largest, and is drawn in any case."""
    data.pop("curve", None)
    for each in data.get("predicted", []):
        each.pop("by_size", None)


def figures(analysis: TraceAnalysis) -> Iterator[Figure]:
    if len(analysis.curve) > 1:
        yield live(analysis)
    if any(bucket.allocated_bytes for bucket in analysis.buckets):
        yield sizes(analysis)
    if analysis.freed_objects:
        yield lifetimes(analysis, "ns")
        yield lifetimes(analysis, "bytes")


def live(analysis: TraceAnalysis) -> Figure:
    stretches = analysis.curve
    xs = [0.0, *(point.time_ns / 1e9 for point in stretches)]
    # Each stretch is drawn at its highest, so that no peak is lost.
    ys = [float(p.highest_bytes) for p in stretches]
    points = list(zip(xs, [*ys, ys[-1]], strict=True))
    rows = [
        [
            f"{p.event:,}",
            quantity(p.time_ns / 1e9, "seconds"),
            quantity(p.live_bytes, "bytes"),
            quantity(p.highest_bytes, "bytes"),
            f"{p.live_objects:,}",
        ]
        for p in stretches[:: max(1, len(stretches) // CURVE_ROWS)]
    ]
    heads = ("event", "time", "live bytes", "highest in its stretch", "objects")
    return Figure(
        "live",
        "Live bytes over time",
        f"Requested bytes of all live objects, in {len(stretches):,} stretches of equally many "
        "events, each drawn at its highest. No allocator can need less.",
        [charts.lines([Line("live", points, Style("blue"), stepped=True)],
                      Axis("time", "seconds", zero=True), Axis("live bytes", "bytes", zero=True))],
        table_of("Live bytes", heads, rows, left=0),
    )  # fmt: skip


# --- sizes ----------------------------------------------------------------------------------------


def sizes(analysis: TraceAnalysis) -> Figure:
    """A bar for each bucket with its share of all bytes; then what each allocator would waste."""
    kept = [i for i, bucket in enumerate(analysis.buckets) if bucket.allocations]
    buckets = [analysis.buckets[i] for i in kept]
    ends = [(max(lower_of(b.upper), 0.5), max(b.upper, 1.0)) for b in buckets]
    whole = sum(bucket.allocated_bytes for bucket in buckets)
    parts_of = [(*at, b.allocated_bytes / whole) for at, b in zip(ends, buckets, strict=True)]
    shown = _shown(analysis)
    wastes, styles = {}, {}
    for group in shown:
        first = group[0].allocator
        name = first + (f" +{len(group) - 1}" if len(group) > 1 else "")
        lost = [_waste(group[0], analysis.buckets, i) for i in kept]
        wastes[name] = [(*at, part) for at, part in zip(ends, lost, strict=True)]
        styles[name] = styles_for([first])[first]
    axis = Axis("size", "bytes", log=True)
    bars = {"sizes": Style("blue")}
    panels = [charts.spans({"sizes": parts_of}, bars, axis, "share of allocated bytes", bars=True)]
    if shown:
        panels.append(charts.spans(wastes, styles, axis, "predicted waste", bars=False))
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
    return Figure(
        "sizes",
        "Sizes and predicted waste" if shown else "Sizes",
        f"The bytes of all allocations by their size, eight bars to an octave.{predicted}",
        panels,
        table_of("Sizes", heads, rows, left=0),
        charts.legend(styles),
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
    whole = sum(c.objects for c in cells) + sum(left.values())
    words = {
        bound: lifetime_words(measure, bound) for bound in _octaves([c.lifetime for c in cells])
    }
    names = {
        bound: quantity(bound, "bytes") for bound in _octaves([c.size for c in cells] + list(left))
    }
    drawn = {(words[c.lifetime], names[c.size]): c.objects / whole for c in cells}
    drawn |= {(NEVER, names[size]): count / whole for size, count in left.items()}
    what = "time" if measure == "ns" else "bytes allocated meanwhile"
    rows = [
        [names[c.size], words[c.lifetime], f"{c.objects:,}", quantity(c.bytes, "bytes")]
        for c in cells
    ]
    rows += [[names[size], NEVER, f"{objects:,}", ""] for size, objects in left.items()]
    never = " The last column holds what is never freed." if left else ""
    columns = [*words.values(), *([NEVER] if left else [])]
    title = "Sizes and lifetimes" if measure == "ns" else "Sizes and lifetimes in bytes"
    return Figure(
        f"lifetimes-{measure}",
        title,
        f"Each cell is an octave of sizes and one of lifetimes in {what}; its colour says which "
        f"share of all {whole:,} objects is in it, in steps of ten.{never}",
        [charts.heat(drawn, columns, list(names.values()), STEPS,
                     "lifetime" if measure == "ns" else what, "size")],
        table_of(title, ("size up to", "lifetime up to", "objects", "bytes"), rows, left=0,
                 headed=False),
        [Series(name, "blue", "■", strength) for name, _, strength in STEPS],
        zooms=False,
    )  # fmt: skip


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
