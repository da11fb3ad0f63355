"""Replays as text: on a terminal, as Markdown, and every run as CSV.

A replay answers what `compare` answers, and then what only a replay can: fragmentation, latencies,
and whether all of it is the same in every run. The sentences are those of a comparison.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tsmlab import export, render, tables
from tsmlab.results import Trouble
from tsmlab.tables import Cell, Column, Layout, Sheet
from tsmlab.traces import files
from tsmlab.traces.replay_results import (
    Finding,
    Latency,
    Replay,
    ReplayResults,
    ThreadShare,
    TraceInfo,
)
from tsmlab.warnings import about_machine
from tsmlab.wording import counted, names, quantity, quantity_or

MOST_SHARES = 8


@dataclass(frozen=True)
class Block:
    """A part of the report: a title, a table, sentences. fails: what went wrong."""

    title: str = ""
    lines: Sequence[str] = field(default=())
    columns: Sequence[Column] = field(default=())
    notes: Sequence[str] = field(default=())
    fails: Sequence[str] = field(default=())

    def columns_in(self, _: Layout) -> Sequence[Column]:
        return self.columns


def report(results: ReplayResults, width: int, colours: bool = False) -> str:
    """The whole report, as text."""
    sheet = Sheet(width, colours)
    for number, block in enumerate(blocks(results, width)):
        if number:
            sheet.gap()
        if block.title:
            sheet.say(block.title, style="bold")
        sheet.say(*block.lines)
        if block.columns:
            sheet.table(*tables.fitted(block.columns_in, width))
        sheet.say(*block.notes, style="dim")
        sheet.say(*block.fails, style="red")
    return sheet.text


def blocks(results: ReplayResults, width: int) -> Iterator[Block]:
    """For each trace: one schedule in full, or several side by side."""
    for trace in results.traces:
        own = results.replays_of(trace)
        yield Block(lines=list(heading(trace, own)))
        if len(own) > 1:
            yield from _schedules(own)
        else:
            yield from _one(own[0], width)


def heading(trace: TraceInfo, replays: Sequence[Replay]) -> Iterator[str]:
    """The trace that was replayed, and how."""
    threads = counted(trace.threads, "thread")
    processes = "" if trace.processes == 1 else f", the first of {trace.processes:,} processes"
    peak = quantity(trace.peak_live_bytes, "bytes")
    yield (
        f"replay of {trace.name}: {trace.all_calls:,} calls of {threads}{processes}; at most "
        f"{peak} requested at once"
    )
    if trace.others:
        yield (
            f"of {1 + len(trace.others):,} programs in the trace: "
            f"{files.programs([trace.program])}; not replayed (--image N chooses): "
            f"{files.programs(trace.others)}"
        )
    if not trace.is_finished:
        yield "the recorder was killed: what the program did after its last second is not replayed"
    if trace.left_out:
        yield f"{trace.left_out:,} calls are left out, on objects of more than 1 TiB"
    for replay in replays:
        extent = render.heading(replay.comparison)[1:]
        yield f"{replay.schedule}: {extent[0]}"
        if not replay.is_deterministic:
            yield from extent[1:]


def _one(replay: Replay, width: int) -> Iterator[Block]:
    """Time and peak with their verdicts, then what only a replay tells."""
    comparison = replay.comparison
    rows = render.ranked_rows(comparison)
    failed = render.failed_lines(comparison)
    if rows:
        columns, layout = render.fitted_columns(comparison, rows, width)
        legend = render.legend(comparison, rows, layout)
        yield Block(columns=columns, notes=legend, fails=failed)
    elif failed:
        yield Block(fails=failed)
    yield Block("memory and fragmentation", columns=memory_columns(replay))
    if columns := latency_columns(replay):
        yield Block("latency, all runs together", columns=columns)
    if block := _shares(replay):
        yield block
    sentences = [f"{label:<11}{text}" for label, text in verdicts(replay)]
    if sentences:
        yield Block(lines=sentences)


def _schedules(replays: Sequence[Replay]) -> Iterator[Block]:
    fails = [
        f"{replay.schedule}: {line}"
        for replay in replays
        for line in render.failed_lines(replay.comparison)
    ]
    yield Block("fragmentation over time (at the peak)", columns=fit_columns(replays), fails=fails)
    if lines := list(_repeated(replays)):
        yield Block(lines=lines)
    for replay in replays:
        if columns := latency_columns(replay):
            yield Block(f"{replay.schedule}: latency, all runs together", columns=columns)
    for replay in replays:
        if block := _shares(replay):
            yield block


def _repeated(replays: Sequence[Replay]) -> Iterator[str]:
    """Whether runs were the same; schedules of which the same is to be said, together."""
    said: dict[str, list[str]] = {}
    for replay in replays:
        for line in repeatability(replay):
            said.setdefault(line, []).append(replay.schedule)
    for line, schedules in said.items():
        yield f"{', '.join(schedules)}: {line}"
    if replays[0].trace.threads == 1:
        yield "there is one thread, for which all schedules are the same"


def _shares(replay: Replay) -> Block | None:
    """Of the threads that were owed most; None for a single thread, which gets everything."""
    if len(replay.shares) < 2:
        return None
    shown = most_owed(replay)
    more = len(replay.shares) - len(shown)
    return Block(
        f"{replay.schedule}: shares of {replay.ticks or 0:,} ticks",
        columns=share_columns(shown),
        notes=[f"and {more:,} threads that were owed less (--export-json)"] if more else [],
    )


def most_owed(replay: Replay) -> list[ThreadShare]:
    """Those for which a share matters most, by number."""
    kept = sorted(replay.shares, key=lambda share: -share.owed)[:MOST_SHARES]
    return sorted(kept, key=lambda share: share.thread)


def verdicts(replay: Replay) -> list[tuple[str, str]]:
    """The sentences of a comparison but the last, which would say how to replay faster; and whether
    the runs were the same."""
    found = [(label, text) for label, text in render.verdict_lines(replay.comparison)
             if label != "use it"]  # fmt: skip
    recommended = replay.comparison.analysis.recommended
    if recommended not in (None, replay.comparison.reference):
        found.append(("use it", f"tsmalloc run {recommended} -- PROGRAM"))
    return found + [("repeated", line) for line in repeatability(replay)]


def troubles(results: ReplayResults) -> list[Trouble]:
    """Those of all comparisons, each once; the machine's are the same in all."""
    every = [trouble for replay in results.replays for trouble in replay.comparison.warnings]
    machine = {trouble.code for trouble in about_machine(results.machine)}
    return list({(t.code, t.code in machine or t.symptom): t for t in every}.values())


