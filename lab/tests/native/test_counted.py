"""The instrumented libraries: their reports match a program with known calls, however the process
ends; and the other libraries contain no trace of the counters.
"""

import json
import os
import re
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from prompt import ran
from shared_libraries import exported_names

from tsmlab import allocators, counters, paths, tracker
from tsmlab.allocators import Allocator, own_library

OWN = allocators.own_names()
CLASSIC = [name for name in OWN if name != allocators.ENGINE]
LIFE_CYCLES = ("tsmalloc", "lock-best", "nolock-first", "cached-best", "lockfree-best")
PROGRAM = Path(__file__).with_name("counted_program.c").read_text(encoding="utf-8")
MAX_RUNS = 20_000


def counted_library(name):
    library = counters.has_counted(Allocator(name, Path("/x.so"), "tsmalloc", "1"))
    assert library is not None, f"{name} has no counted library: cmake --build build/release"
    return library


@pytest.fixture
def program(build):
    return build("counted_program.c", PROGRAM, "-pthread")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "reports"
    path.mkdir()
    return path


def run(name, folder, *command, status=0, shim="", **more):
    """Runs the command under the instrumented library of that name, and returns its output."""
    preload = {"LD_PRELOAD": f"{shim} {counted_library(name)}"}
    environment = {**os.environ, **preload, counters.VARIABLE: str(folder.absolute()), **more}
    done = ran(*command, env=environment, status=status)
    assert done.stderr == ""
    return done.stdout


def written(folder, kind):
    """The reports of this kind, by process and then by number: PID-10 comes after PID-9."""
    found = folder.glob(f"*.{kind}.json")
    ordered = sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    return [json.loads(path.read_text(encoding="utf-8")) for path in ordered]


def threads_of(folder):
    return [thread for each in written(folder, "counters") for thread in each["threads"]]


def blocks_of(heap_map):
    """Rows: number, bytes, state, owner, used share."""
    return [block for chunk in heap_map["chunks"] for block in chunk["blocks"]]


def files(folder):
    """Their names, without the process IDs."""
    return sorted(re.sub(r"^\d+", "PID", path.name) for path in folder.iterdir())


# --- the counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_calls_are_those_that_the_tracker_counts(name, program, folder):
    calls = folder.parent / "calls"
    calls.mkdir()
    shim = str(paths.library(tracker.LIBRARY))
    run(name, folder, program, "exchange", "500", shim=shim, TSMALLOC_TRACKER=str(calls))
    counts, threads = counters.read(folder), threads_of(folder)
    (record,) = tracker.read(calls)
    assert counts["allocations"] == record.malloc + record.calloc + record.aligned >= 1500
    # libc frees null pointers when a thread ends; the tracker counts those calls.
    assert 1500 <= counts["frees"] <= record.free
    assert len(threads) == 4
    for key, total in counts.items():
        if not key.endswith("_at_snapshot"):
            assert sum(thread[key] for thread in threads) == total, key
    # The main thread came first; the others do equal work.
    assert [(each["allocations"], each["frees"]) for each in threads[1:]] == [(500, 500)] * 3


@pytest.mark.parametrize("name", CLASSIC)
def test_splits_and_merges_explain_every_block(name, program, folder):
    run(name, folder, program, "exchange", "3000")
    counts = counters.read(folder)
    # Each time the heap grows, it adds one block; nothing was returned.
    assert counts["trim_calls"] == 0
    blocks = counts["growth_calls"] + counts["splits"] - counts["merges"]
    in_use = counts["allocations"] - counts["frees"]
    assert blocks == in_use + counts["free_blocks_at_snapshot"]
    assert counts["growth_bytes"] == counts["segment_bytes_at_snapshot"]
    assert counts["searches"] >= counts["allocations"]
    assert counts["blocks_searched"] >= counts["allocations"]


@pytest.mark.parametrize("name", OWN)
def test_memory_given_back_is_counted(name, build, folder):
    source = """
    int main(void) {
      void* block = malloc(100 << 20);
      memset(block, 1, 100 << 20);
      free(block);
      return 0;
    }"""
    run(name, folder, build("give_back.c", source))
    counts = counters.read(folder)
    if name == allocators.ENGINE:
        assert counts["large_allocations"] == 1
        assert counts["purged_bytes"] > 60 << 20
        assert counts["growth_bytes"] == counts["segment_bytes_at_snapshot"]
    else:
        kept = counts["growth_bytes"] - counts["trimmed_bytes"]
        assert kept == counts["segment_bytes_at_snapshot"]
        if not name.startswith("lockfree"):  # returns memory on request, or if it cannot grow
            assert counts["trimmed_bytes"] > 90 << 20


