"""`replay`: it makes all calls of a trace, in each order, under any allocator; it reports an
allocator's errors; and its figures exclude its own memory and time.

The traces are synthetic, so their figures are known independently of the tested code.
"""

import itertools
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prompt import ran
from shared_libraries import C_LIBRARY, needed_libraries

from tsmlab import paths, tracker
from tsmlab.traces import files

SCHEDULES = ("asap", "recorded", "round-robin", "lottery", "stride")
REPEATABLE = ("recorded", "round-robin", "lottery", "stride")
ALLOCATORS = ("", "libtsmalloc.so")
LONGEST_REPLAY_SECONDS = 60
WRONG, FAILED = 2, 125

# The C library's functions, with wrappers that misbehave on request.
ODD_ALLOCATOR = r"""
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static const char *what(void) {
  static const char *name;
  if (!name) name = getenv("ODD");
  return name ? name : "";
}
static pid_t first;
static char one[128] __attribute__((aligned(16)));
__attribute__((constructor)) static void note(void) { first = getpid(); }
void *malloc(size_t size) {
  static int calls;
  calls++;
  if (!strcmp(what(), "scarce") && calls % 10 == 0) { errno = ENOMEM; return NULL; }
  if (!strcmp(what(), "crashes") && calls > 500) raise(SIGSEGV);
  if (!strcmp(what(), "crashes in children") && getpid() != first) raise(SIGSEGV);
  if (!strcmp(what(), "twice") && size > 100 && size < 120) {
    return one;
  }
  char *block = __libc_malloc(size + 16);
  if (!strcmp(what(), "misaligns") && size > 100 && size < 120) return block + 8;
  return block;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) {
  char *block = __libc_calloc(count, size);
  if (!strcmp(what(), "not zero") && count * size > 50) block[count * size - 1] = 1;
  return block;
}
void *realloc(void *block, size_t size) {
  if (!strcmp(what(), "scarce") && size % 3 == 0) return NULL;
  size_t kept = 0;  /* of what is no block of the C library's */
  if (block == one) kept = sizeof one;
  if ((uintptr_t)block % 16 == 8) kept = malloc_usable_size((char *)block - 8) - 8;
  if (kept) return memcpy(__libc_malloc(size + 128), block, size < kept ? size : kept);
  char *moved = __libc_realloc(block, size);
  if (!strcmp(what(), "loses content") && moved && size > 0) moved[0] ^= 1;
  return moved;
}
"""


@dataclass
class Synthetic:
    """A trace, with the figures of its images."""

    trace: Path
    images: list[dict[str, Any]]


def run_tool(name, *arguments, status=0, env=None):
    own = {"stdin": subprocess.DEVNULL, "env": os.environ | (env or {}), "status": status}
    return ran(paths.tool(name), *arguments, timeout=LONGEST_REPLAY_SECONDS, **own)


@pytest.fixture
def synthetic(tmp_path):
    """synthetic(threads=4, ...) makes a trace; replay/synthetic.h has the names."""

    def make(**recipe):
        folder = tmp_path / f"trace-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        trace = folder / "trace"
        words = [f"{name}={number}" for name, number in recipe.items()]
        done = run_tool("synthetic_trace", trace, *words)
        return Synthetic(trace, [json.loads(line) for line in done.stdout.splitlines()])

    return make


@pytest.fixture
def odd(build):
    """odd(what) is the environment that makes the odd allocator do that."""
    library = build("odd.c", ODD_ALLOCATOR, "-shared", "-fPIC")
    return lambda what: {"LD_PRELOAD": str(library), "ODD": what}


def preload(library):
    return {"LD_PRELOAD": str(paths.library(library))} if library else {}


def replay(trace, *options, status=0, env=None):
    done = run_tool("replay", *options, trace, env=env, status=status)
    assert done.stdout.count("\n") == 1
    line = json.loads(done.stdout)
    assert line["schema"] == "tsmalloc-replay/1"
    return dict(line)


def assert_right(line, expected):
    assert line["matches"]
    assert line["calls"] == expected["calls"]
    assert line["bytes"] == expected["bytes"]
    assert line["live_bytes"] == expected["live_bytes"]
    assert line["planned"]["live_objects"] == expected["live_objects"]
    assert line["planned"]["peak_live_bytes"] == expected["peak_live_bytes"]
    assert line["corrupt"] == line["misaligned"] == line["null_results"] == 0
    assert line["fault"] is None


