"""What was counted, as a table: of dozens of counts those that tell the allocators apart.

Why: a table of all counts hides the two that explain the result.
Refuses to: explain. The findings do, with these counts.
"""

from collections.abc import Sequence

from tsmlab.experiments.model import Experiment
from tsmlab.metrics import Unit
from tsmlab.report.figures.sweeps import describe
from tsmlab.report.tables import Cell, Column, DataTable
from tsmlab.wording import quantity

MOST_COLUMNS = 14
# Counts that differ by less than this share say nothing about the allocators.
LEAST_DIFFERENCE = 0.02
# The order in which a reader looks for causes; names that are not here come after these.
_FIRST = (
    *("growth_calls", "growth_bytes", "brk_calls", "mmap_calls", "munmap_calls", "madvise_calls"),
    *("futex_calls", "futex_errors", "futex_wait_ns", "lock_waits", "lock_wait_ns", "retries"),
    *("searches", "blocks_searched", "foreign_frees", "reused_bytes", "peak_live_bytes"),
    *("free_blocks_at_snapshot", "free_bytes_at_snapshot", "segment_bytes_at_snapshot"),
)


def tables(experiment: Experiment) -> list[DataTable]:
    """One table for each point where anything was counted, the last point's first."""
    points = sorted({cell.point for cell in experiment.cells if cell.causes}, reverse=True)
    return [table for point in points if (table := _table(experiment, point)) is not None]


def _table(experiment: Experiment, point: int) -> DataTable | None:
    counts = {
        cell.allocator: cell.causes.counts
        for cell in experiment.cells
        if cell.point == point and cell.causes and cell.causes.counts
    }
    names = telling(list(counts.values()))
    if not names:
        return None
    titles = {p.name: p.title for p in experiment.definition.parameters}
    where = describe(experiment.points[point], titles)
    shown = [name for name in experiment.allocators if name in counts]
    columns = [Column("allocator", left=True), *(Column(_title(n), hint=n) for n in names)]
    rows = [
        [Cell(allocator), *(_cell(counts[allocator].get(name), name) for name in names)]
        for allocator in shown
    ]
    at = f" at {where}" if where else ""
    return DataTable(f"Counted{at}, in runs that were not timed", columns, rows)


def telling(counts: Sequence[dict[str, float]]) -> list[str]:
    """The names of counts that differ between allocators, the most sought ones first."""
    names = {name for each in counts for name in each}
    differing = [name for name in sorted(names) if _differs([c.get(name) for c in counts])]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(differing, key=lambda name: order.get(name, len(order)))[:MOST_COLUMNS]


def _differs(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    if not known or max(known) == 0.0:
        return False
    return len(known) == 1 or max(known) - min(known) > LEAST_DIFFERENCE * max(known)


def _title(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _cell(value: float | None, name: str) -> Cell:
    if value is None:
        return Cell("", "muted")
    unit: Unit = "count"
    if name.endswith("_ns"):
        return Cell(quantity(value / 1e9, "seconds"))
    if name.endswith("_bytes") or "_bytes_" in name:
        unit = "bytes"
    return Cell(quantity(value, unit), "muted" if value == 0 else "", f"{value:,.0f}")
