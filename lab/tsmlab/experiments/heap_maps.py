"""Maps of the heap, made small enough to be kept.

Why: a heap of a hundred thousand small blocks is a picture of a few thousand spots to anybody who
looks at it, but tens of megabytes in a file.
Refuses to: touch what can be seen. Only neighbours that are small and of one owner are put
together, and the bytes in use stay what they were.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tsmlab.experiments.model import HeapMap, MapBlock

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