@pytest.mark.parametrize("library", ALLOCATORS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sixteen_threads_end_with_what_was_live(synthetic, schedule, library):
    trace = synthetic(threads=16, events=20_000, seed=5)
    line = replay(
        trace.trace, "--schedule", schedule, "--verify", "--touch", "all", env=preload(library)
    )
    assert_right(line, trace.images[0])
    assert line["allocator"] == (library or "libc.so.6")
    if schedule == "recorded":
        assert line["peak_live_bytes"] == trace.images[0]["peak_live_bytes"]


@pytest.mark.parametrize("library", ALLOCATORS)
@pytest.mark.parametrize("schedule", REPEATABLE)
def test_two_runs_have_the_same_addresses(synthetic, schedule, library):
    trace = synthetic(threads=6, events=20_000).trace
    # the kernel decides when the background thread runs
    env = preload(library) | {"TSMALLOC_BACKGROUND": "off"}
    runs = [replay(trace, "--schedule", schedule, "--samples", "20", env=env) for _ in range(3)]
    if runs[0]["aslr"]:
        pytest.skip("the system does not permit addresses that are not randomised")
    for name in ("checksum", "samples", "peak_live_bytes", "shares"):
        assert runs[0][name] == runs[1][name] == runs[2][name], name
    assert runs[0]["cpu"] is not None
    assert not runs[0]["huge_pages"]


def test_seeds_and_schedules_are_different_orders(synthetic):
    trace = synthetic(threads=6, events=10_000, live_objects=200).trace
    options = [("lottery", "1"), ("lottery", "2"), ("round-robin", "1"), ("recorded", "1")]
    sums = {replay(trace, "--schedule", name, "--seed", seed)["checksum"] for name, seed in options}
    assert len(sums) == len(options)


@pytest.mark.parametrize("schedule", ["asap", "recorded"])
@pytest.mark.parametrize("threads", [1, 6])
def test_replay_itself_never_allocates(synthetic, tmp_path, schedule, threads):
    trace = synthetic(threads=threads)
    env = {
        "LD_PRELOAD": str(paths.library(tracker.LIBRARY)),
        "TSMALLOC_TRACKER_CALLS": str(tmp_path),
    }
    options = ("--schedule", schedule, "--samples", "5", "--latency", "--settle", "0")
    line = replay(trace.trace, *options, env=env)
    # Of the two processes after replay restarted itself, the one that replayed.
    counts = max(tracker.read(tmp_path), key=lambda each: each.malloc)
    calls = line["calls"]
    # libc allocates a table for each thread that starts, and frees it with all its empty slots.
    started = line["planned"]["threads"] - 1
    assert counts.malloc == calls["malloc"] + calls["refused"]
    assert counts.calloc == calls["calloc"] + started
    assert counts.realloc == calls["realloc"]
    assert counts.aligned == calls["aligned"]
    live = line["planned"]["live_objects"]
    others = counts.free - (calls["free"] + live + line["granted"])
    assert others == started * (others // max(started, 1))


def test_replay_needs_the_c_library_alone():
    assert needed_libraries(paths.tool("replay")) <= C_LIBRARY


def test_forked_children_make_their_own_calls(synthetic):
    trace = synthetic(forks=4, threads=5)
    schedules = ("asap", "stride", "recorded")
    for window, schedule in itertools.product(("0", "50", "1000"), schedules):
        options = ("--window", window, "--schedule", schedule, "--verify", "--samples", "5")
        line = replay(trace.trace, *options)
        assert_right(line, trace.images[0])
        assert [child["image"] for child in line["children"]] == [1, 2, 3, 4]
        for child in line["children"]:
            assert child["ended"]
            assert child["parent"] == 0
            assert child["samples"]
            assert_right(child, trace.images[child["image"]])


def test_the_busiest_program_is_replayed_or_by_number(synthetic):
    """As in a trace of a shell script: image 0 is the shell."""
    trace = synthetic(events=300, execs=2, exec_events=9_000)
    line = replay(trace.trace)
    assert (line["program"], line["image"]) == ("other", 1)
    assert files.read_whole_trace(trace.trace).chosen(None).number == 1
    assert_right(line, trace.images[1])
    trace = synthetic(execs=2)
    assert replay(trace.trace)["image"] == 0
    assert_right(replay(trace.trace, "--image", "2"), trace.images[2])


def test_null_results_are_survived(synthetic, odd):
    trace = synthetic(threads=4)
    line = replay(trace.trace, "--verify", "--latency", env=odd("scarce"))
    assert line["null_results"] > 100
    assert line["calls"] == trace.images[0]["calls"]
    assert line["matches"]
    assert line["live_bytes"] < trace.images[0]["live_bytes"] + line["bytes"]["realloc"]
    assert line["latency"]["null"]["calls"] >= line["null_results"]


@pytest.mark.parametrize("what", ["not zero", "loses content", "twice"])
def test_content_that_is_lost_is_found(synthetic, odd, what):
    trace = synthetic(threads=1).trace
    assert replay(trace, "--verify", env=odd("nothing"))["corrupt"] == 0
    line = replay(trace, "--verify", status=WRONG, env=odd(what))
    assert line["corrupt"] > 10
    assert line["matches"]
    kinds = {"not zero": {"calloc"}, "loses content": {"realloc"}}
    assert line["fault"]["kind"] in kinds.get(what, {"free", "realloc"})
    assert replay(trace, env=odd(what))["corrupt"] == 0, "only --verify looks"


def test_addresses_that_are_not_aligned_are_found(synthetic, odd):
    line = replay(synthetic(threads=1).trace, "--verify", status=WRONG, env=odd("misaligns"))
    assert line["misaligned"] > 10
    assert line["corrupt"] == 0
    assert line["fault"]["offset"] is None
    assert line["fault"]["address"] % 16 == 8


def test_a_crash_ends_replay_and_of_a_child_is_told(synthetic, odd):
    done = run_tool("replay", synthetic().trace, env=odd("crashes"), status=-signal.SIGSEGV)
    assert done.stdout == ""
    trace = synthetic(forks=1).trace
    line = replay(trace, status=WRONG, env=odd("crashes in children"))
    (child,) = line["children"]
    ended = {"ended": False, "exit_code": None, "signal": signal.SIGSEGV}
    assert child == {"parent": 0, "image": 1, **ended}
    assert line["matches"]


def test_paced_calls_come_at_their_times(synthetic):
    trace = synthetic(threads=3, events=500, ns_per_event=2_000_000)
    line = replay(trace.trace, "--schedule", "paced", "--verify")
    assert_right(line, trace.images[0])
    assert line["wall_ns"] >= 990_000_000


def test_latencies_are_counted_for_each_kind(synthetic):
    trace = synthetic(threads=4)
    line = replay(trace.trace, "--latency")
    assert line["clock"]["source"] in {"tsc", "monotonic"}
    counted = {kind: latency["calls"] for kind, latency in line["latency"].items()}
    refused = counted.pop("null", 0)
    expected = dict(trace.images[0]["calls"])
    expected["refused"] -= refused
    assert counted == {kind: calls for kind, calls in expected.items() if calls}
    for latency in line["latency"].values():
        assert sum(calls for _, calls in latency["buckets"]) == latency["calls"]
        uppers = [upper for upper, _ in latency["buckets"]]
        assert uppers == sorted(uppers)
        assert uppers[-1] >= latency["max_ns"] > 0
    assert replay(trace.trace)["latency"] is None


def test_memory_is_that_of_the_blocks(synthetic):
    # 64 MB of blocks that the C library maps separately, each written completely.
    trace = synthetic(threads=1, max_bytes=2_000_000, live_objects=256, events=3_000)
    line = replay(trace.trace, "--touch", "all", "--samples", "100", "--settle", "0.01")
    live = line["peak_live_bytes"]
    assert live == trace.images[0]["peak_live_bytes"]
    assert live > 20e6
    assert live * 0.95 < line["peak_resident_bytes"] < live * 1.3
    assert line["start_resident_bytes"] < 1e6
    assert line["settled_resident_bytes"] <= line["freed_resident_bytes"]
    assert line["freed_resident_bytes"] < line["end_resident_bytes"]
    assert line["peak_rss_bytes"] > line["peak_resident_bytes"]
    assert len(line["samples"]) in {100, 101}
    for event, sampled, resident, lazy in line["samples"]:
        assert 0 < event <= line["planned"]["events"]
        assert sampled <= live
        assert resident > sampled * 0.9 - 1e6
        assert lazy == 0


def test_untouched_blocks_are_not_resident(synthetic):
    trace = synthetic(threads=1, max_bytes=2_000_000, live_objects=256, events=3_000).trace
    peaks = [
        replay(trace, "--touch", touch, "--samples", "50")["peak_resident_bytes"]
        for touch in ("none", "first", "page", "all")
    ]
    assert peaks[0] < peaks[1] < peaks[2] * 0.6
    assert abs(peaks[3] - peaks[2]) < peaks[3] * 0.05


def test_memory_of_replay_itself_is_not_counted(synthetic):
    trace = synthetic(threads=1, max_bytes=0, live_objects=100_000, events=400_000, has_aligned=0)
    all_events = np.concatenate([events for _, _, _, events in files.chunks(trace.trace)])
    objects = int(all_events["slot"].max()) + 1  # one thread: those alive at the peak
    line = replay(trace.trace, "--samples", "10")
    assert abs(line["own_bytes"] - 16 * objects) < 100_000
    # The C library needs 32 bytes for each block, and replay's slots are not counted.
    assert abs(line["peak_resident_bytes"] - 32 * objects) < 500_000


def test_tickets_share_the_processor(synthetic):
    trace = synthetic(threads=3, threads_end=0, everybody_shares=0, events=30_000)
    options = ("--schedule", "stride", "--tickets", "3,2,1", "--quantum", "10")
    line = replay(trace.trace, "--window", "0", *options)
    assert_right(line, trace.images[0])
    assert [share[1] for share in line["shares"]] == [3, 2, 1]
    assert sum(share[2] for share in line["shares"]) == line["ticks"]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ([], "tsmalloc record"),
        (["a", "b"], "give only one"),
        (["--schedule", "fair", "a"], "round-robin"),
        (["--touch", "some", "a"], "none, first, page or all"),
        (["--quantum", "0", "a"], "at least 1"),
        (["--tickets", "1,,2", "a"], "--tickets"),
        (["--samples", "x", "a"], "whole number"),
        (["--nonsense", "a"], "--help"),
    ],
)
def test_wrong_usage_says_what_is_right(words, remedy):
    done = run_tool("replay", *words, status=1)
    assert remedy in done.stderr
    assert done.stdout == ""


