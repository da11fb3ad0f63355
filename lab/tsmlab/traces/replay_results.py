"""What `tsmalloc replay` leaves behind: for each trace and schedule a comparison, and findings.

Why: a replay is measured as any program is, so its runs are those of a comparison, each with the
line that replay printed; what only a replay can tell stands beside them.
Refuses to: filter. Every run is kept, with its samples of memory.
"""

from dataclasses import dataclass

from tsmlab import records
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo, Comparison, Row
from tsmlab.traces.planning import Program
from tsmlab.traces.replay_line import ThreadShare

SCHEMA = "tsmalloc-replays/2"


@dataclass(frozen=True)
class TraceInfo:
    """What was replayed. calls: objects by kind of call; of the first process. program: with which
    the replay begins. others: what is in the trace and not replayed, the busiest first."""

    name: str
    sha256: str
    bytes: int
    program: Program
    others: list[Program]
    events: int
    threads: int
    processes: int
    calls: dict[str, int]
    peak_live_bytes: int
    left_out: int
    is_damaged: bool

    @property
    def key(self) -> tuple[str, str]:
        """Two traces may have the same name, in different folders."""
        return (self.name, self.sha256)

    @property
    def all_calls(self) -> int:
        return sum(self.calls.values())


@dataclass(frozen=True)
class Latency:
    """One kind of call, all measured runs together."""

    kind: str
    calls: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    p9999_ns: int
    max_ns: int


@dataclass(frozen=True)
class Finding:
    """One allocator in one replay: medians over the measured runs that did not fail.

    at_peak, over_time: fragmentation, as shares of what was requested. same_addresses, same_memory:
    whether all runs had the same; None where that is not to be expected, or of fewer than two runs.
    """

    allocator: str
    runs: int
    peak_bytes: int | None
    end_bytes: int | None
    settled_bytes: int | None
    at_peak: float | None
    over_time: float | None
    same_addresses: bool | None
    same_memory: bool | None
    latencies: list[Latency]


@dataclass(frozen=True)
class Replay:
    """One trace under one schedule. shares: empty unless the schedule gives shares."""

    trace: TraceInfo
    schedule: str
    comparison: Comparison
    findings: list[Finding]
    ticks: int | None
    shares: list[ThreadShare]

    @property
    def is_deterministic(self) -> bool:
        return is_deterministic(self.schedule)

    def finding(self, allocator: str) -> Finding | None:
        return next((f for f in self.findings if f.allocator == allocator), None)


@dataclass(frozen=True)
class ReplaySettings:
    """The options that replay itself was given; those of the rounds are in each comparison."""

    schedules: list[str]
    tickets: str | None
    quantum: int | None
    seed: int
    touch: str
    verify: bool
    latency: bool
    settle_seconds: float
    image: int | None
    window: int | None


@dataclass(frozen=True)
class ReplayResults:
    """All replays of one run of the lab, in the order in which they were made."""

    schema: str
    created: str
    tsmalloc_version: str
    settings: ReplaySettings
    machine: Machine
    reference: str
    allocators: list[AllocatorInfo]
    interrupted: bool
    replays: list[Replay]

    @property
    def subject(self) -> str:
        return f"replay-{self.traces[0].name}" if self.replays else "replay"

    @property
    def failed_rows(self) -> list[Row]:
        return [row for replay in self.replays for row in replay.comparison.failed_rows]

    @property
    def traces(self) -> list[TraceInfo]:
        """Each once."""
        return list({replay.trace.key: replay.trace for replay in self.replays}.values())

    def replays_of(self, trace: TraceInfo) -> list[Replay]:
        return [replay for replay in self.replays if replay.trace.key == trace.key]

    @property
    def schedules(self) -> list[str]:
        return list(dict.fromkeys(replay.schedule for replay in self.replays))


def is_deterministic(schedule: str) -> bool:
    """Whether it makes the same calls in the same order in every run."""
    return schedule not in ("asap", "paced")


from_json = records.reader(ReplayResults, SCHEMA, "replay")
