"""`usable` tells what malloc_usable_size says of each size, and who has no answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from prompt import ran
from refusals import refused

from tsmlab import allocators, paths
from tsmlab.traces.size_classes import ask, classes_of


def test_glibc_has_steps_of_16_bytes():
    sizes = np.arange(1, 3000)
    expected = np.maximum(24, (sizes + 8 + 15) // 16 * 16 - 8)
    assert np.array_equal(ask(allocators.glibc(), sizes), expected)
    (mapped,) = ask(allocators.glibc(), np.array([200_000]))
    assert mapped % 4096 == 4096 - 16  # with a header


@pytest.mark.parametrize("name", ["tsmalloc", "lock-first", "nolock-best", "jemalloc", "tcmalloc"])
def test_every_block_holds_its_request_whatever_was_asked_before(name):
    found = {each.name: each for each in allocators.discover((), versions=False)}
    if name not in found:
        pytest.skip(f"{name} is not installed, or not built")
    (classes,) = classes_of([found[name]], pytest.fail)
    sizes = np.array([*range(1, 2200), *range(2200, 100_000, 97), 1 << 20, (1 << 25) + 1])
    blocks = classes.blocks(sizes)
    assert (blocks >= sizes).all()
    # A block that was left over may be a little longer than a fresh one.
    assert np.count_nonzero(classes.blocks(sizes[::-1])[::-1] != blocks) <= len(sizes) // 100
    assert classes.blocks(np.array([1 << 62])) == [1 << 62], "which cannot be had"


def test_an_allocator_without_an_answer_is_named():
    with refused("does not tell its blocks' usable sizes"):
        ask(allocators.floor("lifo"), np.array([1]))


def test_usage():
    assert "SIZES" in ran(paths.tool("usable"), "--help", status=0).stdout
    assert "usable --help" in ran(paths.tool("usable"), "more", status=1).stderr
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [paths.tool("usable")], input=bytes(8), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, b"No space left" in done.stderr) == (125, True)
