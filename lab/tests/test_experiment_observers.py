"""The counters of causes, with the real tools, on a program whose counts are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import run_request
from hypothesis import given
from hypothesis import strategies as st

from tsmlab import allocators
from tsmlab.allocators import Allocator
from tsmlab.counters import CountedRun
from tsmlab.errors import UserError
from tsmlab.experiments import causes
from tsmlab.experiments.observers import Memory, all_observers, thinned
from tsmlab.measuring import RunRequest

BLOCKS = 5000
BYTES = 1000

# Allocates all blocks, waits until its memory has been seen, frees all; "fail" exits with 3.
PROGRAM = f"""
static void *blocks[{BLOCKS}];
int main(int argc, char **argv) {{
  for (int i = 0; i < {BLOCKS}; i++) memset(blocks[i] = malloc({BYTES}), i, {BYTES});
  usleep(50000);
  for (int i = 0; i < {BLOCKS}; i++) free(blocks[i]);
  return argc > 1 ? 3 : 0;
}}
"""


@pytest.fixture(scope="module")
def program(build: Callable[..., Path]) -> Path:
    return build("blocks.c", PROGRAM)


def request(program: Path, name: str, *arguments: str) -> RunRequest:
    quiet = {"stdout": Path("/dev/null"), "stderr": Path("/dev/null"), "timeout_seconds": 30.0}
    under = allocators.find(name, allocators.discover(versions=False))
    return run_request(str(program), *arguments, allocator=under, **quiet)


def test_together_they_tell_all(program: Path, tmp_path: Path) -> None:
    wanted = request(program, "lock-best")
    parts = []
    for number, observer in enumerate(all_observers()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert observer.applies_to(wanted.allocator)
        parts.append(causes.observed(observer, wanted, folder))
    found = causes.merged(parts)
    assert found.notes == []
    assert found.counts["allocations"] >= BLOCKS
    assert found.counts["requested_bytes"] >= BLOCKS * BYTES
    assert found.counts["splits"] > 0
    assert found.counts["growth_bytes"] >= BLOCKS * BYTES
    assert found.counts["brk_calls"] > 0
    assert found.counts["foreign_frees"] == 0
    assert found.threads[0]["allocations"] >= BLOCKS
    assert found.threads[0]["splits"] > 0


def test_memory_goes_up_and_the_live_bytes_with_it(program: Path, tmp_path: Path) -> None:
    curve = Memory().observe(request(program, "glibc"), tmp_path).memory
    assert max(size for _, size in curve.live) == pytest.approx(BLOCKS * BYTES, rel=0.05)
    assert max(size for _, size in curve.resident) > BLOCKS * BYTES
    for points in (curve.live, curve.resident):
        times = [time for time, _ in points]
        assert times == sorted(times)
        assert times[0] >= 0.0
    # Two runs on one axis: the live bytes end where the run without the tracker ended.
    assert curve.live[-1][0] == pytest.approx(curve.resident[-1][0], abs=0.2)
    assert 0.0 <= curve.sampling_share < 0.5


def test_only_ours_count_inside(program: Path, tmp_path: Path) -> None:
    inside = CountedRun()
    assert not inside.applies_to(request(program, "glibc").allocator)
    # The file of the library decides: nothing is counted under one that is not built.
    unbuilt = replace(
        request(program, "lock-best"), allocator=Allocator("lock-none", None, "tsmalloc", "1")
    )
    assert inside.applies_to(unbuilt.allocator)
    found = causes.observed(inside, unbuilt, tmp_path)
    assert found.counts == {}
    assert "lock-none has no counted library" in found.notes[0]


@pytest.mark.parametrize("observer", all_observers())
def test_failed_runs_count_nothing(
    observer: causes.Observer, program: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="exit 3"):
        observer.observe(request(program, "lock-best", "fail"), tmp_path)


@given(
    st.lists(st.integers(0, 1000), max_size=60).map(
        lambda sizes: [[float(time), float(size)] for time, size in enumerate(sizes)]
    ),
    st.integers(3, 20),
)
def test_a_thinned_curve_keeps_order_ends_and_peak(points: list[list[float]], most: int) -> None:
    kept = thinned(points, most)
    assert len(kept) == min(len(points), most)
    assert all(point in points for point in kept)
    assert kept == sorted(kept, key=lambda point: point[0])
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
        assert max(size for _, size in kept) == max(size for _, size in points)
