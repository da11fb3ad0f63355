"""An analysis as text: the answer, the sums, then tables.

An overview of what the program does with its memory, on one or two screens. Every number is in the
analysis.
"""

from collections.abc import Iterator

from tsmlab.tables import Block, Cell, Column, markdown_of, text_of
from tsmlab.traces.analysis import MEASURES, Amount, Measure, TraceAnalysis
from tsmlab.wording import counted, quantity, share, three_digits

MAX_SIZES = 12
MAX_THREADS = 12
QUANTILES = ("p10", "p25", "p50", "p75", "p90", "p99", "max")
MEASURE_NAMES: dict[Measure, str] = {
    "events": "events",
    "ns": "time",
    "bytes": "bytes allocated meanwhile",
}
KILLED = "The recorder was killed: what the program did after its last second is not in the trace."
KINDS = ("malloc", "calloc", "aligned", "realloc", "free", "refused", "fork")


def blocks(analysis: TraceAnalysis) -> Iterator[Block]:
    yield Block(lines=[answer(analysis)], style="bold")
    if not analysis.is_finished:
        yield Block(fails=[KILLED])
    yield Block(lines=[heading(analysis)])
    yield Block(labelled=list(sums(analysis)))
    yield from tables(analysis)


def report(analysis: TraceAnalysis, width: int, colours: bool = False) -> str:
    return text_of(blocks(analysis), width, colours)


def markdown(analysis: TraceAnalysis) -> str:
    return "\n".join(markdown_of(blocks(analysis))) + "\n"


# --- sentences ------------------------------------------------------------------------------------


def answer(analysis: TraceAnalysis) -> str:
    allocated, peak = analysis.amount("allocations"), analysis.peak.bytes
    return (
        f"{counted(allocated.objects, 'allocation')} of "
        f"{quantity(allocated.bytes, 'bytes')} in all, at most {quantity(peak, 'bytes')} of it "
        "live at once; "
        f"{share(analysis.temporary_share)} are temporary, and "
        f"{share(analysis.cross_thread_share)} of all frees are by another thread."
    )


def heading(analysis: TraceAnalysis) -> str:
    image = analysis.image
    which = f"image {image['number']} of {analysis.images}" if analysis.images > 1 else "one image"
    under = f" under {image['allocator']}" if image["allocator"] else ""
    ended = {"exited": "", "unknown": "; its end is unknown"}.get(
        image["end"], f"; ended by {image['end']}"
    )
    return (
        f"{analysis.trace}, {which}: {image['program'] or 'a program'}{under}, "
        f"{counted(analysis.events, 'event')} in {quantity(analysis.seconds, 'seconds')}, "
        f"{counted(analysis.threads_seen, 'thread')}{ended}"
    )


def sums(analysis: TraceAnalysis) -> Iterator[tuple[str, str]]:
    """A label and a sentence each."""
    calls = ", ".join(f"{kind} {analysis.calls[kind]:,}" for kind in KINDS if analysis.calls[kind])
    yield "calls", calls or "none"
    allocated = analysis.amount("allocations")
    grown = int(analysis.raw["grown_bytes"])
    more = f", and {_bytes(grown)} more by resizes" if grown else ""
    sizes = f"{counted(analysis.distinct_sizes, 'size')} (median {_bytes(analysis.median_size)})"
    yield "requested", f"{_amount(allocated, 'allocation')} of {sizes}{more}"
    if (inherited := analysis.amount("inherited")).objects:
        freed = analysis.amount("inherited_frees").objects
        size = f"{counted(inherited.objects, 'object')} of {_bytes(inherited.bytes)}"
        yield "inherited", f"{size}, live when the process was forked; {freed:,} freed here"
    yield "peak", _peak(analysis)
    least = _bytes(analysis.peak.bytes)
    yield "lower bound", f"{least}: the peak; no allocator can use less memory"
    own, others = analysis.left_own, analysis.left_inherited
    more = f", and {_bytes(others.bytes)} in {others.objects:,} inherited ones"
    yield "left", f"{_amount(own)} at the end{more if others.objects else ''}"
    part = share(analysis.temporary_share)
    count = f"{part} of all allocations ({analysis.amount('temporaries').objects:,})"
    yield "temporary", f"{count} are freed before their thread allocates again"
    part = share(analysis.cross_thread_share)
    count = f"{part} of all frees ({analysis.amount('cross_thread_frees').objects:,})"
    yield "cross-thread", f"{count} are made by a different thread than the allocation"
    yield "resizes", _resizes(analysis)


def _bytes(size: int) -> str:
    return quantity(size, "bytes")


def _amount(amount: Amount, noun: str = "object") -> str:
    return f"{_bytes(amount.bytes)} in {counted(amount.objects, noun)}"


