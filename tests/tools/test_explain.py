"""`tsmalloc explain` and `top` of one process: compares the parts with what the process did, and
their sum with the kernel's. Figures of a process that keeps allocating need only be plausible.
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compiled_programs import REFUSES
from prompt import ran, rollup
from refusals import mentions
from tiny_heap import TINY_HEAP

from tsmlab import paths, tracker

SOURCE = Path(__file__).with_name("explained_program.c")
MB = 1 << 20
BLOCKS = 40_000
BLOCK_BYTES = 1024  # of the class for 1000 bytes
IN_ENGINE = {
    *("small_blocks", "large_blocks", "bins", "waiting", "free_in_slabs", "ended_threads"),
    *("free_pages", "huge_page_ends", "tables"),
}
OUTSIDE = {"heap", "files", "stacks", "shared", "other_mappings"}


TOOL = paths.tool("tsmalloc")


def tell(*arguments, **options):
    return ran(TOOL, "explain", *arguments, **options)


def account_of(process):
    told = tell("--json", process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    answer = json.loads(told.stdout)
    assert (answer["schema"], answer["pid"]) == ("tsmalloc-explain/1", process.pid)
    assert set(answer["resident"]) == IN_ENGINE | OUTSIDE
    return answer


def faults(pid):
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[7]


def is_about(figure, expected):
    return abs(figure - expected) <= max(expected // 20, MB // 2)


# What a process does, and the parts that result, those of at least a megabyte.
WHOLE = BLOCKS * BLOCK_BYTES
PARTS = {
    "little": {},
    "small": {"small_blocks": WHOLE},
    "sparse": {"small_blocks": WHOLE // 8, "free_in_slabs": WHOLE - WHOLE // 8},
    "large": {"large_blocks": 40 * MB},
    "freed": {"large_blocks": 13 * MB, "free_pages": 3 * MB},
    "ended": {"small_blocks": WHOLE // 4, "ended_threads": WHOLE - WHOLE // 4},
    "waiting": {"small_blocks": WHOLE // 4, "waiting": WHOLE - WHOLE // 4},
}

# Threads, heaps, and those of ended threads. Large blocks need no heap.
COUNTS = {"large": (1, 0, 0), "freed": (1, 0, 0), "ended": (1, 2, 1), "waiting": (2, 2, 0)}


@pytest.mark.parametrize("what", PARTS)
def test_each_part_is_what_the_process_did(start, program, what):
    process = start(program, what)
    before = rollup(process.pid, "Rss")
    faults_before = faults(process.pid)
    answer = account_of(process)
    assert faults(process.pid) == faults_before, "looking changes nothing in the process"
    parts = answer["resident"]
    assert abs(answer["resident_bytes"] - before) <= before // 100 + MB
    assert sum(parts.values()) == answer["resident_bytes"] <= answer["peak_resident_bytes"]
    for part in IN_ENGINE - {"tables", "huge_page_ends"}:
        assert is_about(parts[part], PARTS[what].get(part, 0)), (part, parts)
    assert parts["tables"] < 2 * MB
    assert parts["huge_page_ends"] < 2 * MB
    assert parts["other_mappings"] < MB // 2
    assert parts["files"] > 100_000
    assert answer["unclear_pages"] == 0
    counts = (answer["threads"], answer["heaps"], answer["ended_heaps"])
    assert counts == COUNTS.get(what, (1, 1, 0))
    in_classes = sum(each["resident_bytes"] for each in answer["classes"])
    slab_parts = ("small_blocks", "bins", "waiting", "free_in_slabs", "ended_threads")
    assert in_classes == sum(parts[part] for part in slab_parts)


def test_a_large_block_counts_as_far_as_it_is_resident(start, program):
    answer = account_of(start(program, "large"))
    assert is_about(answer["live_bytes"], 140 * MB)
    assert is_about(answer["resident"]["large_blocks"], 40 * MB)
    assert answer["large_block_count"] >= 9


def test_the_end_of_a_huge_page(start, program, monkeypatch):
    """Half of the last huge page belongs to no block."""
    monkeypatch.setenv("TSMALLOC_THP", "always")
    process = start(program, "odd")
    if rollup(process.pid, "AnonHugePages") == 0:
        pytest.skip("this system has no huge pages to give")
    parts = account_of(process)["resident"]
    assert is_about(parts["large_blocks"], 9 * MB)
    assert 15 * MB // 16 <= parts["huge_page_ends"] <= MB


def test_what_the_kernel_may_take_is_the_programs_alone(start, program):
    """Memory that the engine purges is gone at once. Memory returned lazily by a program counts as
    resident until the kernel takes it, as in Rss.
    """
    process = start(program, "lazy")
    parts = account_of(process)["resident"]
    assert is_about(rollup(process.pid, "LazyFree"), 8 * MB)
    assert is_about(parts["other_mappings"], 8 * MB)
    assert sum(parts[part] for part in IN_ENGINE) < 3 * MB
    assert abs(sum(parts.values()) - rollup(process.pid, "Rss")) <= MB


def test_it_says_what_a_purge_gives(start, program):
    process = start(program, "freed")
    parts = account_of(process)["resident"]
    wanted = f"{parts['free_pages'] / MB:.1f}"
    [line] = [line for line in tell(process.pid).stdout.splitlines() if "tsmalloc purge" in line]
    assert line == f"To return {wanted} MiB: tsmalloc purge {process.pid}"
    assert "tsmalloc purge" not in tell(start(program, "little").pid).stdout


def test_people_read_the_same(start, program):
    process = start(program, "sparse")
    parts = account_of(process)["resident"]
    told = tell(process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith(f"Process {process.pid} (explained): ")
    for words, part in {
        "the program's blocks of up to 64 KiB": "small_blocks",
        "free, in slabs beside blocks in use": "free_in_slabs",
    }.items():
        line = next(line for line in lines if line.endswith(words))
        assert abs(float(line.split()[0]) - parts[part] / MB) < 0.1
    busiest = next(line for line in lines if "beside blocks of" in line)
    assert re.search(r"\b1024 bytes\b.* 1", busiest), busiest
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("form", ["static", "stripped", "deleted"])
def test_programs_without_a_library_or_a_file(start, program, tmp_path, form):
    copy = tmp_path / "explained"
    if form == "static":
        library = paths.library("libtsmalloc.a")
        options = ["-O1", "-static", "-s", "-Wl,--gc-sections"]
        subprocess.run(["gcc", *options, SOURCE, library, "-o", copy], check=True)
        process = start(copy, "small", library=None)
    elif form == "stripped":
        library = tmp_path / "libother-name.so"
        options = ["--strip-all", paths.library("libtsmalloc.so").resolve(), library]
        subprocess.run(["strip", "-o", library, options[1]], check=True)
        process = start(program, "small", library=library)
    else:
        copy.write_bytes(program.read_bytes())
        copy.chmod(0o755)
        library = tmp_path / "libtsmalloc.so"
        library.write_bytes(paths.library("libtsmalloc.so").read_bytes())
        process = start(copy, "small", library=library)
        copy.unlink()
        library.unlink()
    assert is_about(account_of(process)["resident"]["small_blocks"], WHOLE)


def test_the_child_of_a_fork(start):
    program = (
        "import os, time\n"
        "kept = [bytes(600) for _ in range(20000)]\n"
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(60)\n"
        "os.write(1, b'ready\\n%d\\n' % pid)\n"
        "time.sleep(60)\n"
    )
    process = start(sys.executable, "-I", "-S", "-c", program)
    child = int(process.stdout.readline())
    try:
        told = tell("--json", child)
    finally:
        os.kill(child, 9)
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert answer["resident"]["small_blocks"] > 20000 * 600
    total = sum(answer["resident"].values())
    assert abs(total - answer["resident_bytes"]) <= total // 100 + MB


def test_a_process_at_work(start, program):
    process = start(program, "busy")
    for _ in range(200):
        answer = account_of(process)
        total = sum(answer["resident"].values())
        assert total >= answer["resident_bytes"] - 16 * MB
        assert answer["live_bytes"] < 64 * MB
        assert answer["unclear_pages"] < 1000
    assert process.poll() is None


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    target = tmp_path_factory.mktemp("broken") / "broken"
    source = SOURCE.with_name("broken_image.cpp")
    include = paths.repository_root() / "src"
    subprocess.run(["g++", "-std=c++20", "-O1", "-I", include, source, "-o", target], check=True)
    return target


@pytest.mark.parametrize("verb", ["explain", "stats"])
def test_a_slab_of_terabytes_takes_no_time(start, broken, verb):
    process = start(broken, "long", library=None)
    began = time.monotonic()
    assert "schema" in json.loads(ran(TOOL, verb, "--json", process.pid).stdout)
    assert time.monotonic() - began < 10


def test_damaged_structures(start, broken):
    """Any answer will do, but there must be one."""
    explained = 0
    for seed in range(100):
        process = start(broken, str(seed), library=None)
        told = tell("--json", process.pid)
        mapped = tell("--map", "--json", process.pid)
        others = [ran(TOOL, verb, "--json", process.pid) for verb in ("stats", "purge")]
        process.kill()
        for answer in (told, mapped, *others):
            assert answer.returncode in (0, 2), (seed, answer)
            if answer.returncode == 0:
                assert "schema" in json.loads(answer.stdout)
            else:
                assert answer.stderr.count("\n") == 1, (seed, answer)
        if told.returncode == 0:
            # With a page count of 0 the engine looks empty.
            explained += json.loads(told.stdout)["engine"]
        else:
            assert f"process {process.pid} (" in told.stderr, seed
    assert 10 < explained < 90


# --- forms, and one after another ---------------------------------------------------------------


def test_prometheus_reads_the_same(start, program):
    process = start(program, "sparse")
    parts = account_of(process)["resident"]
    told = tell("--prometheus", process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    labels = r'pid="(\d+)",command="explained"(?:,part="(\w+)")?'
    line = re.compile(rf"tsmalloc_(\w+)\{{{labels}\}} (\d+)")
    found = {}
    typed = set()
    for text in told.stdout.splitlines():
        if text.startswith("# TYPE "):
            typed.add(text.split()[2].removeprefix("tsmalloc_"))
        elif not text.startswith("# HELP "):
            match = line.fullmatch(text)
            assert match, text
            assert match[1] in typed
            assert int(match[2]) == process.pid
            found[match[3] or match[1]] = int(match[4])
    assert {part: found[part] for part in parts} == parts
    assert found["threads"] == 1
    assert (found["limit_bytes"], found["hard_limit_bytes"]) == (0, 0)


def test_a_metric_has_one_meaning(start, program):
    """Otherwise a collector of the output of explain and stats rejects one."""
    process = start(program, "sparse")
    meanings = {}
    for verb in ("explain", "stats"):
        for line in ran(TOOL, verb, "--prometheus", process.pid).stdout.splitlines():
            if line.startswith("# HELP "):
                _, _, name, meaning = line.split(" ", 3)
                meanings.setdefault(name, set()).add(meaning)
    assert {"tsmalloc_heaps", "tsmalloc_limit_bytes"} <= meanings.keys()
    assert all(len(each) == 1 for each in meanings.values()), meanings


def test_limits_in_effect(start, program):
    process = start(
        "/usr/bin/env", "TSMALLOC_LIMIT=4G", "TSMALLOC_HARD_LIMIT=8G", program, "sparse"
    )
    account = account_of(process)
    assert (account["limit_bytes"], account["hard_limit_bytes"]) == (4 << 30, 8 << 30)
    text = tell(process.pid).stdout
    assert [text.count(f" {limit}.0 MiB\n") for limit in (4096, 8192)] == [1, 1]


def watch(*arguments, **options):
    command = [TOOL, "top", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options)


def test_top_tells_a_line_each_time(start, program):
    process = start(program, "small")
    said, errors = watch("--interval", "0.1", "--count", 3, process.pid).communicate(timeout=60)
    lines = [line.split() for line in said.splitlines()]
    assert errors == ""
    assert lines[0][:4] == ["MiB", "at", "resident", "program"]
    assert len(lines) == 4
    for line in lines[1:]:
        figures = [float(figure) for figure in line[1:]]
        assert abs(figures[0] - sum(figures[1:])) < 2
        assert abs(figures[1] - WHOLE / MB) < 1


# Of 64 MiB: one part that the sum reveals at once, and one found when its turn comes.
@pytest.mark.parametrize(
    ("number", "gone", "looks"), [(signal.SIGUSR1, 32 * MB, 1), (signal.SIGUSR2, MB // 2, 17)]
)
def test_top_asks_again_about_what_was_resident(start, program, number, gone, looks):
    process = start(program, "drops")
    top = watch("--interval", "0.05", "--json", process.pid)

    def next_look():
        answer = json.loads(top.stdout.readline())
        assert sum(answer["resident"].values()) == answer["resident_bytes"]
        return answer["resident"]["large_blocks"]

    whole = [next_look() for _ in range(20)]
    assert set(whole) == {64 * MB}
    by_kernel = rollup(process.pid, "Rss")
    process.send_signal(number)
    while rollup(process.pid, "Rss") > by_kernel - gone:
        time.sleep(0.001)
    under_way = 2  # samples that had begun
    seen = [next_look() for _ in range(under_way + looks)]
    top.kill()
    top.communicate()
    assert seen[-1] == 64 * MB - gone


def test_top_ends_with_the_process(start, program):
    process = start(program, "little")
    top = watch("--interval", "0.1", "--json", process.pid)
    assert json.loads(top.stdout.readline())["pid"] == process.pid
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.wait()
    said, errors = top.communicate(timeout=60)
    assert all(json.loads(line)["pid"] == process.pid for line in said.splitlines())
    assert errors.startswith(f"tsmalloc: process {process.pid} has ended")
    assert top.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_top_and_the_screen(start, program, number):
    process = start(program, "sparse")
    primary, terminal = pty.openpty()
    command = [TOOL, "top", "--interval", "60", str(process.pid)]
    with subprocess.Popen(command, stdout=terminal, stdin=terminal, stderr=terminal) as top:
        said = os.read(primary, 1 << 16)
        while b" large block" not in said:
            said += os.read(primary, 1 << 16)
        top.send_signal(number)
        assert top.wait(timeout=60) == 0
    os.set_blocking(primary, False)
    ending = os.read(primary, 1 << 16)
    os.close(primary)
    os.close(terminal)
    assert said.startswith(b"\033[?1049h")
    assert f"{process.pid} (explained)".encode() in said
    assert ending.endswith(b"\033[?1049l")


# --- what cannot be explained ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("libtsmalloc-secure.so", "runs on libtsmalloc-secure.so"),
        ("libtsmalloc-lock-best.so", "runs on libtsmalloc-lock-best.so"),
    ],
)
def test_another_allocator(start, program, library, said):
    process = start(program, "little", library=library)
    assert said in without_engine(process)


def without_engine(process):
    """Why there is no account; the kernel's figures are printed all the same."""
    answer = account_of(process)
    assert not answer["engine"]
    parts = answer["resident"]
    assert all(parts[part] == 0 for part in IN_ENGINE)
    assert abs(answer["resident_bytes"] - rollup(process.pid, "Rss")) <= MB
    assert parts["files"] > 100_000
    told = tell(process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    assert answer["reason"] in told.stdout
    assert "slabs" not in told.stdout
    [top, errors] = watch("--count", 1, "--json", process.pid).communicate(timeout=60)
    assert (json.loads(top)["reason"], errors) == (answer["reason"], "")
    return answer["reason"]


def test_an_engine_that_serves_nothing(start, program):
    assert "not used" in without_engine(start(program, "nothing"))


def test_memory_of_the_c_library(start, program):
    process = start(program, "small", library=None)
    assert is_about(account_of(process)["resident"]["heap"], WHOLE)
    assert "tsmalloc run -- PROGRAM" in without_engine(process)


def test_an_engine_behind_another_allocator(start, program, build, tmp_path):
    other = tmp_path / "libjemalloc.so.2"
    shutil.copy(build("tiny.c", TINY_HEAP, "-shared", "-fPIC"), other)
    library = f"{other}:{paths.library('libtsmalloc.so')}"
    process = start(program, "little", library=library)
    said = without_engine(process)
    assert "not used" in said
    assert other.name in said


def test_another_version(start, program, tmp_path):
    library = tmp_path / "libtsmalloc.so"
    notes = ran("readelf", "-SW", paths.library("libtsmalloc.so")).stdout
    fields = next(line for line in notes.splitlines() if ".note.tsmalloc" in line).split("]")[1]
    section = int(fields.split()[3], 16)
    image = bytearray(paths.library("libtsmalloc.so").read_bytes())
    # The descriptor follows the note's header and name, and contains the distance to the number.
    descriptor = section + 12 + 12
    layout = descriptor + int.from_bytes(image[descriptor : descriptor + 8], "little", signed=True)
    image[layout] ^= 1
    library.write_bytes(image)
    process = start(program, "little", library=library)
    assert "that version's command" in without_engine(process)


def test_a_process_that_lets_nobody_look(start, build):
    """PR_SET_DUMPABLE: the kernel's rule about who may inspect a process applies."""
    program = build(
        "undumpable.c",
        """
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(int count, char** arguments) {
          if (count > 1 && setuid(atoi(arguments[1])) != 0) return 1;
          if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return 1;
          if (malloc(100) == NULL || write(1, "ready\\n", 6) != 6) return 1;
          for (;;) pause();
        }
        """,
    )
    is_root = os.getuid() == 0
    process = start(program, *(["65534"] if is_root else []))
    if is_root:
        assert account_of(process)["live_bytes"] >= 100
    who = {"user": 65534, "group": 65534, "extra_groups": ()} if is_root else {}
    for verb in ("explain", "purge", "set"):
        told = ran(TOOL, verb, process.pid, **who)
        assert (told.returncode, told.stdout) == (2, ""), told
        mentions(told.stderr, f"process {process.pid}: ", "--cap-add=SYS_PTRACE")


def test_rights_to_see_but_not_to_read(start, program, build):
    """Yama's default: a process that can see mappings may not read memory."""
    process = start(program, "little")
    refuse = build("refuse.c", REFUSES, "-DREFUSED=SYS_process_vm_readv")
    for verb in ("explain", "top"):
        told = ran(refuse, TOOL, verb, process.pid)
        assert told.returncode == 2
        mentions(told.stderr, f"process {process.pid}: ", "--cap-add=SYS_PTRACE")


def test_a_kernel_without_a_scan_of_pages(start, program, build):
    refuse = build("refuse.c", REFUSES, "-DREFUSED=SYS_ioctl")
    process = start(program, "sparse")
    said = ran(refuse, TOOL, "explain", "--json", process.pid)
    assert json.loads(said.stdout) == account_of(process)
    assert json.loads(said.stdout)["resident"]["files"] > 100_000


def test_a_process_whose_first_thread_ended(start):
    program = (
        "import ctypes, os, threading, time\n"
        "open('/proc/self/comm', 'w').write('a\\x1b[2J')\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "os.write(1, b'ready\\n')\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = start(sys.executable, "-I", "-S", "-c", program)
    while "(zombie)" not in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"):
        time.sleep(0.01)
    answer = account_of(process)
    assert answer["resident"]["files"] > MB
    assert answer["command"] == "a?[2J"


def test_an_answer_that_cannot_be_written(start, program):
    process = start(program, "little")
    for option in ([], ["--json"]):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            done = subprocess.run(
                [TOOL, "explain", *option, str(process.pid)],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 1
        assert b"cannot write" in done.stderr


# --- against the tracker -------------------------------------------------------------------------

# Threads hold 200 MB in blocks of exactly class sizes, so that nothing is rounded, and replace them
# all the time; they stop at the first line of input.
HOLDS = """
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
enum { threads = 4, count = 25000 };
static atomic_bool rests;
static pthread_barrier_t is_full, at_rest;
static void* hold(void* seed) {
  void** const blocks = calloc(count, sizeof *blocks);
  uint64_t state = (uintptr_t)seed;
  for (uint64_t turn = 0; !rests; ++turn) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t i = turn < count ? turn : (state >> 40) % count;
    free(blocks[i]);
    const size_t bytes = 1 + (state >> 33) % 4000;
    void* const probe = malloc(bytes);
    const size_t whole = malloc_usable_size(probe);
    free(probe);
    blocks[i] = malloc(whole);
    if (turn == count) pthread_barrier_wait(&is_full);
  }
  pthread_barrier_wait(&at_rest);
  for (;;) pause();
}
int main(void) {
  pthread_t thread;
  pthread_barrier_init(&is_full, NULL, threads + 1);
  pthread_barrier_init(&at_rest, NULL, threads + 1);
  for (uintptr_t i = 1; i <= threads; ++i) pthread_create(&thread, NULL, hold, (void*)i);
  pthread_barrier_wait(&is_full);
  if (write(1, "ready\\n", 6) != 6) return 1;
  char byte;
  if (read(0, &byte, 1) != 1) return 1;
  rests = 1;
  pthread_barrier_wait(&at_rest);
  if (write(1, "rests\\n", 6) != 6) return 1;
  for (;;) pause();
}
"""


def test_live_bytes_are_those_that_are_tracked(start, build, tmp_path, monkeypatch):
    """Within 1% at rest, and 3% under load."""
    monkeypatch.setenv(tracker.VARIABLE, str(tmp_path))
    libraries = f"{tracker.LIBRARY}:libtsmalloc.so"
    process = start(build("holds.c", HOLDS, "-pthread"), library=libraries)

    def live_as_tracked():
        [tracked] = tracker.read(tmp_path)
        return tracked.live_bytes

    off = 0.0
    for _ in range(10):
        before = live_as_tracked()
        live = account_of(process)["live_bytes"]
        after = live_as_tracked()
        assert before > 150 * MB
        assert min(before, after) * 0.97 < live < max(before, after) * 1.03
        off = max(off, 1 - live / min(before, after), live / max(before, after) - 1)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"rests\n"
    live, tracked = account_of(process)["live_bytes"], live_as_tracked()
    assert live == pytest.approx(tracked, rel=0.01)
    print(
        f"live bytes: {100 * off:.2f}% off under load, {100 * abs(live / tracked - 1):.2f}% at rest"
    )
