"""The page of replays: one trace under one schedule is a comparison with more to show; several are
told one after the other. Sentences and tables are the terminal's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tsmlab import render, series, texts
from tsmlab.metrics import TIME
from tsmlab.report import charts, comparison, parts
from tsmlab.report.charts import Axis, Line, Ratio
from tsmlab.report.comparison import Styles
from tsmlab.report.page import DataTable, Figure, Page, Section, figure_sections, table_of
from tsmlab.report.theme import REQUESTED, emphasised
from tsmlab.text import shortened, slug
from tsmlab.traces import replay_text
from tsmlab.traces.replay_results import (
    Latencies,
    MeterChange,
    Replay,
    ReplayLine,
    ReplayResults,
    TraceInfo,
    line_of,
)
from tsmlab.traces.replay_text import KIND_ORDER, got_over_owed, nanoseconds, percent, size
from tsmlab.traces.replaying import all_latencies
from tsmlab.wording import share, three_digits

# Where less than this share of the peak is requested, the ratio of memory to it says nothing.
LEAST_LIVE = 0.05
# The lecture's plot has a few dozen ticks: each step can be seen.
MOST_TICKS = 60
MOST_THREADS = 8
MOST_SHARES = 32
MOST_LATENCY_PANELS = 4


def page(results: ReplayResults) -> Page:
    traces = ", ".join(trace.name for trace in results.traces)
    first = results.replays[0].comparison
    verdicts = list(_verdicts(results)) or [("Verdict", "No allocator could be ranked.")]
    answer = render.answers(first)[0] if len(results.replays) == 1 else ": ".join(verdicts.pop(0))
    sections = [section for trace in results.traces for section in _sections(results, trace)]
    kept = ("runs", "warmup_rounds", "time_budget_seconds", "timeout_seconds", "margin", "cpus")
    rounds = {key: value for key, value in asdict(first.settings).items() if key in kept}
    settings = {**asdict(results.settings), **rounds}
    return Page(
        kind="replay",
        name=slug(f"replay-{traces}"),
        title=shortened(f"Replay of {traces}", 80),
        window_title=f"{shortened(traces, 40)}: replayed on {len(results.allocators)} allocators",
        question=f"The same calls on {len(results.allocators)} allocators, under "
        f"{', '.join(results.schedules)}",
        answer=answer,
        facts=verdicts,
        warnings=parts.warned(results.study.warnings),
        failures=[line for each in results.replays
                  for line in render.failed_lines(each.comparison)],
        extent=" · ".join(line for trace in results.traces
                          for line in replay_text.heading(trace, results.replays_of(trace))),
        sections=[
            *sections,
            *parts.circumstances(results, results.allocators, settings, terms(results)),
        ],
        footer=parts.footer(results),
        files={"results.md": texts.markdown(results.study),
               "runs.csv": texts.to_csv(results.study)},
    )  # fmt: skip


def terms(results: ReplayResults) -> str:
    margin = share(results.replays[0].comparison.settings.margin)
    return f"""\
Replay: The calls of a recorded program, made again with the same sizes, by as many threads, in an
  order that keeps what the recorded one needed. The program is not run.
Time: From the first call to the last, without reading the trace and without looking at memory.
Peak, end, settled: Resident memory of the allocator: the highest sample; after the last call;
  after everything was freed and some idling.
Fragmentation at the peak: How much more was resident at the highest than was ever requested at
  once.
Fragmentation over time: The mean of what was resident over the mean of what was requested, less
  one; both at the same events.
Schedule: asap and paced run real threads. Under all others exactly one thread runs at any time,
  and which one follows from the trace or the schedule, so that runs repeat.
Tick, meter, owed: A tick is a thread's turn. Its meter goes up by one over its tickets with each.
  It is owed its share of the tickets that can run in that tick.
Ratio, interval, verdict: As in a comparison: geometric means over the rounds against
  {results.reference}, which ran twice in each; 95% confidence; differences below the margin of
  {margin} do not count.