@pytest.mark.parametrize("name", [n for n in OWN if n.startswith("nolock")])
def test_foreign_frees_are_exact_where_blocks_know_their_thread(name, program, folder):
    run(name, folder, program, "exchange", "700")
    assert counters.read(folder)["foreign_frees"] == 3 * 700


def test_the_engine_counts_blocks_of_other_heaps(program, folder):
    run("tsmalloc", folder, program, "exchange", "700")
    counts = counters.read(folder)
    assert counts["remote_frees"] == 3 * 700
    assert 0 < counts["remote_batches_sent"] < 3 * 700
    assert counts["heaps_created"] == 4
    assert 0 < counts["slabs_created"] >= counts["slabs_released"]


def test_caches_explain_every_small_request(program, folder):
    run("cached-best", folder, program, "exchange", "700")
    counts = counters.read(folder)
    small = counts["cache_hits"] + counts["cache_refills"]
    assert 2100 <= small <= counts["allocations"]
    assert counts["cache_refilled_blocks"] >= counts["cache_refills"]
    assert counts["cache_returned_blocks"] >= counts["cache_returns"]


def test_heaps_of_ended_threads_are_adopted(program, folder):
    for name in ("tsmalloc", "nolock-best"):
        run(name, folder, program, "threads", "20")
    counts = counters.read(folder)
    assert counts["adopted_heaps"] == 2 * 19
    assert counts["heaps_created"] == 2 * 2


def test_threads_without_numbers_of_their_own_share_some(program, folder):
    run("lock-best", folder, program, "threads", "1500")
    frees = [thread["frees"] for thread in threads_of(folder)]
    assert len(frees) == 1024
    assert frees[-2:] == [1, 1500 - 1022]
    assert sum(frees) == counters.read(folder)["frees"]


@pytest.mark.parametrize("name", OWN)
def test_a_strategy_has_its_own_counts_alone(name, program, folder):
    run(name, folder, program, "end", "exit")
    counts = set(counters.read(folder))
    strategy = name.split("-", maxsplit=1)[0]
    own = {
        "foreign_frees": {"nolock"},
        "adopted_heaps": {"nolock", "tsmalloc"},
        "arenas_created": {"arenas"},
        "cache_hits": {"cached"},
        "retries": {"lockfree"},
        "bin_refills": {"tsmalloc"},
    }
    assert {key for key in own if key in counts} == {k for k, v in own.items() if strategy in v}
    assert ("searches" in counts) == (strategy != "tsmalloc")
    assert {"allocations", "lock_waits", "free_blocks_at_snapshot"} <= counts


# --- how processes end ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIFE_CYCLES)
@pytest.mark.parametrize(
    ("way", "frees"),
    [
        ("exit", [2]),
        ("_exit", [1]),
        ("_Exit", [1]),
        ("fork", [2, 5]),
        ("fork_exit", [2, 5]),
        # The child of vfork uses its parent's memory.
        ("vfork", [2]),
        # The image before exec writes nothing, the one after it begins at 0.
        ("exec", [2]),
    ],
)
def test_every_process_reports_what_it_did_itself(name, way, frees, program, folder):
    run(name, folder, program, "end", way)
    assert files(folder) == ["PID.counters.json"] * len(frees)
    assert sorted(thread["frees"] for thread in threads_of(folder)) == frees
    assert counters.read(folder)["frees"] == sum(frees)


@pytest.mark.parametrize("name", LIFE_CYCLES)
def test_cancelled_threads_write_and_killed_ones_do_not(name, program, folder):
    run(name, folder, program, "end", "kill", status=-signal.SIGKILL)
    assert files(folder) == []
    run(name, folder, program, "end", "cancelled")
    assert counters.read(folder)["frees"] >= 1
    (heap_map,) = written(folder, "map")
    assert heap_map["label"] == "cancelled"
    assert [name for name in files(folder) if "unfinished" in name] == []


def test_an_image_never_replaces_the_report_of_another(program, folder):
    # A process with the same ID, from another time or container.
    shell = 'for end in "" -1; do echo taken > "$0/$$$end.counters.json"; done; exec "$1" end exit'
    run("lock-best", folder, "/bin/sh", "-c", shell, folder, program)
    assert files(folder) == [f"PID{end}.counters.json" for end in ("-1", "-2", "")]
    untouched = [p for p in folder.iterdir() if p.read_text(encoding="utf-8") == "taken\n"]
    assert len(untouched) == 2