def markdown(results: ReplayResults) -> str:
    """The same report for a document."""
    lines: list[str] = []
    for block in blocks(results, tables.PIPE_WIDTH):
        if block.title:
            lines += [f"**{block.title}**", ""]
        lines += [f"- {line}" for line in block.lines]
        if block.lines:
            lines.append("")
        if block.columns:
            lines += [*tables.markdown_table(block.columns), ""]
        rest = [f"- {line.strip()}" for line in (*block.notes, *block.fails)]
        lines += [*rest, ""] if rest else []
    lines += [f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in troubles(results)]
    lines += ["", tables.measured_on(results.machine, results.created)]
    return "\n".join(lines) + "\n"


def to_csv(results: ReplayResults) -> str:
    """A line for each run, with trace and schedule before it."""
    parts = [((each.trace.name, each.schedule), each.comparison) for each in results.replays]
    return export.csv_of_comparisons(("trace", "schedule"), parts)


formatted = export.formatter(csv=to_csv, markdown=markdown)


# --- tables ---------------------------------------------------------------------------------------


KIND_ORDER = ("malloc", "calloc", "aligned", "realloc", "free", "null")
DIFFERS = "red"


def percent(fraction: float | None) -> str:
    """Fragmentation is told to a hundredth of a per cent: where it repeats, digits are no noise."""
    return "-" if fraction is None else f"{fraction * 100.0:.2f} %"


def size(value: int | None) -> str:
    return quantity_or(value, "bytes", "-")


