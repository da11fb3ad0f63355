"""Profiles with known truth: as the library writes them, from a simulated heap.

Tests compare the output with the true heap, for heaps of any shape. tests/tools/test_profile.py
tests the field numbers of pprof's format, with files from the library itself.
"""

import gzip
import math
import random
from dataclasses import dataclass, field

from tsmlab.profile.messages import Message

INTERVAL = 512 * 1024
KINDS = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "pinned_space")


def wrapped(value):
    """As a signed 64-bit number."""
    return (round(value) + (1 << 63)) % (1 << 64) - (1 << 63)


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

    def __post_init__(self):
        self.block = self.block or max(16, -(-self.size // 16) * 16)

    @property
    def probability(self):
        return -math.expm1(-self.block / INTERVAL)


@dataclass
class File:
    """A mapping: where it begins and ends, and its file."""

    start: int
    limit: int
    path: str
    offset: int = 0
    build_id: str = ""


@dataclass
class Row:
    """A sample of the file: the counts, by labels."""

    site: Site
    allocs: int
    live: int
    pinned: float = 0.0  # by all blocks of the live samples, the same for each


@dataclass
class Writer:
    """A file in profile.proto's format. Includes frames by address, if it is already symbolised."""

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
    duration_nanos: int = 3600 * 10**9  # how long sampling was on
    interval: int = INTERVAL
    drop_frames: str = ""
    has_pinned: bool = True

    def data(self):
        message = Message()
        strings: dict[str, int] = {}

        def text(value):
            return strings.setdefault(value, len(strings))

        text("")
        for kind in KINDS[: 4 + self.has_pinned]:
            unit = "count" if kind.endswith("objects") else "bytes"
            message.sample_type.add(type=text(kind), unit=text(unit))
        addresses = sorted({a for row in self.rows for a in row.site.stack})
        ids = {address: at for at, address in enumerate(addresses, 1)}
        for row in self.rows:
            site, p = row.site, row.site.probability
            values = [n / p * x for n in (row.allocs, row.live) for x in (1, site.size)]
            sample = message.sample.add(
                location_id=[ids[a] for a in site.stack],
                value=[wrapped(v) for v in [*values, row.pinned][: 4 + self.has_pinned]],
            )
            sizes = {"bytes": site.size, "block": site.block, "class": site.block}
            for key, size in {**sizes, "interval": self.interval}.items():
                sample.label.add(key=text(key), num=size, num_unit=text("bytes"))
            counts = {"allocs": row.allocs, "live": row.live}
            for key, count in (counts | ({"pinning": row.live} if row.pinned else {})).items():
                sample.label.add(key=text(key), num=count)
            if site.age_ms is not None:
                unit = text("milliseconds")
                sample.label.add(key=text("age"), num=site.age_ms, num_unit=unit)
            if site.cut:
                sample.label.add(key=text("stack"), str=text("cut"))
        for at, file in enumerate(self.files, 1):
            message.mapping.add(
                id=at,
                memory_start=file.start,
                memory_limit=file.limit,
                file_offset=file.offset,
                filename=text(file.path),
                build_id=text(file.build_id),
            )
        functions: dict[tuple[str, str], int] = {}
        for address in addresses:
            inside = (at for at, f in enumerate(self.files, 1) if f.start <= address < f.limit)
            location = message.location.add(
                id=ids[address], mapping_id=next(inside, 0), address=address - 1
            )
            for name, path, line in self.names.get(address, []):
                function = functions.setdefault((name, path), len(functions) + 1)
                location.line.add(function_id=function, line=line)
        for (name, path), at in functions.items():
            message.function.add(id=at, name=text(name), filename=text(path))
        message.drop_frames = text(self.drop_frames)
        message.time_nanos, message.duration_nanos = self.time_nanos, self.duration_nanos
        message.period_type.type, message.period_type.unit = text("space"), text("bytes")
        message.period = self.interval
        message.comment.extend(map(text, self.comments))
        message.default_sample_type = text("inuse_space")
        message.string_table.extend(each.encode(errors="surrogateescape") for each in strings)
        return bytes(message.SerializeToString())

    def write(self, path, packed_file=False):
        data = self.data()
        path.write_bytes(gzip.compress(data) if packed_file else data)
        return path


def sampled(sites, seed):
    """Samples each malloc with its probability; a block that lives on keeps its sample."""
    chance = random.Random(seed)
    rows = []
    for site in sites:
        live = binomial(chance, site.live, site.probability)
        freed = binomial(chance, site.allocated - site.live, site.probability)
        if live + freed:
            rows.append(Row(site, live + freed, live))
    return rows


def binomial(chance, count, p):
    """Uses the gaps between successes, so that millions of blocks take no time."""
    if p >= 1.0:
        return count
    found, at = 0, 0
    while True:
        at += 1 + int(math.log(1.0 - chance.random()) / math.log1p(-p))
        if at > count:
            return found
        found += 1