"""


def _verdicts(results: ReplayResults) -> Iterator[tuple[str, str]]:
    """Of a single replay its sentences; of several, how far they repeated."""
    if len(results.replays) == 1:
        for label, text in replay_text.verdicts(results.replays[0]):
            yield parts.capital(label), text
        return
    for replay in results.replays:
        for label, text in replay_text.verdicts(replay):
            if label in ("smallest", "repeated"):
                yield f"{shortened(replay.trace.name, 24)}, {replay.schedule}", f"{label}: {text}"


def _sections(results: ReplayResults, trace: TraceInfo) -> Iterator[Section]:
    replays = results.replays_of(trace)
    anchor = slug(trace.name, "trace")
    of_trace = f" of {shortened(trace.name, 32)}" if len(results.traces) > 1 else ""
    if len(replays) == 1:
        memory = replay_text.memory_columns(replays[0])
        tables = [
            comparison.results_table(replays[0].comparison),
            DataTable("Memory and fragmentation", memory),
        ]
        yield Section(f"Results{of_trace}", tables, anchor=f"{anchor}-results")
    else:
        caption = "Fragmentation over time, and (in parentheses) at the peak"
        tables = [DataTable(caption, replay_text.fit_columns(replays))]
        tables += [
            DataTable(f"Memory under {each.schedule}", replay_text.memory_columns(each))
            for each in replays
        ]
        title = f"Fragmentation{of_trace} by schedule"
        yield Section(title, tables, anchor=f"{anchor}-results")
    more = []
    for replay in replays:
        if columns := replay_text.latency_columns(replay):
            caption = f"Latency under {replay.schedule}, all runs"
            more.append(DataTable(caption, columns, headed=False))
        if len(replay.shares) > 1:
            columns = replay_text.share_columns(replay_text.most_owed(replay))
            more.append(DataTable(f"Shares under {replay.schedule}", columns))
    if more:
        yield Section(f"Latencies and shares{of_trace}", more, anchor=f"{anchor}-more")
    yield from figure_sections(list(figures(replays)))


# --- figures --------------------------------------------------------------------------------------


def figures(replays: Sequence[Replay]) -> Iterator[Figure]:
    """Those of one trace, under one schedule or several."""
    styles = comparison.styles_of(replays[0].comparison)
    anchor = slug(replays[0].trace.name, "trace")
    if len(replays) == 1:
        yield from comparison.figures(replays[0].comparison)
    for make in (memory_over_events, fragmentation_over_events):
        if figure := make(replays, styles, anchor):
            yield figure
    for replay in replays:
        if figure := latencies(replay, styles, anchor):
            yield figure
    for make_one in (meters, shares):
        for replay in replays:
            if figure := make_one(replay, anchor):
                yield figure


def typical_line(replay: Replay, allocator: str) -> ReplayLine | None:
    nearest = series.typical_run(
        replay.comparison, allocator, TIME, lambda sample: line_of(sample) is not None
    )
    return None if nearest is None else line_of(nearest)


def curves(replay: Replay, styles: Styles, ratio: bool) -> list[Line]:
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
        if values:
            found.append(Line(info.name, series.thinned(values), styles[info.name]))
    if requested and not ratio:
        found.append(Line("requested", series.thinned(requested), REQUESTED))
    return found


def _over_events(
    replays: Sequence[Replay], styles: Styles, ratio: bool, y: Axis
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Panels and their legend."""
    drawn = [(r.schedule if len(replays) > 1 else "", curves(r, styles, ratio)) for r in replays]
    x = Axis("event", "count", zero=True)
    panels = [charts.lines(own, x, y, title) for title, own in drawn if own]
    return panels, charts.legend({line.name: line.style for _, own in drawn for line in own})


def memory_over_events(replays: Sequence[Replay], styles: Styles, anchor: str) -> Figure | None:
    y = Axis("resident memory", "bytes", zero=True)
    panels, legend = _over_events(replays, styles, False, y)
    if not panels:
        return None
    cells = [
        [replay.schedule, f.allocator, *map(size, (f.peak_bytes, f.end_bytes, f.settled_bytes))]
        for replay in replays
        for f in replay.findings
    ]
    heads = ("schedule", "allocator", "peak", "at the end", "settled")
    return Figure(
        f"{anchor}-memory-over-events",
        f"Memory over the events of {shortened(replays[0].trace.name, 32)}",
        "Resident memory of the allocator, without replay's own. The dotted line is what the "
        "program had requested: what lies above it is overhead and fragmentation. All allocators "
        "are sampled at the same events.",
        panels,
        table_of("Memory", heads, cells, left=2),
        legend,
    )


def fragmentation_over_events(
    replays: Sequence[Replay], styles: Styles, anchor: str
) -> Figure | None:
    panels, legend = _over_events(
        replays, styles, True, Axis("resident / requested - 1", zero=True)
    )
    if not panels:
        return None
    cells = [
        [replay.schedule, f.allocator, percent(f.at_peak), percent(f.over_time)]
        for replay in replays
        for f in replay.findings
    ]
    heads = ("schedule", "allocator", "at the peak", "over time")
    return Figure(
        f"{anchor}-fragmentation",
        f"Fragmentation over the events of {shortened(replays[0].trace.name, 32)}",
        "Resident memory over requested memory, less one: 0.5 is half as much again. Moments at "
        f"which less than {LEAST_LIVE:.0%} of the peak was requested are left out.",
        panels,
        table_of("Fragmentation", heads, cells, left=2),
        legend,
    )


