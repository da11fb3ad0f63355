"""The programs of experiments: the same work under every allocator, determined only by the
arguments, and checks of the heap where it matters. Times are never checked.
"""

import json
import os

import pytest
from prompt import ran

from tsmlab import paths
from tsmlab.allocators import own_library

FITS = ("--iterations", "20", "--requests", "1000")


def run(program, *arguments, **environment):
    """The numbers that a program prints."""
    file = paths.build_dir() / "bin" / program
    finished = ran(file, *arguments, env=os.environ | environment, status=0)
    lines = (line.partition(": ") for line in finished.stdout.splitlines())
    return {name: float(value) for name, _, value in lines if value[:1].isdigit()}


def counted(folder, allocator, program, *arguments):
    """The counts of an allocator's instrumented library; its pictures stay in the folder."""
    library = paths.library_dir() / "counted" / own_library(allocator)
    run(program, *arguments, LD_PRELOAD=str(library), TSMALLOC_COUNTERS=str(folder))
    (counters,) = folder.glob("*.counters.json")
    return json.loads(counters.read_text())["totals"]


def free_blocks(folder, allocator, *arguments):
    place = folder / f"{allocator}-{'-'.join(arguments)}"
    place.mkdir()
    return counted(place, allocator, "bench-fits", *arguments, *FITS)["free_blocks_at_snapshot"]


@pytest.mark.parametrize(
    "command",
    [
        ("bench-fits", "mixed", "--threads", "3", *FITS),
        ("bench-fits", "series", "--threads", "3", *FITS),
        ("bench-blow-up", "circle", "--rounds", "4", "--blocks", "2000"),
        ("bench-survivors", "--threads", "1", "--shelves", "20", "--lives", "100"),
        ("bench-search-cost", "replace", "--free", "1000", "--operations", "5000"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_what_is_requested_does_not_depend_on_the_allocator(command):
    # The allocator's own report about its heap.
    its_word = {"free_blocks", "free_bytes", "segment_bytes"}

    def told(**environment):
        figures = run(*command, **environment)
        return {
            name: value
            for name, value in figures.items()
            if "seconds" not in name and name not in its_word
        }

    expected = told()
    assert expected["operations"] > 0
    for allocator in ("tsmalloc", "lock-first", "nolock-worst"):
        library = paths.library_dir() / own_library(allocator)
        assert told(LD_PRELOAD=str(library)) == expected


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (("bench-fits", "series", "--threads", "2", *FITS), "after the last iteration"),
        (("bench-blow-up", "one-way", "--blocks", "500"), "the last round's blocks live"),
        (("bench-search-cost", "pair", "--free", "500"), "after the last request"),
        (("bench-survivors", "--shelves", "5", "--lives", "20"), "all threads have ended"),
        (
            ("thread_test_measurement", "--allocations", "500"),
            "before the remaining blocks are freed",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_says_when_to_look_at_the_heap(tmp_path, command, label):
    counted(tmp_path, "lock-best", *command)
    (picture,) = tmp_path.glob("*.map.json")
    assert json.loads(picture.read_text())["label"] == label


def test_blocks_that_are_freed_at_once_leave_no_free_blocks(tmp_path):
    for fit in ("first", "best", "worst"):
        assert free_blocks(tmp_path, f"lock-{fit}", "alternating", "--threads", "2") <= 5


@pytest.mark.parametrize("shape", ["mixed", "series"])
def test_the_fits_differ_in_what_they_leave(tmp_path, shape):
    left = {fit: free_blocks(tmp_path, f"lock-{fit}", shape) for fit in ("first", "best", "worst")}
    assert left["best"] < left["first"] < left["worst"]
    assert left["best"] > 50  # otherwise there was nothing to search in


def test_without_a_way_home_each_round_needs_fresh_memory(tmp_path):
    arguments = ("bench-blow-up", "one-way", "--rounds", "8", "--blocks", "4000")
    live = run(*arguments)["live_bytes"]
    segments = {}
    for allocator in ("nolock-best", "lock-best"):
        (tmp_path / allocator).mkdir()
        totals = counted(tmp_path / allocator, allocator, *arguments)
        segments[allocator] = totals["segment_bytes_at_snapshot"]
    assert segments["lock-best"] < 1.5 * live
    assert segments["nolock-best"] > 7 * live


def test_the_heap_grows_by_exactly_what_is_missing_if_told_so():
    library = str(paths.library_dir() / own_library("lock-best"))
    command = ("thread_test_measurement", "--threads", "1", "--allocations", "2000")
    exactly = run(*command, "--growth", "0", LD_PRELOAD=library)["sbrk_calls"]
    assert exactly > 1500
    assert run(*command, LD_PRELOAD=library)["sbrk_calls"] < 30