def memory_columns(replay: Replay) -> list[Column]:
    """A row for each allocator that was replayed, the least memory first, after one for the least
    that any could need."""
    found = sorted(
        (f for f in replay.findings if f.runs),
        key=lambda f: (f.peak_bytes is None, f.peak_bytes or 0),
    )
    columns = [
        Column("allocator", [Cell(f.allocator) for f in found], left=True),
        Column("peak", [Cell(size(f.peak_bytes)) for f in found]),
        Column("at the end", [Cell(size(f.end_bytes)) for f in found], expendable=2),
        Column("settled", [Cell(size(f.settled_bytes)) for f in found]),
        Column("fragmentation at the peak", [Cell(percent(f.at_peak)) for f in found]),
        Column("over time", [Cell(percent(f.over_time)) for f in found]),
    ]
    if replay.is_deterministic:
        columns.append(Column("addresses", [_same(f.same_addresses) for f in found], left=True))
        columns.append(Column("memory", [_same(f.same_memory) for f in found], left=True))
    bound = [Cell("lower bound"), Cell(size(replay.lower_bound_bytes))]
    rest = [Cell("-")] * (len(columns) - len(bound))
    return [
        replace(column, cells=[cell, *column.cells])
        for column, cell in zip(columns, [*bound, *rest], strict=True)
    ]


def _same(same: bool | None) -> Cell:
    if same is None:
        return Cell("-")
    return Cell("same") if same else Cell("differ", DIFFERS)


def latency_columns(replay: Replay) -> list[Column]:
    """A block of rows for each kind of call; none if latencies were not measured."""
    rows: list[tuple[str, Finding, Latency]] = []
    for kind in KIND_ORDER:
        own = [(f, each) for f in replay.findings for each in f.latencies if each.kind == kind]
        rows += [(kind, *pair) for pair in sorted(own, key=lambda pair: pair[1].p999_ns)]
    if not rows:
        return []
    labels = [kind if place == 0 or rows[place - 1][0] != kind else "" for place, (kind, *_)
              in enumerate(rows)]  # fmt: skip
    columns = [
        Column("call", [Cell(label) for label in labels], left=True),
        Column("allocator", [Cell(finding.allocator) for _, finding, _ in rows], left=True),
        Column("calls", [Cell(f"{each.calls:,}") for *_, each in rows], expendable=1),
    ]
    for header, key in (
        ("p50", "p50_ns"),
        ("p99", "p99_ns"),
        ("p99.9", "p999_ns"),
        ("p99.99", "p9999_ns"),
        ("max", "max_ns"),
    ):
        columns.append(Column(header, [Cell(nanoseconds(getattr(e, key))) for *_, e in rows]))
    return columns


def nanoseconds(value: int) -> str:
    return quantity(value / 1e9, "seconds")


def share_columns(shares: Sequence[ThreadShare]) -> list[Column]:
    """The ticks of each thread, and those that it was owed."""
    return [
        Column("thread", [Cell(str(s.thread)) for s in shares]),
        Column("tickets", [Cell(f"{s.tickets:,}") for s in shares]),
        Column("ticks", [Cell(f"{s.ticks:,}") for s in shares]),
        Column("owed", [Cell(f"{s.owed:,.1f}") for s in shares]),
        Column("got / owed", [Cell(got_over_owed(s)) for s in shares]),
        Column("could not run", [Cell(f"{s.skipped:,}") for s in shares], expendable=1),
    ]


def got_over_owed(share: ThreadShare) -> str:
    return f"{share.ticks / share.owed:.4f}" if share.owed else "-"


def fit_columns(replays: Sequence[Replay]) -> list[Column]:
    """One trace under several schedules: fragmentation over time, with that at the peak."""
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
    told = [f for f in replay.findings if f.same_addresses is not None]
    if not told:
        return []
    lines = []
    for what, key in (("addresses", "same_addresses"), ("memory at every sample", "same_memory")):
        differ = [f.allocator for f in told if not getattr(f, key)]
        if not differ:
            whose = f"each of {len(told)} allocators" if len(told) > 1 else told[0].allocator
            lines.append(f"{what}: the same in all runs of {whose}")
        else:
            same = len(told) - len(differ)
            lines.append(f"{what}: differ between runs of {names(differ)}; the same for {same}")
    return lines
