"""Coarser maps of a heap: smaller, and still of the same heap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsmlab.experiments.causes import coarsened, used_share
from tsmlab.experiments.model import HeapMap, MapBlock, MapChunk

BLOCKS = st.builds(
    MapBlock,
    count=st.integers(1, 5),
    bytes=st.integers(1, 10_000),
    state=st.sampled_from(["used", "free", "cached", "mixed"]),
    owner=st.integers(0, 2),
    used_share=st.floats(0.0, 1.0),
)


def heap(*chunks: list[MapBlock]) -> HeapMap:
    made = [
        MapChunk(index << 32, sum(block.bytes for block in blocks), blocks)
        for index, blocks in enumerate(chunks)
    ]
    return HeapMap("all live", made, len(made) + 3)


def blocks_of(found: HeapMap) -> list[MapBlock]:
    return [block for chunk in found.chunks for block in chunk.blocks]


def bytes_used(found: HeapMap) -> float:
    return sum(used_share(block) * block.bytes for block in blocks_of(found))


@given(st.lists(st.lists(BLOCKS, min_size=1, max_size=60), min_size=1, max_size=3))
def test_nothing_is_lost(chunks: list[list[MapBlock]]) -> None:
    whole = heap(*chunks)
    small = coarsened(whole, 20)
    assert (small.label, small.total_chunks) == (whole.label, whole.total_chunks)
    assert [(c.address, c.bytes) for c in small.chunks] == [
        (c.address, c.bytes) for c in whole.chunks
    ]
    for before, after in zip(whole.chunks, small.chunks, strict=True):
        assert sum(b.bytes for b in after.blocks) == sum(b.bytes for b in before.blocks)
        assert sum(b.count for b in after.blocks) == sum(b.count for b in before.blocks)
        assert {b.owner for b in after.blocks} == {b.owner for b in before.blocks}
    total = sum(block.bytes for block in blocks_of(whole))
    assert bytes_used(small) == pytest.approx(bytes_used(whole), abs=1e-6 * total)


@given(st.lists(BLOCKS.map(lambda b: MapBlock(b.count, b.bytes, b.state, 0, 0.5)), max_size=300))
def test_a_heap_of_one_owner_has_at_most_two_blocks_for_each_spot(blocks: list[MapBlock]) -> None:
    assert len(blocks_of(coarsened(heap(blocks), 20))) <= 2 * 20 + 1


def test_a_small_map_stays_as_it_is() -> None:
    whole = heap([MapBlock(1, 64, "used", 0, 1.0)] * 20)
    assert coarsened(whole, 20) is whole


def test_large_blocks_and_like_ones_keep_their_state() -> None:
    small = [MapBlock(1, 1, state, 0, 0.0) for state in ("used", "free") * 8]  # type: ignore[arg-type]
    large = MapBlock(1, 4000, "free", 0, 0.0)
    like = [MapBlock(1, 1, "cached", 1, 0.0)] * 8
    found = blocks_of(coarsened(heap([*small, large, *like]), 4))
    assert found == [MapBlock(16, 16, "mixed", 0, 0.5), large, MapBlock(8, 8, "cached", 1, 0.0)]
