"""Profiles whose truth is known: written as the library writes them, from a simulated heap.

Why: what is shown must be compared with what is there, for heaps of any shape.
Refuses to: go through what is tested. The messages are put together here, byte by byte.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

INTERVAL = 512 * 1024


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value) if value else b""


def part(field_number: int, data: bytes) -> bytes:
    return varint(field_number << 3 | 2) + varint(len(data)) + data


def packed(field_number: int, values: Sequence[int]) -> bytes:
    return part(field_number, b"".join(map(varint, values)))


@dataclass
class Site:
    """Blocks of one size from one stack of addresses, innermost first."""

    stack: tuple[int, ...]
    size: int
    allocated: int
    live: int
    block: int = 0
    cut: bool = False
    age_ms: int | None = None

    def __post_init__(self) -> None:
        self.block = self.block or max(16, -(-self.size // 16) * 16)

    @property
    def probability(self) -> float:
        return -math.expm1(-self.block / INTERVAL)


@dataclass
class File:
    """A mapping: where it begins and ends, and which file it is."""

    start: int
    limit: int
    path: str
    offset: int = 0
    build_id: str = ""


@dataclass
class Row:
    """What one sample of the file has: the counts of samples, by labels."""

    site: Site
    allocs: int
    live: int
    pinned: float = 0.0  # by all blocks of the live samples, each as much


@dataclass
class Writer:
    """A file of profile.proto. Frames by address, if it has names already."""

    rows: list[Row]
    files: list[File] = field(default_factory=list)
    comments: tuple[str, ...] = (
        "tsmalloc 0.1.0",
        "pid 4711",
        "command server",
        "dropped 0",
        "kind now",
    )
    names: dict[int, list[tuple[str, str, int]]] = field(default_factory=dict)
    time_nanos: int = 1_790_000_000_000_000_000
    duration_nanos: int = 3600 * 10**9  # how long it sampled
    interval: int = INTERVAL
    drop_frames: str = ""
    has_pinned: bool = True
    _strings: dict[str, int] = field(default_factory=lambda: {"": 0})

    def text(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def data(self) -> bytes:
        out = bytearray()
        kinds = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
        kinds += ["pinned_space"] * self.has_pinned
        for kind in kinds:
            unit = "count" if kind.endswith("objects") else "bytes"
            out += part(1, number(1, self.text(kind)) + number(2, self.text(unit)))
        addresses = sorted({a for row in self.rows for a in row.site.stack})
        ids = {address: at for at, address in enumerate(addresses, 1)}
        for row in self.rows:
            out += part(2, self._sample(row, ids))
        for at, file in enumerate(self.files, 1):
            out += part(
                3,
                number(1, at)
                + number(2, file.start)
                + number(3, file.limit)
                + number(4, file.offset)
                + number(5, self.text(file.path))
                + number(6, self.text(file.build_id)),
            )
        functions: dict[tuple[str, str], int] = {}
        for address in addresses:
            inside = (at for at, f in enumerate(self.files, 1) if f.start <= address < f.limit)
            location = number(1, ids[address]) + number(2, next(inside, 0)) + number(3, address - 1)
            for name, path, line in self.names.get(address, []):
                function = functions.setdefault((name, path), len(functions) + 1)
                location += part(4, number(1, function) + number(2, line))
            out += part(4, location)
        for (name, path), at in functions.items():
            out += part(5, number(1, at) + number(2, self.text(name)) + number(4, self.text(path)))
        period = number(1, self.text("space")) + number(2, self.text("bytes"))
        comments = [self.text(comment) for comment in self.comments]
        tail = (
            number(7, self.text(self.drop_frames))
            + number(9, self.time_nanos)
            + number(10, self.duration_nanos)
            + part(11, period)
            + number(12, self.interval)
            + packed(13, comments)
            + number(14, self.text("inuse_space"))
        )
        for value in self._strings:
            out += part(6, value.encode(errors="surrogateescape"))
        return bytes(out + tail)

    def _sample(self, row: Row, ids: dict[int, int]) -> bytes:
        site, p = row.site, row.site.probability
        values = [
            round(row.allocs / p),
            round(row.allocs * site.size / p),
            round(row.live / p),
            round(row.live * site.size / p),
        ]
        values += [round(row.pinned)] * self.has_pinned
        out = packed(1, [ids[a] for a in site.stack]) + packed(2, values)
        numbers = {
            "bytes": (site.size, "bytes"),
            "block": (site.block, "bytes"),
            "class": (site.block, "bytes"),
            "interval": (self.interval, "bytes"),
            "allocs": (row.allocs, ""),
            "live": (row.live, ""),
        }
        if row.pinned:
            numbers["pinning"] = (row.live, "")
        if site.age_ms is not None:
            numbers["age"] = (site.age_ms, "milliseconds")
        for key, (value, unit) in numbers.items():
            label = number(1, self.text(key)) + number(3, value) + number(4, self.text(unit))
            out += part(3, label)
        if site.cut:
            out += part(3, number(1, self.text("stack")) + number(2, self.text("cut")))
        return out

    def write(self, path: Path, packed_file: bool = False) -> Path:
        data = self.data()
        path.write_bytes(gzip.compress(data) if packed_file else data)
        return path


def sampled(sites: Sequence[Site], seed: int) -> list[Row]:
    """Each malloc is sampled with its probability; a block that lives on keeps its sample."""
    chance = random.Random(seed)
    rows = []
    for site in sites:
        live = binomial(chance, site.live, site.probability)
        freed = binomial(chance, site.allocated - site.live, site.probability)
        if live + freed:
            rows.append(Row(site, live + freed, live))
    return rows


def binomial(chance: random.Random, count: int, p: float) -> int:
    """By the gaps between successes, so that millions of blocks take no time."""
    if p >= 1.0:
        return count
    found, at = 0, 0
    while True:
        at += 1 + int(math.log(1.0 - chance.random()) / math.log1p(-p))
        if at > count:
            return found
        found += 1
