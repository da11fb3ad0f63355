"""The data of a movie, from the logs of replay: blocks, resident pages, curves.

All of it is exact: addresses to the byte, pages as replay queried them. docs/movies.md explains the
figures, docs/formats/trace.md the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MAX_ENTRIES = 20_000_000
PAGE = 4096
# Parts of the address space that are farther apart than this are shown next to each other.
GAP = 64 << 10
_SIZE_MASK = np.uint64((1 << 40) - 1)
_HEADING = np.uint64(2**64 - 1)


class UnsuitableLog(Exception):
    """A log that no movie can be made from."""


@dataclass(frozen=True)
class Blocks:
    """All blocks by birth: the entries of the log that begin and end each. `count` is the number of
    entries, at most MAX_ENTRIES in a movie. A block that is never freed dies at the end."""

    born: Ints
    died: Ints
    size: Ints
    thread: Ints
    entries: int
    left_out: int

    def alive(self, entry: int) -> npt.NDArray[np.bool_]:
        """Whether each block is alive after the entries before this one."""
        return (self.born < entry) & (self.died >= entry)

    def only(self, kept: npt.NDArray[Any]) -> "Blocks":
        born, died, size, thread = (
            each[kept] for each in (self.born, self.died, self.size, self.thread)
        )
        return Blocks(born, died, size, thread, self.entries, self.left_out)

    def equals(self, other: "Blocks") -> bool:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(own, others) for own, others in pairs)


def read_blocks(log: Path, max_entries: int = MAX_ENTRIES) -> tuple[Blocks, Ints]:
    """The blocks of a log, and the address of each. Raises UnsuitableLog if blocks overlap in time
    at one address."""
    raw = np.fromfile(log, "<u8", 2 * max_entries).reshape(-1, 2)
    total = log.stat().st_size // raw.dtype.itemsize // 2
    address = raw[:, 0].astype(np.int64)
    size = (raw[:, 1] & _SIZE_MASK).astype(np.int64)
    order = np.argsort(address, kind="stable")  # by address, and at each by time
    is_new = size[order] > 0
    follows = address[order][1:] == address[order][:-1]  # the entry before, at the same address
    if np.any(~is_new[:1]) or np.any(is_new[1:] == (is_new[:-1] & follows)):
        raise UnsuitableLog(
            "it returned a block twice, or a block was freed that it had not returned"
        )
    died = np.full(len(raw), len(raw), np.int64)
    died[order[:-1][is_new[:-1]]] = np.where(follows, order[1:], len(raw))[is_new[:-1]]
    born = np.flatnonzero(size)
    thread = (raw[born, 1] >> np.uint64(40)).astype(np.int64)
    blocks = Blocks(born, died[born], size[born], thread, len(raw), total - len(raw))
    return blocks, address[born]


@dataclass(frozen=True)
class Frame:
    """Resident pages after the entries before `entry`: `bounds` has the begin and the end of each
    range in turn, ascending."""

    entry: int
    bounds: Ints


def read_frames(path: Path, entries: int) -> list[Frame]:
    """The frames up to this entry, without replay's own memory."""
    raw = np.fromfile(path, "<u8").reshape(-1, 2)
    heading_rows = [*np.flatnonzero(raw[:, 1] == _HEADING), len(raw)]
    parts = [(raw[a, 0], raw[a + 1 : b].astype(np.int64)) for a, b in pairwise(heading_rows)]
    own = _merged(parts.pop()[1], 0)
    frames = {int(entry): Frame(int(entry), _without(runs, own)) for entry, runs in parts}
    return [frame for entry, frame in sorted(frames.items()) if entry <= entries]


def _merged(ranges: Ints, gap: int) -> Ints:
    """Sorted; ranges nearer than `gap` are merged."""
    ranges = ranges[np.argsort(ranges[:, 0])]
    if not len(ranges):
        return ranges
    ends = np.maximum.accumulate(ranges[:, 1])
    starts = np.flatnonzero(np.r_[True, ranges[1:, 0] > ends[:-1] + gap])
    merged: Ints = np.c_[ranges[starts, 0], ends[np.r_[starts[1:] - 1, len(ranges) - 1]]]
    return merged


