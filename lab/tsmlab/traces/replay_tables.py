"""The tables of replays: memory and fragmentation, latencies, shares, and fits under schedules.

Why: terminal, Markdown and report show the same tables.
Refuses to: compute. The findings are in the results.
"""

from collections.abc import Sequence

from tsmlab.tables import Cell, Column
from tsmlab.traces.replay_line import ThreadShare
from tsmlab.traces.replay_results import Finding, Latency, Replay
from tsmlab.wording import names, quantity

KIND_ORDER = ("malloc", "calloc", "aligned", "realloc", "free", "null")
DIFFERS = "red"


def percent(fraction: float | None) -> str:
    """Fragmentation is told to a hundredth of a per cent: where it repeats, digits are no noise."""
    return "-" if fraction is None else f"{fraction * 100.0:.2f} %"


def size(value: int | None) -> str:
    return "-" if value is None else quantity(value, "bytes")


def memory_columns(replay: Replay) -> list[Column]:
    """A row for each allocator that was replayed: the least memory first."""
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
    return columns


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
    """What each thread got of what it was owed."""
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
            lines.append(f"{what}: the same in all runs of each of {len(told)} allocators")
        else:
            same = len(told) - len(differ)
            lines.append(f"{what}: differ between runs of {names(differ)}; the same for {same}")
    return lines
