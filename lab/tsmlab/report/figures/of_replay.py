"""The figures of replays, from their results: fragmentation, latencies, meters, shares.

Why: here it is decided what each figure shows and what stands out in it; lines.py and ratios.py
draw them, as they draw those of a comparison.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tsmlab.metrics import TIME
from tsmlab.report import series
from tsmlab.report.figures import lines, of_comparison, ratios
from tsmlab.report.figures.canvas import Figure, render
from tsmlab.report.figures.of_comparison import Look
from tsmlab.report.tables import of_texts
from tsmlab.report.theme import styles_for
from tsmlab.text import slug
from tsmlab.traces.replay_results import (
    Latencies,
    MeterChange,
    Replay,
    ReplayLine,
    line_of,
)
from tsmlab.traces.replay_text import KIND_ORDER, got_over_owed, nanoseconds, percent, size
from tsmlab.traces.replaying import all_latencies

# Where less than this share of the peak is requested, the ratio of memory to it says nothing.
LEAST_LIVE = 0.05
# The lecture's plot has a few dozen ticks: each step can be seen.
MOST_TICKS = 60
MOST_THREADS = 8
MOST_SHARES = 32
MOST_LATENCY_PANELS = 4


def figures(replays: Sequence[Replay]) -> Iterator[Figure]:
    """Those of one trace, under one schedule or several."""
    look = of_comparison.look_of(replays[0].comparison)
    anchor = slug(replays[0].trace.name, "trace")
    if len(replays) == 1:
        yield from of_comparison.figures(replays[0].comparison, look)
    for make in (memory_over_events, fragmentation_over_events):
        if figure := make(replays, look, anchor):
            yield figure
    for replay in replays:
        if figure := latencies(replay, look, anchor):
            yield figure
    for make_one in (meters, shares):
        for replay in replays:
            if figure := make_one(replay, anchor):
                yield figure


def typical_line(replay: Replay, allocator: str) -> ReplayLine | None:
    """Of the run whose time is nearest to the median."""
    nearest = series.typical_run(
        replay.comparison, allocator, TIME, lambda sample: line_of(sample) is not None
    )
    return None if nearest is None else line_of(nearest)


def _title(replay: Replay, replays: Sequence[Replay]) -> str:
    return replay.schedule if len(replays) > 1 else ""


def _curves(replay: Replay, look: Look, ratio: bool) -> list[lines.Line]:
    """A line for each allocator, over events; and without `ratio` what was requested."""
    found = []
    requested: list[tuple[float, float]] = []
    for info in replay.comparison.allocators:
        line = typical_line(replay, info.name)
        points = line.points if line else []
        if not points:
            continue
        requested = requested or [(float(p.event), float(p.live_bytes)) for p in points]
        least = LEAST_LIVE * max(point.live_bytes for point in points)
        values = [
            (p.event, p.resident_bytes / p.live_bytes - 1.0 if ratio else p.resident_bytes)
            for p in points
            if not ratio or (p.live_bytes >= least and p.live_bytes)
        ]
        found.append(look.line(series.thinned(values), info.name))
    if requested and not ratio:
        found.append(lines.through(series.thinned(requested), "requested", None, True))
    return found


def memory_over_events(replays: Sequence[Replay], look: Look, anchor: str) -> Figure | None:
    panels = [lines.Panel(_title(r, replays), _curves(r, look, ratio=False)) for r in replays]
    if not any(panel.lines for panel in panels):
        return None
    cells = [
        [replay.schedule, f.allocator, *map(size, (f.peak_bytes, f.end_bytes, f.settled_bytes))]
        for replay in replays
        for f in replay.findings
    ]
    heads = ("schedule", "allocator", "peak", "at the end", "settled")
    return render(
        f"{anchor}-memory-over-events",
        f"Memory over the events of {replays[0].trace.name}",
        "Resident memory of each allocator over the events of the trace, and what was requested.",
        "Anonymous memory that was resident, without replay's own. The dotted line is what the "
        "program had requested: what lies above it is overhead and fragmentation. All allocators "
        "are sampled at the same events.",
        of_texts("Memory", heads, cells, left=2),
        lines.panels(
            panels, lines.Scale("event", "count"), lines.Scale("resident memory", "bytes")
        ),
    )


def fragmentation_over_events(replays: Sequence[Replay], look: Look, anchor: str) -> Figure | None:
    panels = [lines.Panel(_title(r, replays), _curves(r, look, ratio=True)) for r in replays]
    if not any(line.xs for panel in panels for line in panel.lines):
        return None
    cells = [
        [replay.schedule, f.allocator, percent(f.at_peak), percent(f.over_time)]
        for replay in replays
        for f in replay.findings
    ]
    heads = ("schedule", "allocator", "at the peak", "over time")
    return render(
        f"{anchor}-fragmentation",
        f"Fragmentation over the events of {replays[0].trace.name}",
        "How much more memory was resident than requested, for each allocator over the events.",
        "Resident memory over requested memory, less one: 0.5 is half as much again. Moments at "
        f"which less than {LEAST_LIVE:.0%} of the peak was requested are left out, since there "
        "the ratio says nothing.",
        of_texts("Fragmentation", heads, cells, left=2),
        lines.panels(
            panels, lines.Scale("event", "count"), lines.Scale("resident / requested - 1", "number")
        ),
    )


# --- latencies ------------------------------------------------------------------------------------


def slower_than(latency: Latencies) -> list[tuple[float, float]]:
    """Seconds, and the share of calls that took longer; the last point is the longest call."""
    points, seen = [], 0
    for upper, calls in latency.buckets:
        seen += calls
        if seen < latency.calls:
            points.append((upper / 1e9, 1.0 - seen / latency.calls))
    last = (max(latency.max_ns, 1) / 1e9, 1.0 / latency.calls)
    return [point for point in points if point[0] < last[0]] + [last]


def latencies(replay: Replay, look: Look, anchor: str) -> Figure | None:
    """A panel for each kind of call, those with most calls."""
    found: dict[str, dict[str, Latencies]] = {}
    for info in replay.comparison.allocators:
        for kind, latency in all_latencies(replay.comparison.samples, info.name).items():
            found.setdefault(kind, {})[info.name] = latency
    if not found:
        return None
    found = {kind: found[kind] for kind in KIND_ORDER if kind in found}
    most = sorted(found, key=lambda kind: -max(each.calls for each in found[kind].values()))
    kinds = [kind for kind in KIND_ORDER if kind in most[:MOST_LATENCY_PANELS]]
    panels = []
    for kind in kinds:
        curves = {name: series.thinned(slower_than(each)) for name, each in found[kind].items()}
        panels.append(lines.Panel(kind, [look.line(points, n) for n, points in curves.items()]))
    cells = [
        [kind, name, f"{each.calls:,}",
         *(nanoseconds(each.quantile_ns(s)) for s in (0.5, 0.99, 0.999, 0.9999)),
         nanoseconds(each.max_ns)]
        for kind in found
        for name, each in found[kind].items()
    ]  # fmt: skip
    heads = ("call", "allocator", "calls", "p50", "p99", "p99.9", "p99.99", "max")
    return render(
        f"{anchor}-{replay.schedule}-latency",
        f"Latencies under {replay.schedule}",
        f"For {', '.join(kinds)}, the share of calls that took longer than each time.",
        "The share of calls (up) that took longer than a time (to the right), both on logarithmic "
        "axes: 0.001 is p99.9. Lines end at the longest call. Reading the clock is part of each "
        "latency; all runs are taken together.",
        of_texts("Latencies", heads, cells, left=2),
        lines.panels(
            panels,
            lines.Scale("latency", "seconds", log=True),
            lines.Scale("share of calls that take longer", "number", log=True),
        ),
    )


# --- schedules ------------------------------------------------------------------------------------


def meters(replay: Replay, anchor: str) -> Figure | None:
    """As many ticks as can be told apart, where most threads have a share in them."""
    logged = next(
        (line.meters for s in replay.comparison.samples if (line := line_of(s)) and line.meters), []
    )
    changes = liveliest(logged)
    threads = list(dict.fromkeys(change.thread for change in changes))
    if len(threads) < 2:
        return None
    shown = [f"thread {thread}" for thread in threads]
    styles = styles_for(shown)
    first, last = changes[0].tick, max(change.tick for change in changes) + 1
    least = min(_meter_before(changes, replay, thread) for thread in threads)
    curves = []
    for place, (thread, name) in enumerate(zip(threads, shown, strict=True)):
        own = [change for change in changes if change.thread == thread]
        before = _meter_before(changes, replay, thread)
        points = _steps(own, before, least if replay.schedule == "stride" else before)
        goes_on = any(c.thread == thread and c.tick >= last for c in logged)
        points += [(float(last), points[-1][1])] if goes_on else []
        strong = place < MOST_THREADS
        curves.append(lines.through(points, name, styles[name], strong, stepped=True))
    tickets = {share.thread: share.tickets for share in replay.shares}
    cells = [
        [name, str(tickets.get(thread, "?")), f"{curve.ys[0]:.4f}", f"{curve.ys[-1]:.4f}"]
        for thread, name, curve in zip(threads, shown, curves, strict=True)
    ]
    heads = ("thread", "tickets", "meter at first", "meter at last")
    rule = {
        "stride": "The thread with the least meter runs next, so that meters keep together; they "
        "are counted from the least one at the first of these ticks.",
        "lottery": "A drawn ticket decides which thread runs, so that meters part by chance; each "
        "is counted from where it stood at the first of these ticks.",
        "round-robin": "Threads run in turn, whatever their tickets are; each meter is counted "
        "from where it stood at the first of these ticks.",
    }.get(replay.schedule, "")
    return render(
        f"{anchor}-{replay.schedule}-meters",
        f"Meters over ticks under {replay.schedule}",
        f"The meters of {len(threads)} threads over {last - first} ticks.",
        "With each tick, the meter of the thread that runs goes up by one over its tickets. "
        f"{rule}",
        of_texts("Meters", heads, cells),
        lines.panels(
            [lines.Panel("", curves)], lines.Scale("tick", "number"), lines.Scale("meter", "number")
        ),
    )


def liveliest(changes: Sequence[MeterChange]) -> list[MeterChange]:
    """Of the stretches of so many ticks that begin at a multiple of their sixth, the first one in
    which most threads run, and run often."""
    stretches: dict[int, list[MeterChange]] = {}
    step = MOST_TICKS // 6
    for change in changes:
        last = change.tick // step
        for place in range(max(0, last - 5), last + 1):
            stretches.setdefault(place, []).append(change)

    def liveliness(place: int) -> int:
        runs = Counter(change.thread for change in stretches[place] if change.ran)
        return sum(min(count, MOST_TICKS // MOST_THREADS) for count in runs.values())

    best = max(stretches, key=lambda place: (liveliness(place), -place), default=None)
    return [] if best is None else stretches[best]


def _meter_before(changes: Sequence[MeterChange], replay: Replay, thread: int) -> float:
    """Where a thread's meter stood when its first change was made."""
    first = next(change for change in changes if change.thread == thread)
    tickets = next((s.tickets for s in replay.shares if s.thread == thread), 1)
    return first.meter - (1.0 / tickets if first.ran else 0.0)