def slower_than(latency: Latencies) -> list[tuple[float, float]]:
    """Seconds, and the share of calls that took longer; the last point is the longest call."""
    points, seen = [], 0
    for upper, calls in latency.buckets:
        seen += calls
        if seen < latency.calls:
            points.append((upper / 1e9, 1.0 - seen / latency.calls))
    last = (max(latency.max_ns, 1) / 1e9, 1.0 / latency.calls)
    return [point for point in points if point[0] < last[0]] + [last]


def latencies(replay: Replay, styles: Styles, anchor: str) -> Figure | None:
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
    x = Axis("latency", "seconds", log=True)
    y = Axis("share of calls that take longer", log=True)
    panels = [
        charts.lines([Line(name, series.thinned(slower_than(each)), styles[name])
                      for name, each in found[kind].items()], x, y, kind)
        for kind in kinds
    ]  # fmt: skip
    cells = [
        [kind, name, f"{each.calls:,}",
         *(nanoseconds(each.quantile_ns(s)) for s in (0.5, 0.99, 0.999, 0.9999)),
         nanoseconds(each.max_ns)]
        for kind in found
        for name, each in found[kind].items()
    ]  # fmt: skip
    heads = ("call", "allocator", "calls", "p50", "p99", "p99.9", "p99.99", "max")
    return Figure(
        f"{anchor}-{replay.schedule}-latency",
        f"Latencies under {replay.schedule}",
        "The share of calls (up) that took longer than a time (to the right), both logarithmic: "
        "0.001 is p99.9. Lines end at the longest call. Reading the clock is part of each latency; "
        "all runs are taken together.",
        panels,
        table_of("Latencies", heads, cells, left=2),
        charts.legend({name: styles[name] for kind in kinds for name in found[kind]}),
    )


# --- schedules ------------------------------------------------------------------------------------

RULES = {
    "stride": "The thread with the least meter runs next, so that meters keep together; they are "
    "counted from the least one at the first of these ticks.",
    "lottery": "A drawn ticket decides which thread runs, so that meters part by chance; each is "
    "counted from where it stood at the first of these ticks.",
    "round-robin": "Threads run in turn, whatever their tickets are; each meter is counted from "
    "where it stood at the first of these ticks.",
}


def meters(replay: Replay, anchor: str) -> Figure | None:
    logged = next(
        (line.meters for s in replay.comparison.samples if (line := line_of(s)) and line.meters), []
    )
    changes = liveliest(logged)
    threads = list(dict.fromkeys(change.thread for change in changes))
    if len(threads) < 2:
        return None
    shown = [f"thread {thread}" for thread in threads]
    styles = emphasised(shown, [])
    last = max(change.tick for change in changes) + 1
    least = min(_meter_before(changes, replay, thread) for thread in threads)
    drawn = []
    for thread, name in zip(threads, shown, strict=True):
        own = [change for change in changes if change.thread == thread]
        before = _meter_before(changes, replay, thread)
        points = _steps(own, before, least if replay.schedule == "stride" else before)
        goes_on = any(c.thread == thread and c.tick >= last for c in logged)
        points += [(float(last), points[-1][1])] if goes_on else []
        drawn.append(Line(name, points, styles[name], stepped=True))
    tickets = {share.thread: share.tickets for share in replay.shares}
    cells = [
        [line.name, str(tickets.get(thread, "?")), *(f"{line.points[i][1]:.4f}" for i in (0, -1))]
        for thread, line in zip(threads, drawn, strict=True)
    ]
    heads = ("thread", "tickets", "meter at first", "meter at last")
    return Figure(
        f"{anchor}-{replay.schedule}-meters",
        f"Meters over ticks under {replay.schedule}",
        "With each tick, the meter of the thread that runs goes up by one over its tickets. "
        f"{RULES.get(replay.schedule, '')}",
        [charts.lines(drawn, Axis("tick"), Axis("meter", zero=True))],
        table_of("Meters", heads, cells),
        charts.legend(styles),
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
    found = [Ratio(n, s.ticks / s.owed, said=three_digits(s.ticks / s.owed))
             for n, s in zip(names, kept, strict=True)]  # fmt: skip
    heads = ("thread", "tickets", "ticks got", "ticks owed", "got / owed", "could not run")
    cells = [
        [str(s.thread), f"{s.tickets:,}", f"{s.ticks:,}", f"{s.owed:,.2f}", got_over_owed(s),
         f"{s.skipped:,}"]
        for s in replay.shares
    ]  # fmt: skip
    title = "ticks got over ticks owed, of each thread (tickets)"
    return Figure(
        f"{anchor}-{replay.schedule}-shares",
        f"Shares under {replay.schedule}",
        "A thread is owed its share of the tickets in every tick in which it could run; 1 is a "
        "fair share. A thread that waits for others now and then loses turns, and cannot get all.",
        [charts.ratios(found, names, emphasised(names, []), title, plain=True)],
        table_of("Shares", heads, cells),
    )
