"""Replays as text and tables: the comparison, then what only replays have: fragmentation,
latencies, and whether everything is the same in every run.
"""

from collections.abc import Iterator, Sequence

from tsmlab import render
from tsmlab.study import Study
from tsmlab.tables import Block, Cell, Column, columns_of
from tsmlab.traces import files
from tsmlab.traces.replay_results import Finding, Replay, by_trace
from tsmlab.wording import counted, names, quantity, quantity_or

MAX_SHARES = 8


def blocks(study: Study) -> Iterator[Block]:
    """For each trace: one schedule in full, or several next to each other."""
    for own in by_trace(study):
        yield Block(lines=list(map(answer, own)), style="bold")
        yield Block(lines=list(heading(own)))
        if len(own) > 1:
            yield from _schedules(own)
        else:
            yield from _one(own[0])


def answer(replay: Replay) -> str:
    """For a deterministic schedule, times are meaningless, and memory decides."""
    found = [each for each in replay.findings if each.peak_bytes is not None]
    if not replay.is_deterministic or not found:
        return render.answers(replay.comparison)[0]
    smallest = min(found, key=lambda each: each.peak_bytes or 0)
    return (
        f"Least memory of {replay.trace.name} under {replay.schedule}: {smallest.allocator}, "
        f"{size(smallest.peak_bytes)} at the peak, {percent(smallest.over_time)} fragmentation "
        "over time."
    )


def heading(replays: Sequence[Replay]) -> Iterator[str]:
    trace = replays[0].trace
    threads = counted(trace.threads, "thread")
    processes = "" if trace.processes == 1 else f", the first of {trace.processes:,} processes"
    peak = quantity(trace.peak_live_bytes, "bytes")
    yield (
        f"replay of {trace.name}: {counted(trace.all_calls, 'call')} of {threads}{processes}; "
        f"at most {peak} requested at once"
    )
    if trace.others:
        yield (
            f"one of {1 + len(trace.others):,} programs in the trace: "
            f"{files.programs([trace.program])}; not replayed (choose with --image N): "
            f"{files.programs(trace.others)}"
        )
    if not trace.is_finished:
        yield "the recorder was killed: what the program did after its last second is not replayed"
    if trace.left_out:
        yield f"skipped: {counted(trace.left_out, 'call')} on objects of more than 1 TiB"
    for replay in replays:
        extent = render.heading(replay.comparison)[1:]
        yield f"{replay.schedule}: {extent[0]}"
        if not replay.is_deterministic:
            yield from extent[1:]


def _one(replay: Replay) -> Iterator[Block]:
    """Time and peak with their verdicts, then what only replays have."""
    comparison = replay.comparison
    if rows := render.ranked_rows(comparison):
        yield render.ranking(comparison, rows)
    if failed := render.failed_lines(comparison):
        yield Block(fails=failed)
    yield Block("memory and fragmentation", table=memory_columns(replay))
    if columns := latency_columns(replay):
        yield Block("latency, all runs together", table=columns)
    yield from _shares(replay)
    if sentences := verdicts(replay):
        yield Block(labelled=sentences)


def _schedules(replays: Sequence[Replay]) -> Iterator[Block]:
    fails = [
        f"{replay.schedule}: {line}"
        for replay in replays
        for line in render.failed_lines(replay.comparison)
    ]
    title = "fragmentation over time (at the peak)"
    yield Block(title, table=fit_columns(replays), fails=fails)
    if lines := list(_repeated(replays)):
        yield Block(lines=lines)
    for replay in replays:
        if columns := latency_columns(replay):
            yield Block(f"{replay.schedule}: latency, all runs together", table=columns)
    for replay in replays:
        yield from _shares(replay)


def _repeated(replays: Sequence[Replay]) -> Iterator[str]:
    """Whether runs were the same; schedules with the same result are reported together."""
    schedules_by_line: dict[str, list[str]] = {}
    for replay in replays:
        for line in repeatability(replay):
            schedules_by_line.setdefault(line, []).append(replay.schedule)
    for line, schedules in schedules_by_line.items():
        yield f"{', '.join(schedules)}: {line}"
    if replays[0].trace.threads == 1:
        yield "with one thread, all schedules are the same"


def _shares(replay: Replay) -> Iterator[Block]:
    """Of the threads that were owed most, by number; a single thread gets everything."""
    if len(replay.shares) < 2:
        return
    most_owed = sorted(replay.shares, key=lambda share: -share.owed)[:MAX_SHARES]
    shown = sorted(most_owed, key=lambda share: share.thread)
    columns = [
        Column("thread", [Cell(str(s.thread)) for s in shown]),
        Column("tickets", [Cell(f"{s.tickets:,}") for s in shown]),
        Column("ticks", [Cell(f"{s.ticks:,}") for s in shown]),
        Column("owed", [Cell(f"{s.owed:,.1f}") for s in shown]),
        Column("got / owed", [Cell(f"{s.ticks / s.owed:.4f}" if s.owed else "-") for s in shown]),
        Column("could not run", [Cell(f"{s.skipped:,}") for s in shown], drop_priority=1),
    ]
    more = len(replay.shares) - len(shown)
    rest = f"and {counted(more, 'thread')} that were owed less (see --export-json)"
    title = f"{replay.schedule}: shares of {counted(replay.ticks or 0, 'tick')}"
    yield Block(title, table=columns, notes=[rest] if more else [])


