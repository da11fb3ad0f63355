"""One replay in the words of bin/replay: the line of JSON that it prints, and what follows from it.

Why: which field is called what is known here only; lab/native/README.md has the list.
Refuses to: judge. A replay that went wrong says so by its exit status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tsmlab.measuring import read_answer

SCHEMA = "tsmalloc-replay/1"


@dataclass(frozen=True)
class Point:
    """A moment: after so many events, what was requested, and what was resident for it."""

    event: int
    live_bytes: int
    resident_bytes: int


@dataclass(frozen=True)
class Latencies:
    """The calls of one kind. buckets: upper ends in nanoseconds, and how many calls are in each."""

    calls: int
    max_ns: int
    buckets: tuple[tuple[int, int], ...]

    def quantile_ns(self, share: float) -> int:
        """The upper end of the bucket in which this share of the calls is complete."""
        wanted, seen = share * self.calls, 0
        for upper, calls in self.buckets:
            seen += calls
            if seen >= wanted:
                return min(upper, self.max_ns)
        return self.max_ns


@dataclass(frozen=True)
class ThreadShare:
    """What a schedule gave to a thread: ticks that it got, in which it could not run, and that it
    was owed."""

    thread: int
    tickets: int
    ticks: int
    skipped: int
    owed: float


@dataclass(frozen=True)
class MeterChange:
    tick: int
    thread: int
    ran: bool
    meter: float


@dataclass(frozen=True)
class ReplayLine:
    """The line. `raw` is what was printed."""

    raw: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return float(self.raw["wall_ns"]) / 1e9

    @property
    def threads(self) -> int:
        return int(self.raw["planned"]["threads"])

    @property
    def events(self) -> int:
        return int(self.raw["planned"]["events"])

    @property
    def left_out(self) -> int:
        return int(self.raw["planned"]["left_out"])

    @property
    def calls(self) -> dict[str, int]:
        return {kind: int(number) for kind, number in self.raw["calls"].items()}

    @property
    def processes(self) -> int:
        return 1 + len(self.raw["children"])

    @property
    def checksum(self) -> str:
        return str(self.raw["checksum"])

    @property
    def planned_peak_bytes(self) -> int:
        """The most that was requested at once when the trace was recorded."""
        return int(self.raw["planned"]["peak_live_bytes"])

    @property
    def peak_live_bytes(self) -> int:
        """The most that was requested at once in this order of calls; with real threads, whose
        order nobody knows to the call, that of the recorded one."""
        is_exact = self.raw["schedule"] not in ("asap", "paced")
        return int(self.raw["peak_live_bytes"]) if is_exact else self.planned_peak_bytes

    @property
    def peak_resident_bytes(self) -> int | None:
        return _whole(self.raw["peak_resident_bytes"])

    @property
    def end_resident_bytes(self) -> int | None:
        return _whole(self.raw["end_resident_bytes"])

    @property
    def settled_resident_bytes(self) -> int | None:
        """After all was freed, and some idling."""
        settled = _whole(self.raw["settled_resident_bytes"])
        return _whole(self.raw["freed_resident_bytes"]) if settled is None else settled

    @property
    def points(self) -> list[Point]:
        return [Point(*map(int, sample[:3])) for sample in self.raw["samples"] or []]

    @property
    def memory(self) -> list[list[int | None]]:
        """All that samples tell, to be held against another run's."""
        return [list(sample) for sample in self.raw["samples"] or []]

    @property
    def latencies(self) -> dict[str, Latencies]:
        """By kind of call; empty if they were not measured."""
        return {
            kind: Latencies(
                int(each["calls"]),
                int(each["max_ns"]),
                tuple((int(upper), int(calls)) for upper, calls in each["buckets"]),
            )
            for kind, each in (self.raw["latency"] or {}).items()
            if each["calls"]
        }

    @property
    def shares(self) -> list[ThreadShare]:
        return [
            ThreadShare(int(thread), int(tickets), int(ticks), int(skipped), float(owed))
            for thread, tickets, ticks, skipped, owed in self.raw.get("shares") or []
        ]

    @property
    def ticks(self) -> int | None:
        return _whole(self.raw.get("ticks"))

    @property
    def meters(self) -> list[MeterChange]:
        return [
            MeterChange(int(tick), int(thread), bool(ran), float(meter))
            for tick, thread, ran, meter in self.raw.get("meters") or []
        ]

    @property
    def at_peak(self) -> float | None:
        """Fragmentation by the peaks: how much more was resident than was ever requested at once,
        as a share (Johnstone and Wilson's fourth measure)."""
        peak = self.peak_resident_bytes
        return peak / self.peak_live_bytes - 1.0 if peak and self.peak_live_bytes else None

    @property
    def over_time(self) -> float | None:
        """Fragmentation over the whole replay: the mean of what was resident, over that of what was
        requested, less one (their first, with each sample by its size)."""
        live = sum(point.live_bytes for point in self.points)
        resident = sum(point.resident_bytes for point in self.points)
        return resident / live - 1.0 if live else None


def decode(text: str) -> ReplayLine:
    """The line of a replay that went well; raises UserError for anything else."""
    return ReplayLine(read_answer(text, "replay", SCHEMA))


def merged(parts: list[Latencies]) -> Latencies:
    """All calls of several replays together."""
    counts: dict[int, int] = {}
    for part in parts:
        for upper, calls in part.buckets:
            counts[upper] = counts.get(upper, 0) + calls
    return Latencies(
        sum(part.calls for part in parts),
        max(part.max_ns for part in parts),
        tuple(sorted(counts.items())),
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
