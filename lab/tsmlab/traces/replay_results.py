"""Results that only replays have, besides the comparison of a trace under a schedule: replay's own
line for each run, and what follows from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tsmlab.measuring import JsonField, counts_of, read_answer, rows_of, seconds_of, whole_or_none
from tsmlab.results import Comparison, Sample
from tsmlab.traces.files import Program

if TYPE_CHECKING:
    from tsmlab.study import Study

# --- one replay, in the words of bin/replay -------------------------------------------------------


LINE_SCHEMA = "tsmalloc-replay/1"


@dataclass(frozen=True)
class Point:
    """The state after this many events: requested bytes, and resident bytes for them."""

    event: int
    live_bytes: int
    resident_bytes: int


@dataclass(frozen=True)
class ThreadShare:
    """The share of a thread under a schedule: ticks that it got, ticks when it could not run, and
    ticks that it was owed."""

    thread: int
    tickets: int
    ticks: int
    skipped: int
    owed: float


@dataclass(frozen=True)
class ReplayLine:
    """The output line of replay. `raw` is the line as printed."""

    raw: Mapping[str, Any]

    seconds = JsonField(seconds_of, "wall_ns")
    threads = JsonField(int, "planned", "threads")
    events = JsonField(int, "planned", "events")
    left_out = JsonField(int, "planned", "left_out")
    planned_peak_bytes = JsonField(int, "planned", "peak_live_bytes")
    calls = JsonField(counts_of, "calls")
    checksum = JsonField(str, "checksum")
    peak_resident_bytes = JsonField(whole_or_none, "peak_resident_bytes")
    end_resident_bytes = JsonField(whole_or_none, "end_resident_bytes")

    @property
    def processes(self) -> int:
        return 1 + len(self.raw["children"])

    @property
    def peak_live_bytes(self) -> int:
        """The most bytes requested at once in this order of calls; with real threads, whose order
        is not known exactly, in the recorded order."""
        is_exact = self.raw["schedule"] not in ("asap", "paced")
        return int(self.raw["peak_live_bytes"]) if is_exact else self.planned_peak_bytes

    @property
    def settled_resident_bytes(self) -> int | None:
        """After everything was freed, and some idle time."""
        settled = whole_or_none(self.raw["settled_resident_bytes"])
        return whole_or_none(self.raw["freed_resident_bytes"]) if settled is None else settled

    @property
    def points(self) -> list[Point]:
        return [Point(*sample[:3]) for sample in self.raw["samples"] or []]

    @property
    def shares(self) -> list[ThreadShare]:
        return rows_of(ThreadShare)(self.raw.get("shares"))

    @property
    def ticks(self) -> int | None:
        return whole_or_none(self.raw.get("ticks"))

    @property
    def at_peak(self) -> float | None:
        """Fragmentation by the peaks: how much more was resident than ever requested at once, as a
        share (Johnstone and Wilson's fourth measure)."""
        peak = self.peak_resident_bytes
        return peak / self.peak_live_bytes - 1.0 if peak and self.peak_live_bytes else None

    @property
    def over_time(self) -> float | None:
        """Fragmentation over the whole replay: mean resident bytes over mean requested bytes, minus
        one (their first measure, with each sample weighted by its size)."""
        live = sum(point.live_bytes for point in self.points)
        resident = sum(point.resident_bytes for point in self.points)
        return resident / live - 1.0 if live else None


def decode(text: str) -> ReplayLine:
    return ReplayLine(read_answer(text, "replay", LINE_SCHEMA))


def line_of(sample: Sample) -> ReplayLine | None:
    """The output of replay; None for a run that failed."""
    raw = sample.measurement.get("replay")
    return None if raw is None or sample.failure else ReplayLine(raw)


# --- what is kept ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TraceInfo:
    """What was replayed. calls: objects by kind of call, in the first process. program: the first
    one replayed. others: programs of the trace that are not replayed, the busiest first."""

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
    is_finished: bool

    @property
    def key(self) -> tuple[str, str]:
        """Two traces may have the same name, in different folders."""
        return (self.name, self.sha256)

    @property
    def all_calls(self) -> int:
        return sum(self.calls.values())


@dataclass(frozen=True)
class Latency:
    """One kind of call, over all measured runs."""

    kind: str
    calls: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    p9999_ns: int
    max_ns: int

    @staticmethod
    def of(kind: str, runs: Sequence[Mapping[str, Any]]) -> Latency:
        """From replay's counts of the calls in each bucket, which is named by its upper end. A
        quantile is the upper end of the bucket in which its share of the calls is reached."""
        buckets: Counter[int] = Counter()
        for upper, calls in (bucket for run in runs for bucket in run["buckets"]):
            buckets[int(upper)] += calls
        uppers, longest = sorted(buckets), max(int(run["max_ns"]) for run in runs)
        seen = list(accumulate(buckets[upper] for upper in uppers))
        places = (bisect_left(seen, share * seen[-1]) for share in (0.5, 0.99, 0.999, 0.9999))
        p50, p99, p999, p9999 = (min(uppers[place], longest) for place in places)
        return Latency(kind, seen[-1], p50, p99, p999, p9999, longest)


@dataclass(frozen=True)
class Finding:
    """One allocator in one replay: medians over the measured runs that did not fail.

    at_peak, over_time: fragmentation, as shares of the requested bytes. same_addresses,
    same_memory: whether they were equal in all runs; None if that is not expected, or with fewer
    than two runs.
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
class Replayed:
    """One trace under one schedule. shares: empty unless the schedule assigns shares."""

    trace: TraceInfo
    schedule: str
    findings: list[Finding]
    ticks: int | None
    shares: list[ThreadShare]


@dataclass(frozen=True)
class ReplaySettings:
    """The options of replay itself; those of the rounds are in each comparison."""

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
class Replays:
    """The answer of replay: trace and schedule of each part of the study."""

    settings: ReplaySettings
    reference: str
    parts: list[Replayed]


# --- what is read ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay(Replayed):
    """A replay with its comparison."""

    comparison: Comparison

    @property
    def is_deterministic(self) -> bool:
        return is_deterministic(self.schedule)

    @property
    def lower_bound_bytes(self) -> int:
        """The most bytes requested at once, which is the least that any allocator can need."""
        lines = filter(None, map(line_of, self.comparison.samples))
        return next((line.peak_live_bytes for line in lines), self.trace.peak_live_bytes)

    def finding(self, allocator: str) -> Finding | None:
        return next((f for f in self.findings if f.allocator == allocator), None)


def replays_of(study: Study) -> list[Replay]:
    """In the order in which they were made."""
    assert study.replay is not None
    pairs = zip(study.replay.parts, study.parts, strict=True)
    return [Replay(**vars(each), comparison=comparison) for each, comparison in pairs]


def by_trace(study: Study) -> list[list[Replay]]:
    """The replays of each trace together."""
    found: dict[tuple[str, str], list[Replay]] = {}
    for replay in replays_of(study):
        found.setdefault(replay.trace.key, []).append(replay)
    return list(found.values())


def is_deterministic(schedule: str) -> bool:
    """Whether the schedule makes the same calls in the same order in every run."""
    return schedule not in ("asap", "paced")