def _steps(own: Sequence[MeterChange], before: float, least: float) -> list[tuple[float, float]]:
    """A thread's line: each change holds from the end of its tick on, or where the thread was there
    before it, from its beginning."""
    return [
        (float(own[0].tick), before - least),
        *((float(c.tick + 1 if c.ran else c.tick), c.meter - least) for c in own),
    ]


def shares(replay: Replay, anchor: str) -> Figure | None:
    """Ticks got over ticks owed, of those that were owed most."""
    able = [s for s in replay.shares if s.owed > 0.0 and s.ticks > 0]
    if len(able) < 2:
        return None
    most = sorted(able, key=lambda share: -share.owed)[:MOST_SHARES]
    kept = sorted(most, key=lambda share: share.thread)
    names = [f"{share.thread} ({share.tickets:,})" for share in kept]
    found = [ratios.Ratio(n, s.ticks / s.owed) for n, s in zip(names, kept, strict=True)]
    heads = ("thread", "tickets", "ticks got", "ticks owed", "got / owed", "could not run")
    cells = [
        [str(s.thread), f"{s.tickets:,}", f"{s.ticks:,}", f"{s.owed:,.2f}", got_over_owed(s),
         f"{s.skipped:,}"]
        for s in replay.shares
    ]  # fmt: skip
    return render(
        f"{anchor}-{replay.schedule}-shares",
        f"Shares under {replay.schedule}",
        f"The ticks that each of {len(kept)} threads got over those that it was owed.",
        "A thread is owed its share of the tickets in every tick in which it could run; 1 is a "
        "fair share. A thread that waits for others now and then loses turns, and cannot get all.",
        of_texts("Shares", heads, cells),
        ratios.panels(
            ratios.Rows(names, frozenset(names[:MOST_THREADS]), "", styles_for(names), plain=True),
            [ratios.Panel("Ticks got over ticks owed", "less", "more", found, None)],
        ),
    )