def test_a_shell_and_what_it_starts(folder):
    run("lockfree-first", folder, "/bin/sh", "-c", "(: ; true); /bin/ls / > /dev/null; true")
    # The shell itself, which ends with _exit, its subshell and ls.
    assert len(files(folder)) >= 2
    assert counters.read(folder)["allocations"] > 0


def test_folders_that_cannot_be_written_to_or_are_relative(program, folder):
    gone = folder / "gone"
    for name in LIFE_CYCLES:
        run(name, gone, program, "alternate", "10")
    assert not gone.exists()
    variable = os.path.relpath(folder)
    run("lock-best", folder, "/bin/sh", "-c", "cd /usr; true", TSMALLOC_COUNTERS=variable)
    assert files(folder) == ["PID.counters.json"]


def test_the_very_last_calls_are_counted(build, folder):
    source = """
    static void at_exit(void) { free(malloc(10)); }
    __attribute__((destructor)) static void at_end(void) { free(malloc(10)); }
    int main(void) {
      free(malloc(10));
      return atexit(at_exit);
    }"""
    run("lock-best", folder, build("last_calls.c", source))
    assert counters.read(folder)["frees"] == 3


# --- pictures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIC)
def test_a_picture_shows_every_block(name, program, folder):
    run(name, folder, program, "alternate", "4000")
    counts = counters.read(folder)
    (heap_map,) = written(folder, "map")
    chunks = heap_map["chunks"]
    assert heap_map["label"] == 'half "free"\n'
    assert heap_map["total_chunks"] == len(chunks) >= 1
    pieces = Counter()
    for number, _, state, *_ in blocks_of(heap_map):
        pieces[state] += number
    assert 2000 <= pieces["used"] <= 2020
    assert pieces["free"] + pieces["cached"] == counts["free_blocks_at_snapshot"] >= 2000
    assert (pieces["cached"] > 0) == name.startswith("cached")
    for chunk in chunks:
        assert sum(block[1] for block in chunk["blocks"]) == chunk["bytes"]
        assert all(before[2:4] != after[2:4] for before, after in pairwise(chunk["blocks"]))
    # The whole segment except the headers of chunks.
    drawn = sum(chunk["bytes"] for chunk in chunks)
    segment = counts["segment_bytes_at_snapshot"]
    assert segment - 64 * len(chunks) <= drawn <= segment


def test_the_engine_shows_how_full_its_slabs_are(program, folder):
    run("tsmalloc", folder, program, "alternate", "40000")
    (heap_map,) = written(folder, "map")
    slabs = [block for block in blocks_of(heap_map) if block[2] == "mixed"]
    used = sum(size * share for _, size, _, _, share in slabs)
    # Half of 40,000 blocks of 48 bytes, and the blocks in the thread's bin.
    assert 20_000 * 48 * 0.98 <= used <= 20_000 * 48 * 1.1
    assert {slab[3] for slab in slabs} == {1}


@pytest.mark.parametrize("name", ["lock-best", "cached-first", "lockfree-best"])
def test_a_picture_of_many_blocks_is_coarse_and_whole(name, program, folder):
    run(name, folder, program, "alternate", "200000")
    (heap_map,) = written(folder, "map")
    assert not heap_map["truncated"]
    runs = blocks_of(heap_map)
    assert 1000 < len(runs) <= MAX_RUNS
    headers = 64 * heap_map["total_chunks"]
    drawn = sum(run[1] for run in runs)
    assert drawn >= counters.read(folder)["segment_bytes_at_snapshot"] - headers
    # 100,000 blocks of 48 bytes are in use.
    used = sum(size * share for _, size, _, _, share in runs)
    assert used == pytest.approx(100_000 * 48, rel=0.02)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name == "cached-best" else ())
        for name in OWN
        if name.endswith(("best", "tsmalloc"))
    ],
)
def test_pictures_of_a_busy_heap_harm_nobody(name, program, folder):
    run(name, folder, program, "busy", "5")
    heap_maps = written(folder, "map")
    # While other threads are in the heap, some strategies cannot always draw it.
    assert len(heap_maps) <= 5
    if name.startswith(("lock-", "rwlock", "arenas", "tsmalloc")):
        assert len(heap_maps) == 5


# --- the libraries --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_only_the_counted_library_has_anything_of_counting(name):
    plain = paths.library_dir() / own_library(name)
    counted = counted_library(name)
    added = {"ts_heap_snapshot", "_exit", "_Exit"}
    assert exported_names(counted) == exported_names(plain) | added
    trace = re.compile("thread_counts|event_counts|TimedWait|TextFile")
    assert not [symbol for symbol in exported_names(plain, ".symtab") if trace.search(symbol)]
    assert [symbol for symbol in exported_names(counted, ".symtab") if trace.search(symbol)]
