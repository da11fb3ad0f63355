"""What `tsmalloc floors` leaves behind: for each trace the runs, and what is over the floors.

Why: an excess is a quotient of measurements; all of them are kept beside it.
Refuses to: filter. Every run is in its comparison.
"""

from dataclasses import dataclass

from tsmlab import records
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo, Comparison

SCHEMA = "tsmalloc-floors-results/2"


@dataclass(frozen=True)
class Excess:
    """How much more than the floor: 0.05 is a twentieth more. low, high: the 95 % interval."""

    excess: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FloorRow:
    """One allocator on one trace; also the floor itself, which has no excess. peak_bytes: the
    median, without what is resident before any call (TraceFloors.base_bytes)."""

    allocator: str
    failure: str | None
    runs: int
    seconds: float | None
    time: Excess | None
    peak_bytes: int | None
    memory: Excess | None


@dataclass(frozen=True)
class TraceFloors:
    """bound_bytes: the most that was live at one time. left_out: events on unknown objects.
    base_bytes: resident when replay begins, of the floor."""

    trace: str
    bound_bytes: int
    left_out: int
    is_damaged: bool
    base_bytes: int
    floor_seconds: float | None
    rows: list[FloorRow]
    comparison: Comparison


@dataclass(frozen=True)
class FloorResults:
    schema: str
    created: str
    tsmalloc_version: str
    touch: str
    machine: Machine
    allocators: list[AllocatorInfo]
    interrupted: bool
    traces: list[TraceFloors]

    @property
    def subject(self) -> str:
        return f"floors-{self.traces[0].trace}" if self.traces else "floors"

    @property
    def has_failures(self) -> bool:
        return any(row.failure for each in self.traces for row in each.rows)


from_json = records.reader(FloorResults, SCHEMA, "floors")
