"""Why a result is as it is: untimed runs under tools that count.

Why: "faster by 30 %" answers nothing; "and it slept 40 times less often in a lock" does. Counting
slows a program down, so it is done in runs of its own.
Refuses to: fail. A count that failed is a note beside the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.experiments.model import Causes, Curve, HeapMap, MapBlock
from tsmlab.measuring import RunRequest

NOTHING = Causes(counts={}, threads=[], memory=None, maps=[], notes=[])
# A run that is watched may take this many times as long as the timed ones before it has failed.
TIMEOUT_FACTOR = 20.0
MIN_TIMEOUT_SECONDS = 30.0
# Those of a program that begins thousands would be most of the results.
MOST_THREADS = 64


class Observer(Protocol):
    """Makes one run and counts something in it."""

    def applies_to(self, allocator: Allocator) -> bool:
        """Whether there is anything for it to see under this allocator."""

    def observe(self, request: RunRequest, folder: Path) -> Causes:
        """Makes the run; `folder` is empty, and its own until it returns. Raises UserError if it
        cannot count."""


def watchers(observers: Sequence[Observer], allocator: Allocator) -> list[Observer]:
    return [observer for observer in observers if observer.applies_to(allocator)]


def timeout_seconds(wall_seconds: float) -> float:
    """The limit of a watched run, from the time of one that was not."""
    return max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * wall_seconds)


def merged(parts: Sequence[Causes]) -> Causes:
    """Counts of one name mean the same: those of the later part win."""
    counts: dict[str, float] = {}
    threads: list[dict[str, float]] = []
    memory: Curve | None = None
    for part in parts:
        counts.update(part.counts)
        memory = part.memory or memory
        # Threads of two runs correspond only where both had as many.
        if not threads:
            threads = part.threads
        elif len(part.threads) == len(threads):
            threads = [a | b for a, b in zip(threads, part.threads, strict=True)]
    notes = [note for part in parts for note in part.notes]
    if len(threads) > MOST_THREADS:
        notes.append(f"of {len(threads)} threads or more, the first {MOST_THREADS} are listed")
    return Causes(
        counts=counts,
        threads=threads[:MOST_THREADS],
        memory=memory,
        maps=[each for part in parts for each in part.maps],
        notes=list(dict.fromkeys(notes)),
    )


def observed(observer: Observer, request: RunRequest, folder: Path) -> Causes:
    """The counts of one observer; a note where it cannot."""
    try:
        return observer.observe(request, folder)
    except UserError as error:
        return Causes({}, [], None, [], [error.message])


# --- maps of the heap, small enough to be kept ----------------------------------------------------


# A coarser map has at most about twice as many: each spot is one of so many equal parts of the
# heap, or a block that is larger than that.
SPOTS = 2000


def coarsened(heap: HeapMap, spots: int = SPOTS) -> HeapMap:
    """The same heap; where it has more blocks than `spots`, with small neighbours as one block that
    is mixed."""
    blocks = [block for chunk in heap.chunks for block in chunk.blocks]
    if len(blocks) <= spots:
        return heap
    least = sum(block.bytes for block in blocks) / spots
    return replace(
        heap,
        chunks=[
            replace(chunk, blocks=list(map(_together, _groups(chunk.blocks, least))))
            for chunk in heap.chunks
        ],
    )


def _groups(blocks: Sequence[MapBlock], least: float) -> Iterator[list[MapBlock]]:
    """Neighbours of one owner that have `least` bytes together; larger ones stay alone."""
    group: list[MapBlock] = []
    size = 0
    for block in blocks:
        alone = block.bytes >= least or (group and block.owner != group[0].owner)
        if group and (alone or size >= least):
            yield group
            group, size = [], 0
        group.append(block)
        size += block.bytes
    if group:
        yield group


def _together(group: Sequence[MapBlock]) -> MapBlock:
    first = group[0]
    size = sum(block.bytes for block in group)
    count = sum(block.count for block in group)
    if len({block.state for block in group}) == 1 and first.state != "mixed":
        return replace(first, count=count, bytes=size)
    if len(group) == 1:
        return first
    used = sum(used_share(block) * block.bytes for block in group)
    share = used / size if size else 0.0
    return MapBlock(count, size, "mixed", first.owner, round(share, 6))


def used_share(block: MapBlock) -> float:
    """The part of its bytes that is in use."""
    return {"used": 1.0, "mixed": block.used_share}.get(block.state, 0.0)
