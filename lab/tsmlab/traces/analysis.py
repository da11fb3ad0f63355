"""The analysis of a trace: asks bin/trace for it, and reads its answer.

Why: only this file knows the names of the fields; docs/formats/trace.md lists and defines them.
Refuses to: compute what the answer does not say, but for shares and sums of its rows.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tsmlab.measuring import read_answer
from tsmlab.traces.planning import run_trace
from tsmlab.traces.size_classes import SizeClasses, file_text

SCHEMA = "tsmalloc-analysis/1"

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
    """An eighth of an octave of sizes: those up to `upper`, above the bucket before."""

    upper: int
    allocations: int
    allocated_bytes: int
    resizes: int
    at_peak: int
    at_peak_bytes: int
    left: int
    left_bytes: int


class Octave(NamedTuple):
    """A range of lifetimes, or of growth: those up to `upper`, above half of it."""

    upper: int
    objects: int
    bytes: int


class HeatCell(NamedTuple):
    """Objects of sizes in one octave and of lifetimes in another."""

    size: int
    lifetime: int
    objects: int
    bytes: int


class CurvePoint(NamedTuple):
    """A stretch of events: its last one, and live bytes then and at the highest within it."""

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


@dataclass(frozen=True)
class Lifetimes:
    """In one measure. Quantiles are upper ends of buckets, 32 to an octave."""

    raw: Mapping[str, Any]

    def quantile(self, name: str) -> int:
        """p01, p10, p25, p50, p75, p90, p99, p999 or max."""
        return int(self.raw[name])

    @property
    def octaves(self) -> list[Octave]:
        return [Octave(*row) for row in self.raw["histogram"]]

    @property
    def by_size(self) -> list[HeatCell]:
        return [HeatCell(*row) for row in self.raw["by_size"]]


@dataclass(frozen=True)
class Predicted:
    """What an allocator's size classes would make of the sizes. by_size: for each bucket of the
    histogram the bytes of blocks, of all allocations and at the peak."""

    allocator: str
    requested_all: int
    usable_all: int
    requested_at_peak: int
    usable_at_peak: int
    by_size: tuple[tuple[int, int], ...]

    @property
    def waste(self) -> float:
        """Of the blocks' bytes, the share that nobody asked for; over all allocations."""
        return waste(self.requested_all, self.usable_all)

    @property
    def waste_at_peak(self) -> float:
        return waste(self.requested_at_peak, self.usable_at_peak)


def waste(requested: int, usable: int) -> float:
    return (usable - requested) / usable if usable else 0.0


