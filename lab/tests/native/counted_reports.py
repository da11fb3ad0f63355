"""Everything that an instrumented library writes, as described in docs/formats/counters.md."""

import json
import re
from collections import Counter
from typing import NamedTuple


class Block(NamedTuple):
    count: int
    bytes: int
    state: str
    owner: int
    used_share: float


class Chunk(NamedTuple):
    bytes: int
    blocks: list[Block]


class HeapMap(NamedTuple):
    label: str
    chunks: list[Chunk]
    total_chunks: int
    truncated: bool

    def pieces(self, state):
        return sum(b.count for chunk in self.chunks for b in chunk.blocks if b.state == state)


class Reports(NamedTuple):
    """Sums over the processes; threads and pictures of all processes, one after the other."""

    counts: dict[str, float]
    threads: list[dict[str, float]]
    maps: list[HeapMap]


def read(folder):
    totals, threads = Counter[str](), []
    for file in _parsed(folder, "counters"):
        totals.update(file["totals"])
        threads += file["threads"]
    maps = []
    for file in _parsed(folder, "map"):
        chunks = [Chunk(c["bytes"], [Block(*b) for b in c["blocks"]]) for c in file["chunks"]]
        maps.append(HeapMap(file["label"], chunks, file["total_chunks"], file["truncated"]))
    assert totals or maps
    return Reports(dict(totals), threads, maps)


def _parsed(folder, kind):
    """By process and then by number, so that PID-10 comes after PID-9."""
    files = folder.glob(f"*.{kind}.json")
    ordered = sorted(files, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    return [json.loads(path.read_text(encoding="utf-8")) for path in ordered]