def test_what_a_killed_recorder_left_is_replayed(synthetic, tmp_path):
    """Its last chunks are missing, which counts as the end of the trace and of its image."""
    trace = synthetic(threads=2)
    cut = tmp_path / "cut"
    for size in range(len(whole := trace.trace.read_bytes()) - 100, len(whole)):
        cut.write_bytes(whole[:size])
        done = run_tool("trace", "info", cut, status=None)
        if done.returncode == 0:
            line = replay(cut)
            assert line["finished"] is False
            assert_right(line, trace.images[0])
            return
    pytest.fail("there is no place between two chunks")


def test_addresses_are_written_down_in_their_order(synthetic, tmp_path):
    trace = synthetic(threads=3, forks=1)
    logs = [tmp_path / "one", tmp_path / "two"]
    for log in logs:
        line = replay(trace.trace, "--schedule", "stride", "--addresses", str(log))
    assert line["aslr"] or logs[0].read_bytes() == logs[1].read_bytes()
    live: dict[int, int] = {}
    requested = 0
    for address, packed in np.fromfile(logs[0], "<u8").reshape(-1, 2).tolist():
        size, thread = packed & (1 << 40) - 1, packed >> 40
        assert thread < line["planned"]["threads"]
        if size:
            assert address not in live
            live[address] = size
            requested += size
        else:
            del live[address]
    assert not live, "replay frees all at its end"
    kinds = ("malloc", "calloc", "aligned", "realloc")
    empty = sum(
        line["calls"][kind] for kind in kinds
    )  # a request for 0 bytes is logged as one byte
    assert 0 <= requested - sum(line["bytes"][kind] for kind in kinds) < empty / 10
    done = run_tool("replay", "--addresses", "/dev/full/x", trace.trace, status=FAILED)
    assert "addresses" in done.stderr


def test_an_image_that_is_not_there_is_told(synthetic):
    done = run_tool("replay", "--image", "9", synthetic().trace, status=FAILED)
    assert "image is 0" in done.stderr


def test_slots_follow_what_lives(synthetic):
    """Not every object that ever existed: replay only needs memory for slots and stacks."""
    few, many = (
        replay(synthetic(threads=4, live_objects=1_000, events=events).trace)["own_bytes"]
        for events in (30_000, 300_000)
    )
    assert many < few + 300_000