@dataclass(frozen=True)
class TraceAnalysis:
    """The answer. `raw` is what bin/trace printed."""

    raw: Mapping[str, Any]

    @property
    def trace(self) -> str:
        return str(self.raw["trace"])

    @property
    def is_whole(self) -> bool:
        return bool(self.raw["whole"])

    @property
    def damage(self) -> list[str]:
        """What is lost, in the words of bin/trace: of the file, then of this image."""
        texts = [each["text"] for each in (*self.raw["damage"], *self.raw["gaps"])]
        return list(dict.fromkeys(map(str, texts)))

    @property
    def image(self) -> Mapping[str, Any]:
        image: Mapping[str, Any] = self.raw["image"]
        return image

    @property
    def images(self) -> int:
        return int(self.raw["images_seen"])

    @property
    def events(self) -> int:
        return int(self.raw["events"])

    @property
    def seconds(self) -> float:
        return float(self.raw["duration_ns"]) / 1e9

    @property
    def calls(self) -> dict[str, int]:
        return {kind: int(number) for kind, number in self.raw["calls"].items()}

    def amount(self, name: str) -> Amount:
        """allocations, inherited, frees, inherited_frees, cross_thread_frees or temporaries."""
        return _amount(self.raw[name])

    @property
    def temporary_share(self) -> float:
        """Of all allocations."""
        return _share(self.amount("temporaries").objects, self.amount("allocations").objects)

    @property
    def cross_thread_share(self) -> float:
        """Of the frees of objects that the image allocated itself."""
        return _share(self.amount("cross_thread_frees").objects, self.amount("frees").objects)

    @property
    def sizes(self) -> list[SizeRow]:
        return [SizeRow(*row) for row in self.raw["sizes"]["top"]]

    @property
    def distinct_sizes(self) -> int:
        return int(self.raw["sizes"]["distinct"])

    @property
    def buckets(self) -> list[SizeBucket]:
        return [SizeBucket(*row) for row in self.raw["sizes"]["histogram"]]

    @property
    def median_size(self) -> int:
        """The upper end of the bucket with the middle allocation."""
        half, seen = self.amount("allocations").objects / 2, 0
        for bucket in self.buckets:
            seen += bucket.allocations
            if seen >= half:
                return bucket.upper
        return 0

    def lifetimes(self, measure: Measure) -> Lifetimes:
        return Lifetimes(self.raw["lifetimes"][measure])

    @property
    def freed_objects(self) -> int:
        """Those that have a lifetime."""
        return int(self.raw["lifetimes"]["objects"])

    @property
    def peak(self) -> Amount:
        return _amount(self.raw["peak"])

    @property
    def inherited_at_peak(self) -> Amount:
        return _amount(self.raw["peak"]["inherited"])

    @property
    def peak_event(self) -> int | None:
        """None: never more than in the beginning."""
        event = self.raw["peak"]["event"]
        return None if event is None else int(event)

    @property
    def peak_seconds(self) -> float:
        return float(self.raw["peak"]["time_ns"]) / 1e9

    @property
    def peak_sizes(self) -> list[PeakSize]:
        return [PeakSize(*row) for row in self.raw["peak"]["by_size"]]

    @property
    def left_own(self) -> Amount:
        return _amount(self.raw["left"]["own"])

    @property
    def left_inherited(self) -> Amount:
        return _amount(self.raw["left"]["inherited"])

    @property
    def left_sizes(self) -> list[LeftSize]:
        return [LeftSize(*row) for row in self.raw["left"]["by_size"]]

    @property
    def chains(self) -> Mapping[str, Any]:
        chains: Mapping[str, Any] = self.raw["chains"]
        return chains

    @property
    def curve(self) -> list[CurvePoint]:
        return [CurvePoint(*row) for row in self.raw["curve"]]

    @property
    def threads(self) -> list[Mapping[str, Any]]:
        """The busiest, by number."""
        return list(self.raw["threads"])

    @property
    def threads_seen(self) -> int:
        return int(self.raw["threads_seen"])

    @property
    def predicted(self) -> list[Predicted]:
        """The least wasteful at the peak first."""
        found = [
            Predicted(
                allocator=str(each["allocator"]),
                requested_all=int(each["requested_all"]),
                usable_all=int(each["usable_all"]),
                requested_at_peak=int(each["requested_at_peak"]),
                usable_at_peak=int(each["usable_at_peak"]),
                by_size=tuple((int(a), int(b)) for a, b in each["by_size"]),
            )
            for each in self.raw["predicted"]
        ]
        return sorted(found, key=lambda each: (each.waste_at_peak, each.waste))


def analyse(
    trace: Path, image: int | None = None, classes: Sequence[SizeClasses] = ()
) -> TraceAnalysis:
    """`trace analyze`; its complaint becomes ours."""
    words: list[str | Path] = ["analyze", trace]
    if image is not None:
        words += ["--image", str(image)]
    with tempfile.NamedTemporaryFile(
        "w", prefix="tsmalloc-classes-", suffix=".txt", encoding="utf-8"
    ) as file:
        if classes:
            file.write(file_text(classes))
            file.flush()
            words += ["--classes", file.name]
        return decode(run_trace(words))


def decode(text: str) -> TraceAnalysis:
    """The answer in a text; raises UserError for anything else."""
    return TraceAnalysis(read_answer(text, "trace", SCHEMA))


def _amount(raw: Mapping[str, Any]) -> Amount:
    return Amount(int(raw["objects"]), int(raw["bytes"]))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