def verdicts(replay: Replay) -> list[tuple[str, str]]:
    """The sentences of a comparison except the last, which would say how to replay faster; and
    whether the runs were the same."""
    found = [(label, text) for label, text in render.verdict_lines(replay.comparison)
             if label != "use it"]  # fmt: skip
    recommended = replay.comparison.analysis.recommended
    if recommended not in (None, replay.comparison.reference):
        found.append(("use it", f"tsmalloc run {recommended} -- PROGRAM"))
    return found + [("repeated", line) for line in repeatability(replay)]


# --- tables ---------------------------------------------------------------------------------------


KIND_ORDER = ("malloc", "calloc", "aligned", "realloc", "free", "null")
DIFFERS = "red"


def percent(fraction: float | None) -> str:
    """Fragmentation is printed to a hundredth of a per cent: if it repeats, the digits are not
    noise."""
    return "-" if fraction is None else f"{fraction * 100.0:.2f}%"


def size(value: int | None) -> str:
    return quantity_or(value, "bytes", "-")


def memory_columns(replay: Replay) -> list[Column]:
    """A row for each replayed allocator, the least memory first, below one for the lower bound."""
    lower_bound = replay.lower_bound_bytes
    bound = Finding("lower bound", 0, lower_bound, None, None, None, None, None, None, [])
    found = [f for f in replay.findings if f.runs]
    found = [bound, *sorted(found, key=lambda f: (f.peak_bytes is None, f.peak_bytes or 0))]
    columns = [
        Column("allocator", [Cell(f.allocator) for f in found], left=True),
        Column("peak", [Cell(size(f.peak_bytes)) for f in found]),
        Column("at the end", [Cell(size(f.end_bytes)) for f in found], drop_priority=2),
        Column("settled", [Cell(size(f.settled_bytes)) for f in found]),
        Column("fragmentation at the peak", [Cell(percent(f.at_peak)) for f in found]),
        Column("over time", [Cell(percent(f.over_time)) for f in found]),
    ]
    if replay.is_deterministic:
        columns.append(Column("addresses", [_same(f.same_addresses) for f in found], left=True))
        columns.append(Column("memory", [_same(f.same_memory) for f in found], left=True))
    return columns


def _same(same: bool | None) -> Cell:
    if same is None:
        return Cell("-")
    return Cell("same") if same else Cell("differ", DIFFERS)


def latency_columns(replay: Replay) -> list[Column]:
    """A block of rows for each kind of call; none if latencies were not measured."""
    rows = []
    for kind in KIND_ORDER:
        own = [(e, f.allocator) for f in replay.findings for e in f.latencies if e.kind == kind]
        for place, (e, name) in enumerate(sorted(own, key=lambda pair: pair[0].p999_ns)):
            times = (e.p50_ns, e.p99_ns, e.p999_ns, e.p9999_ns, e.max_ns)
            words = [quantity(each / 1e9, "seconds") for each in times]
            rows.append(["" if place else kind, name, f"{e.calls:,}", *words])
    calls = Column("calls", drop_priority=1)
    headers = ("call", "allocator", calls, "p50", "p99", "p99.9", "p99.99", "max")
    return columns_of(headers, rows, left=2) if rows else []


def fit_columns(replays: Sequence[Replay]) -> list[Column]:
    """One trace under several schedules: fragmentation over time, and at the peak."""
    allocators = list(dict.fromkeys(f.allocator for r in replays for f in r.findings))
    columns = [Column("allocator", [Cell(name) for name in allocators], left=True)]
    for replay in replays:
        cells = []
        for name in allocators:
            finding = replay.finding(name)
            if finding is None or not finding.runs:
                cells.append(Cell("-"))
                continue
            differs = finding.same_memory is False
            mark = " (differs)" if differs else ""
            words = f"{percent(finding.over_time)} ({percent(finding.at_peak)}){mark}"
            cells.append(Cell(words, DIFFERS if differs else ""))
        columns.append(Column(replay.schedule, cells))
    return columns


def repeatability(replay: Replay) -> list[str]:
    """Whether runs of a deterministic schedule were the same; nothing for others."""
    deterministic = [f for f in replay.findings if f.same_addresses is not None]
    if not deterministic:
        return []
    lines = []
    for what, key in (("addresses", "same_addresses"), ("memory at every sample", "same_memory")):
        differ = [f.allocator for f in deterministic if not getattr(f, key)]
        if not differ:
            whose = (
                f"each of {len(deterministic)} allocators"
                if len(deterministic) > 1
                else deterministic[0].allocator
            )
            lines.append(f"{what}: the same in all runs of {whose}")
        else:
            same = len(deterministic) - len(differ)
            lines.append(f"{what}: differ between runs of {names(differ)}; the same for {same}")
    return lines
