"""What a person reads of replays: on a terminal, as Markdown, and every run as CSV.

Why: a replay answers what `compare` answers, and then what only a replay can: fragmentation,
latencies, and whether all of it is the same in every run.
Refuses to: compute, and to word a verdict anew. The sentences are those of a comparison.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tsmlab import export, render, tables
from tsmlab.results import Trouble
from tsmlab.tables import Column, Layout, Sheet
from tsmlab.traces import planning
from tsmlab.traces.replay_line import ThreadShare
from tsmlab.traces.replay_results import Replay, ReplayResults, TraceInfo
from tsmlab.traces.replay_tables import (
    fit_columns,
    latency_columns,
    memory_columns,
    repeatability,
    share_columns,
)
from tsmlab.warnings import about_machine
from tsmlab.wording import quantity

MOST_SHARES = 8


@dataclass(frozen=True)
class Block:
    """A part of the report: a title, a table, sentences. fails: what went wrong."""

    title: str = ""
    lines: Sequence[str] = field(default=())
    columns: Sequence[Column] = field(default=())
    notes: Sequence[str] = field(default=())
    fails: Sequence[str] = field(default=())


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
            sheet.table(*tables.fitted(partial(_columns_of, block), width))
        sheet.say(*block.notes, style="dim")
        sheet.say(*block.fails, style="red")
    return sheet.text


def _columns_of(block: Block, _: Layout) -> Sequence[Column]:
    return block.columns


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
    """What was replayed, and how."""
    threads = f"{trace.threads:,} thread{'' if trace.threads == 1 else 's'}"
    processes = "" if trace.processes == 1 else f", the first of {trace.processes:,} processes"
    peak = quantity(trace.peak_live_bytes, "bytes")
    yield (
        f"replay of {trace.name}: {trace.all_calls:,} calls of {threads}{processes}; at most "
        f"{peak} requested at once"
    )
    if trace.others:
        yield (
            f"of {1 + len(trace.others):,} programs in the trace: "
            f"{planning.programs([trace.program])}; not replayed (--image N chooses): "
            f"{planning.programs(trace.others)}"
        )
    if damage := planning.damage(trace.left_out, trace.is_damaged):
        yield damage
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
    """Those for whom a share matters most, by number."""
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
    runs = (
        ((replay.trace.name, replay.schedule), sample)
        for replay in results.replays
        for sample in replay.comparison.samples
    )
    keys = {spec.key: spec.key for r in results.replays for spec in r.comparison.metrics}
    return export.csv_text(("trace", "schedule"), runs, keys)


formatted = export.formatter(csv=to_csv, markdown=markdown)
