"""The analysis of a trace, as used by the rest of the lab.

Only this file and analysing.py know the names of the fields; docs/formats/trace.md defines them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from tsmlab.measuring import JsonField, counts_of, rows_of, seconds_of, whole_or_none
from tsmlab.records import document, with_checksum
from tsmlab.traces import analysing
from tsmlab.traces.analysing import SCHEMA

Measure = Literal["events", "ns", "bytes"]
MEASURES: tuple[Measure, ...] = ("events", "ns", "bytes")


class Amount(NamedTuple):
    objects: int
    bytes: int


class SizeRow(NamedTuple):
    """A size that was asked for often; left: live at the end."""

    size: int
    allocations: int
    resizes: int
    at_peak: int
    left: int


class SizeBucket(NamedTuple):
    """An eighth of an octave of sizes: up to `upper`, and above the bucket before."""

    upper: int
    allocations: int
    allocated_bytes: int
    resizes: int
    at_peak: int
    at_peak_bytes: int
    left: int
    left_bytes: int

    @property
    def lower(self) -> int:
        """The upper bound of the bucket below."""
        if self.upper <= 8:
            return max(0, self.upper - 1)
        return self.upper - (1 << ((self.upper - 1).bit_length() - 1)) // 8


class CurvePoint(NamedTuple):
    """A stretch of events: its last one, and live bytes then and at their highest."""

    event: int
    time_ns: int
    live_bytes: int
    highest_bytes: int
    live_objects: int


class PeakSize(NamedTuple):
    size: int
    objects: int
    bytes: int


class LeftSize(NamedTuple):
    size: int
    own: int
    inherited: int
    bytes: int


def _amount(raw: Mapping[str, Any]) -> Amount:
    return Amount(int(raw["objects"]), int(raw["bytes"]))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _as_it_is(raw: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], raw)


@dataclass(frozen=True)
class TraceAnalysis:
    """The answer. `raw` is what `tsmalloc analyze --json` prints.

    freed_objects: the objects with a lifetime. peak_event: None if there was never more than at the
    beginning. threads: the busiest, by number."""

    raw: Mapping[str, Any]

    trace = JsonField(str, "trace")
    is_finished = JsonField(bool, "finished")
    image = JsonField(_as_it_is, "image")
    images = JsonField(int, "images_seen")
    events = JsonField(int, "events")
    seconds = JsonField(seconds_of, "duration_ns")
    calls = JsonField(counts_of, "calls")
    sizes = JsonField(rows_of(SizeRow), "sizes", "top")
    distinct_sizes = JsonField(int, "sizes", "distinct")
    buckets = JsonField(rows_of(SizeBucket), "sizes", "histogram")
    freed_objects = JsonField(int, "lifetimes", "objects")
    peak = JsonField(_amount, "peak")
    inherited_at_peak = JsonField(_amount, "peak", "inherited")
    peak_event = JsonField(whole_or_none, "peak", "event")
    peak_seconds = JsonField(seconds_of, "peak", "time_ns")
    peak_sizes = JsonField(rows_of(PeakSize), "peak", "by_size")
    left_own = JsonField(_amount, "left", "own")
    left_inherited = JsonField(_amount, "left", "inherited")
    left_sizes = JsonField(rows_of(LeftSize), "left", "by_size")
    chains = JsonField(_as_it_is, "chains")
    curve = JsonField(rows_of(CurvePoint), "curve")
    threads = JsonField(list[Mapping[str, Any]], "threads")
    threads_seen = JsonField(int, "threads_seen")

    def amount(self, name: str) -> Amount:
        """allocations, inherited, frees, inherited_frees, cross_thread_frees or temporaries."""
        return _amount(self.raw[name])

    @property
    def temporary_share(self) -> float:
        """As a share of all allocations."""
        return _share(self.amount("temporaries").objects, self.amount("allocations").objects)

    @property
    def cross_thread_share(self) -> float:
        """As a share of the frees of objects that the image allocated itself."""
        return _share(self.amount("cross_thread_frees").objects, self.amount("frees").objects)

    @property
    def median_size(self) -> int:
        """The upper end of the bucket that contains the median allocation."""
        half, seen = self.amount("allocations").objects / 2, 0
        for bucket in self.buckets:
            seen += bucket.allocations
            if seen >= half:
                return bucket.upper
        return 0

    def lifetime(self, measure: Measure, quantile: str) -> int:
        """p01, p10, p25, p50, p75, p90, p99, p999 or max: the upper end of a bucket, 32 of which
        are an octave."""
        return int(self.raw["lifetimes"][measure][quantile])


def analyse(trace: Path, image: int | None = None) -> TraceAnalysis:
    """Reads the trace; raises UserError."""
    return TraceAnalysis(analysing.analyse(trace, image))


def to_json(found: TraceAnalysis) -> str:
    """The answer as one line of JSON, as `tsmalloc analyze --json` prints it."""
    return json.dumps(with_checksum(found.raw))


def from_json(text: str, source: str) -> TraceAnalysis:
    """The inverse of to_json; raises UserError for anything else."""
    remedy = "Give what `tsmalloc analyze --json` printed."
    return TraceAnalysis(document(SCHEMA, text, source, remedy))