def _peak(analysis: TraceAnalysis) -> str:
    event, inherited = analysis.peak_event, analysis.inherited_at_peak.bytes
    if event is None:
        return f"{_amount(analysis.peak)}: never more than at the start"
    moment = quantity(analysis.peak_seconds, "seconds")
    part = f", {_bytes(inherited)} of them inherited" if inherited else ""
    return f"{_amount(analysis.peak)}{part}, after event {event:,} ({moment})"


def _resizes(analysis: TraceAnalysis) -> str:
    chains = analysis.chains
    if not chains["resizes"]:
        return "none"
    text = (
        f"{chains['resizes']:,} of {counted(chains['objects'], 'object')}, "
        f"at most {chains['longest']:,} of one: {chains['grown']:,} grow, "
        f"{chains['shrunk']:,} shrink, {chains['unchanged']:,} keep the size"
    )
    step = chains["step_growth_thousandths"]
    if step["objects"]:
        text += f"; the median growing step is {three_digits(step['p50'] / 1000)}x"
    whole = chains["growth_thousandths"]
    if whole["objects"]:
        text += f", the median whole chain {three_digits(whole['p50'] / 1000)}x"
    return text


# --- tables ---------------------------------------------------------------------------------------


def tables(analysis: TraceAnalysis) -> Iterator[Block]:
    if count := analysis.freed_objects:
        title = f"Lifetimes of {counted(count, 'object')}"
        yield Block(title, table=lifetime_columns(analysis))
    if analysis.sizes:
        yield Block("Most frequent sizes", table=size_columns(analysis))
    if analysis.peak_sizes:
        yield Block("What the peak consists of", table=peak_columns(analysis))
    if analysis.left_sizes:
        yield Block("What is left at the end", table=left_columns(analysis))
    if analysis.threads_seen > 1:
        yield Block("Threads", table=thread_columns(analysis))


def lifetime_columns(analysis: TraceAnalysis) -> list[Column]:
    columns = [Column("in", [Cell(MEASURE_NAMES[measure]) for measure in MEASURES], left=True)]
    for name in QUANTILES:
        words = (lifetime_words(each, analysis.lifetime(each, name)) for each in MEASURES)
        columns.append(Column(name, list(map(Cell, words))))
    return columns


def lifetime_words(measure: Measure, value: int) -> str:
    if measure == "ns":
        return quantity(value / 1e9, "seconds")
    return quantity(value, "bytes" if measure == "bytes" else "count")


def size_columns(analysis: TraceAnalysis) -> list[Column]:
    rows = analysis.sizes[:MAX_SIZES]
    whole = analysis.amount("allocations").objects
    return [
        Column("size", [Cell(f"{row.size:,}") for row in rows]),
        Column("allocations", [Cell(f"{row.allocations:,}") for row in rows]),
        Column("share", [Cell(share(row.allocations / whole)) for row in rows]),
        Column("resizes to it", [Cell(f"{row.resizes:,}") for row in rows]),
        Column("at the peak", [Cell(f"{row.at_peak:,}") for row in rows]),
        Column("left", [Cell(f"{row.left:,}") for row in rows]),
    ]


def peak_columns(analysis: TraceAnalysis) -> list[Column]:
    rows = analysis.peak_sizes[:MAX_SIZES]
    return [
        Column("size", [Cell(f"{row.size:,}") for row in rows]),
        Column("objects", [Cell(f"{row.objects:,}") for row in rows]),
        Column("bytes", [Cell(quantity(row.bytes, "bytes")) for row in rows]),
        Column("share", [Cell(share(row.bytes / analysis.peak.bytes)) for row in rows]),
    ]


def left_columns(analysis: TraceAnalysis) -> list[Column]:
    rows = analysis.left_sizes[:MAX_SIZES]
    columns = [
        Column("size", [Cell(f"{row.size:,}") for row in rows]),
        Column("objects", [Cell(f"{row.own:,}") for row in rows]),
    ]
    if analysis.left_inherited.objects:
        columns.append(Column("inherited", [Cell(f"{row.inherited:,}") for row in rows]))
    return [*columns, Column("bytes", [Cell(quantity(row.bytes, "bytes")) for row in rows])]


def thread_columns(analysis: TraceAnalysis) -> list[Column]:
    busiest = sorted(analysis.threads, key=lambda each: -int(each["events"]))[:MAX_THREADS]
    rows = sorted(busiest, key=lambda each: int(each["thread"]))

    def objects(key: str) -> list[Cell]:
        return [Cell(f"{row[key]['objects']:,}") for row in rows]

    return [
        Column("thread", [Cell(str(row["thread"])) for row in rows]),
        Column("events", [Cell(f"{row['events']:,}") for row in rows]),
        Column("allocations", objects("allocations")),
        Column("bytes", [Cell(quantity(row["allocations"]["bytes"], "bytes")) for row in rows]),
        Column("frees", objects("frees")),
        Column("of others' objects", objects("foreign_frees")),
        Column("freed by others", objects("given_away")),
        Column("temporary", [Cell(f"{row['temporaries']:,}") for row in rows]),
    ]
