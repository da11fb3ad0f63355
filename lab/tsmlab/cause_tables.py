"""Tables of the counts next to a comparison: only those that differ between allocators, since a
table of all would hide the two that explain the result.
"""

from collections.abc import Iterator, Mapping, Sequence

from tsmlab.findings import unit_of
from tsmlab.results import Comparison
from tsmlab.sweep import describe
from tsmlab.tables import Block, Cell, Column, columns_of
from tsmlab.wording import quantity

MAX_COLUMNS = 14
# Counts that differ by less than this share say nothing about the allocators.
MIN_DIFFERENCE = 0.02
# The order in which readers look for causes; other names come after these.
_FIRST = (
    *("growth_calls", "growth_bytes", "brk_calls", "mmap_calls", "munmap_calls", "madvise_calls"),
    *("futex_calls", "futex_errors", "futex_wait_ns", "lock_waits", "lock_wait_ns", "retries"),
    *("searches", "blocks_searched", "foreign_frees", "reused_bytes", "peak_live_bytes"),
    *("free_blocks_at_snapshot", "free_bytes_at_snapshot", "segment_bytes_at_snapshot"),
)


def blocks(comparison: Comparison) -> Iterator[Block]:
    """A table for each point where anything was counted, the last point first."""
    notes = sorted({note for causes in comparison.causes for note in causes.notes})
    for point in sorted({each.point for each in comparison.causes}, reverse=True):
        counts = {c.allocator: c.counts for c in comparison.causes if c.point == point and c.counts}
        names = differing_counts(list(counts.values()))
        if names:
            where = describe(comparison.points[point].values) if comparison.points else ""
            headers = [Column(n.removesuffix("_ns").replace("_", " "), hint=n) for n in names]
            rows = [[Cell(a), *(_count(own.get(n), n) for n in names)] for a, own in counts.items()]
            columns = columns_of([Column("allocator", left=True), *headers], rows)
            yield Block(
                f"Counted{f' at {where}' if where else ''}, in runs that were not timed",
                table=columns,
                notes=notes,
                where="document",
            )


def differing_counts(counts: Sequence[Mapping[str, float]]) -> list[str]:
    """The names of counts that differ between allocators, the most telling first."""
    names = {name for each in counts for name in each}
    differing = [name for name in sorted(names) if _differs([c.get(name) for c in counts])]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(differing, key=lambda name: order.get(name, len(order)))[:MAX_COLUMNS]


def _differs(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    if not known or max(known) == 0.0:
        return False
    return len(known) == 1 or max(known) - min(known) > MIN_DIFFERENCE * max(known)


def _count(value: float | None, name: str) -> Cell:
    if value is None:
        return Cell("", "muted")
    if name.endswith("_ns"):
        return Cell(quantity(value / 1e9, "seconds"))
    return Cell(quantity(value, unit_of(name)), "" if value else "muted", f"{value:,.0f}")