def _without(runs: Ints, own: Ints) -> Ints:
    """Bounds of `runs` minus `own`, both sorted: where the sum of (inside a run) and (outside our
    own) changes to or from 2."""
    at = np.r_[runs.ravel(), own.ravel()]
    step = np.r_[np.tile([1, -1], len(runs)), np.tile([-1, 1], len(own))]
    places, inverse = np.unique(at, return_inverse=True)
    steps = np.zeros(len(places), np.int64)
    np.add.at(steps, inverse, step)
    inside = np.cumsum(steps) > 0
    bounds: Ints = places[inside != np.r_[False, inside[:-1]]]
    return bounds


@dataclass(frozen=True)
class Heap:
    """One allocator's heap: the addresses of the blocks of `Blocks`. `regions`: begin and end of
    each part of the address space that is ever used; the page shows them one after the other."""

    name: str
    address: Ints
    frames: Sequence[Frame]
    regions: Ints

    def offset(self, address: Ints) -> Ints:
        """The offset within the regions, with a page between each two."""
        sizes = self.regions[:, 1] - self.regions[:, 0] + PAGE
        before = np.cumsum(sizes) - sizes
        region = np.searchsorted(self.regions[:, 0], address, side="right") - 1
        places: Ints = before[region] + address - self.regions[region, 0]
        return places

    def pages(self, bounds: Ints) -> Ints:
        """Bounds of ranges as page numbers. An end may coincide with a region's, so it is taken
        from the last page of the range."""
        found = self.offset(bounds) // PAGE
        found[1::2] = self.offset(bounds[1::2] - 1) // PAGE + 1
        return found


def heap(name: str, address: Ints, size: Ints, frames: Sequence[Frame]) -> Heap:
    extents = np.c_[address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE]
    resident = [frame.bounds.reshape(-1, 2) for frame in frames]
    return Heap(name, address, frames, _merged(np.concatenate([extents, *resident]), GAP))


@dataclass(frozen=True)
class Curves:
    """At each frame, in bytes. holes: resident, but in no live block."""

    live: list[int]
    resident: list[int]
    holes: list[int]


def curves(blocks: Blocks, found: Heap) -> Curves:
    """From the bytes of live blocks in each page, which are updated from frame to frame."""
    begin = found.offset(found.address)
    end = begin + blocks.size
    first, last = begin // PAGE, (end - 1) // PAGE
    in_first = np.minimum(end, (first + 1) * PAGE) - begin
    in_last = np.where(last > first, end - last * PAGE, 0)
    by_death = np.argsort(blocks.died, kind="stable")
    pages = int((found.regions[:, 1] - found.regions[:, 0] + PAGE).sum()) // PAGE + 1
    partly, full = np.zeros(pages, np.int64), np.zeros(pages, np.int64)  # full: as differences
    births = deaths = live = 0
    curve = Curves([], [], [])

    def count(which: Ints | slice, sign: int) -> int:
        np.add.at(partly, first[which], sign * in_first[which])
        np.add.at(partly, last[which], sign * in_last[which])
        np.add.at(full, first[which] + 1, sign * PAGE)
        np.add.at(full, np.maximum(last, first + 1)[which], -sign * PAGE)
        return sign * int(blocks.size[which].sum())

    for frame in found.frames:
        born = int(np.searchsorted(blocks.born, frame.entry))
        died = int(np.searchsorted(blocks.died, frame.entry, sorter=by_death))
        live += count(slice(births, born), 1) + count(by_death[deaths:died], -1)
        births, deaths = born, died
        used = np.r_[0, np.cumsum(partly + np.cumsum(full))]
        bounds = found.pages(frame.bounds)
        resident = int((bounds[1::2] - bounds[::2]).sum()) * PAGE
        curve.live.append(live)
        curve.resident.append(resident)
        curve.holes.append(resident - int((used[bounds[1::2]] - used[bounds[::2]]).sum()))
    return curve


def thinned(blocks: Blocks, moments: Ints) -> npt.NDArray[np.bool_]:
    """Which blocks are alive at one or more of these entries."""
    first = np.searchsorted(moments, blocks.born, side="right")
    return first < np.searchsorted(moments, blocks.died, side="right")
