"""The recorder: all of a program's calls to its allocator are in the trace, whatever it does.

Traces are compared with the programs' own counts, minus those of an idle run (the loader and the
run-time library), so every event is examined. Traces of real programs are compared with the
tracker's counts in the same run.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import shim_programs as programs
from prompt import is_alive, ran, wait_until
from refusals import mentions
from shim_programs import ALLOCATORS, FUNCTIONS, REAL_PROGRAMS, early_and_late, library_of, under

from tsmlab import paths, tracker
from tsmlab.traces import files

MAKES = ("malloc", "calloc", "aligned")


class Event(NamedTuple):
    time_ns: int
    thread: int
    kind: str
    slot: int  # of the object; for thread_begin the creator, for fork the child's image
    size: int
    alignment: int | None


@dataclass
class Image:
    """The events of one image, and what `record` reported about it."""

    said: dict[str, Any]
    events: list[Event]
    inherited: dict[int, int]  # slot: bytes
    live: dict[int, int] = field(default_factory=dict)
    forks: dict[int, dict[int, int]] = field(default_factory=dict)  # child: inherited objects

    def __post_init__(self):
        """Replays the events in a model, and fails at the first impossible one."""
        self.live = dict(self.inherited)
        threads = {0}
        born = 1
        for event in self.events:
            if event.kind == "thread_begin":
                assert event.thread == born > event.slot
                born += 1
                threads.add(event.thread)
            assert event.thread in threads, event
            if event.kind == "thread_end":
                threads.remove(event.thread)
            if event.kind in MAKES:
                assert event.slot not in self.live
            if event.kind in (*MAKES, "realloc"):
                assert event.kind != "realloc" or event.slot in self.live
                self.live[event.slot] = event.size
            elif event.kind == "free":
                del self.live[event.slot]
            elif event.kind == "fork":
                self.forks[event.slot] = dict(self.live)
        assert len(self.events) == self.said["events"]
        assert born == self.said["threads"]

    def __getitem__(self, name):
        return self.said[name]

    @property
    def live_bytes(self):
        return sum(self.live.values())

    def counts(self):
        return Counter(event.kind for event in self.events)

    def sizes(self, *kinds):
        return Counter(event.size for event in self.events if event.kind in kinds)

    def requested(self):
        """Bytes of all successful requests."""
        return sum(size * n for size, n in self.sizes(*MAKES, "realloc").items())

    def by_thread(self, kind):
        return Counter(event.thread for event in self.events if event.kind == kind)


@dataclass
class Recorded:
    """One run of `record`."""

    status: int
    stderr: str
    answer: dict[str, Any]
    images: list[Image]

    @property
    def only(self):
        [image] = self.images
        return image

    @property
    def unrecorded(self):
        return [each["program"] for each in self.answer["unrecorded"]]

    def of(self, program):
        return [image for image in self.images if image["program"] == Path(program).name[:127]]


def read_events(trace):
    """The events of a whole trace, by image."""
    found: dict[int, list[Event]] = {}
    for kind, image, first, events in files.chunks(trace):
        if kind != files.EVENTS:
            continue
        own = found.setdefault(image, [])
        assert first == len(own)
        for time_ns, size, site, slot, _, thread, number, log2, reserved in events.tolist():
            name = files.KINDS[number]
            assert site == reserved == 0
            assert log2 == 0 or name == "aligned"
            alignment = 1 << log2 if name == "aligned" else None
            own.append(Event(time_ns, thread, name, slot, size, alignment))
    return found


def read_images(trace, said):
    """The images of a whole trace. said: what `record` reported about them."""
    events = read_events(trace) if any(each["events"] for each in said) else {}
    images: list[Image] = []
    for each in said:
        inherited: dict[int, int] = {}
        if each["birth"] == "fork" and each["parent"] is not None:
            parent = next(i for i in images if i["image"] == each["parent"])
            inherited = parent.forks.get(each["image"], {})
        images.append(Image(each, events.get(each["image"], []), inherited))
    return images


def start_record(trace, command, *options, environment=None, stdout=Path(os.devnull), answer=None):
    """Starts `record`, which writes its line to `answer`, or else next to the trace."""
    output = ["--output", answer or trace.with_suffix(".json")]
    arguments = [paths.tool("record"), "-o", trace, *output, "--stdout", stdout, *options]
    return subprocess.Popen(
        [*map(str, arguments), "--", *map(str, command)],
        env=dict(os.environ) | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_record(process, trace):
    _, stderr = process.communicate(timeout=120)
    line = json.loads(trace.with_suffix(".json").read_text()) if process.returncode == 0 else {}
    images = read_images(trace, line["images"]) if line.get("images") else []
    return Recorded(process.returncode, stderr, line, images)


def kill_record(process):
    """The processes that it started may survive, and hold its pipes open."""
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe
        pipe.close()


NO_ODDITIES = dict.fromkeys(
    ("unknown_frees", "unknown_resizes", "missed_frees", "unfinished_resizes", "lost_events"), 0
)


@pytest.fixture
def record(tmp_path):
    """record(command, *options, allocator="", status=0, **environment) records it."""
    runs = 0

    def run(command, *options, allocator="", exit_code=0, stdout=Path(os.devnull), **environment):
        nonlocal runs
        runs += 1
        trace = tmp_path / f"run{runs}.tstrace"
        library = library_of(allocator)
        preload = ["--preload", library] if library else []
        more = {"environment": environment, "stdout": stdout}
        recorded = finish_record(start_record(trace, command, *preload, *options, **more), trace)
        assert recorded.status == 0, recorded.stderr
        assert recorded.answer["spawn_error"] is None
        assert recorded.answer["exit_code"] == exit_code, recorded.stderr
        return recorded

    return run


def oddities(image):
    return {name: image[name] for name in NO_ODDITIES}


def more(busy, idle):
    """The calls in one but not in the other, which must have none of its own."""
    assert not idle - busy
    return dict(busy - idle)


class TestFunctions:
    @pytest.mark.parametrize("allocator", ALLOCATORS)
    @pytest.mark.parametrize(
        ("function", "kind", "size"),
        # realloc of a null pointer allocates a block as malloc does.
        [(name, kind.replace("realloc", "malloc"), size) for name, kind, size in FUNCTIONS],
    )
    def test_c_functions(self, record, calls, allocator, function, kind, size):
        idle = record([calls, function, "0"], allocator=allocator).only
        busy = record([calls, function, "1000"], allocator=allocator).only
        assert more(busy.counts(), idle.counts()) == {kind: 1000, "free": 1000}
        assert more(busy.sizes(kind), idle.sizes(kind)) == {size: 1000}
        if kind == "aligned":
            alignments = Counter(event.alignment for event in busy.events if event.alignment)
            assert alignments == {64: 1000}
        assert busy.live == idle.live
        assert oddities(busy) == NO_ODDITIES
        assert busy["program"] == calls.name
        library = library_of(allocator)
        expected = library.resolve().name if library else "libc.so.6"
        assert busy["allocator"].split(".so")[0] == expected.split(".so")[0]

    @pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
    def test_refusals(self, record, calls, allocator):
        idle = record([calls, "refused", "0"], allocator=allocator).only
        busy = record([calls, "refused", "100"], allocator=allocator).only
        assert more(busy.counts(), idle.counts()) == {"malloc": 100, "free": 100, "refused": 400}
        most, product = 2**63 - 1, 2**64 - 1  # an overflow is recorded as the largest size
        assert busy.sizes("refused") == {most: 300, product: 100}
        assert busy.live == idle.live
        assert oddities(busy) == NO_ODDITIES

    def test_freeing_nothing_is_no_event(self, record, calls):
        idle = record([calls, "free", "0"]).only
        busy = record([calls, "free", "1000"]).only
        assert busy.counts() == idle.counts()
        assert busy["null_frees"] - idle["null_frees"] == 1000

    @pytest.mark.parametrize("allocator", ALLOCATORS)
    def test_new_and_delete_in_all_forms(self, record, build, allocator):
        if allocator in ("tcmalloc", "mimalloc"):
            pytest.skip("where others throw, it writes a warning, or aborts")
        program = build("operators.cpp", programs.OPERATORS)
        idle = record([program, "0", "0"], allocator=allocator).only
        busy = record([program, "100", "100"], allocator=allocator).only
        sizes = more(busy.sizes("malloc"), idle.sizes("malloc"))
        # For each throw, the run-time library allocates an exception object.
        [exception] = sizes.keys() - {0, 1, 2, 3, 4, 9, 10}
        assert sizes == dict.fromkeys((0, 1, 2, 3, 4, 9, 10, exception), 100)
        assert busy.sizes("aligned") - idle.sizes("aligned") == dict.fromkeys(
            (5, 6, 7, 8, 11, 12), 100
        )
        assert {e.alignment for e in busy.events if e.kind == "aligned" and e.size < 13} == {64}
        # If operator new throws without calling malloc, nothing was returned at all.
        assert busy.sizes("refused") in ({2**62: 100}, {})
        frees = more(busy.counts(), idle.counts())["free"]
        assert frees == 1400
        assert busy["null_frees"] - idle["null_frees"] == 100
        assert busy.live == idle.live
        assert oddities(busy) == NO_ODDITIES

    REALLOCATIONS = """
    int main(int argc, char** argv) {
      for (long i = atol(argv[1]); i > 0; --i) {
        size_t size = 1;
        char* p = malloc(size);
        while (size < 100000) p = realloc(p, size = size * 3 / 2 + 1);
        p = realloc(p, 50);
        if (i % 2) p = realloc(p, 0);      /* frees, or leaves an empty block */
        free(p);
      }
      return 0;
    }
    """

    @pytest.mark.parametrize("allocator", ALLOCATORS)
    def test_reallocations(self, record, build, allocator):
        program = build("record-reallocations.c", self.REALLOCATIONS)
        idle = record([program, "0"], allocator=allocator).only
        busy = record([program, "20"], allocator=allocator).only
        sizes, size = {50: 20}, 1
        while size < 100_000:
            size = size * 3 // 2 + 1
            sizes[size] = 20
        resizes = more(busy.sizes("realloc"), idle.sizes("realloc"))
        assert resizes.pop(0, 0) in (0, 10)
        assert resizes == sizes
        counts = more(busy.counts(), idle.counts())
        assert counts["malloc"] == 20
        assert counts["free"] == 20
        assert busy.live == idle.live
        assert oddities(busy) == NO_ODDITIES

    def test_blocks_that_came_or_went_unseen(self, record, build):
        source = """
        void* __libc_malloc(size_t);
        void __libc_free(void*);
        int main(void) {
          for (int i = 0; i < 10; ++i) free(__libc_malloc(7777));
          void* p = realloc(__libc_malloc(10), 88888);
          free(p);
          for (int i = 0; i < 10; ++i) __libc_free(malloc(3333));    /* the same address again */
          return 0;
        }
        """
        image = record([build("record-unseen.c", source)]).only
        assert (image["unknown_frees"], image["unknown_resizes"]) == (10, 1)
        assert image["missed_frees"] == 9
        assert image.sizes("malloc")[3333] == 10
        assert image.sizes("malloc")[88888] == 1
        assert image.live_bytes == 3333

    def test_times(self, record, build):
        source = """
        int main(void) {
          for (int i = 0; i < 5; ++i) { malloc(4321); usleep(20000); }
          return 0;
        }
        """
        image = record([build("record-times.c", source)]).only
        times = [event.time_ns for event in image.events if event.size == 4321]
        gaps = [b - a for a, b in pairwise(times)]
        assert len(gaps) == 4
        assert all(20e6 <= gap < 200e6 for gap in gaps)
        assert times[0] < 1e9


class TestThreads:
    @pytest.mark.parametrize("allocator", ALLOCATORS)
    @pytest.mark.parametrize("ring", [[], ["--ring-chunks", "24"]])
    def test_sixteen_producers_and_consumers(self, record, build, allocator, ring, tmp_path):
        program = build("record-producers.c", programs.PRODUCERS, "-pthread")
        idle = record([program, "0", "0"], allocator=allocator).only
        out = tmp_path / "out"
        busy = record([program, "16", "5000"], *ring, allocator=allocator, stdout=out).only
        allocations, frees, _, live = map(int, out.read_text().split())
        # Each block is freed by the thread that finds it: one event out of order would show up as a
        # free of an unallocated block, or as a live block that is returned again.
        assert oddities(busy) == NO_ODDITIES
        workers = [thread for thread, n in busy.by_thread("malloc").items() if n >= 5000]
        assert len(workers) == 16
        mine = [e for e in busy.events if e.thread in workers]
        assert sum(e.kind == "malloc" for e in mine) == allocations == 80_000
        assert sum(e.kind == "free" for e in mine) == frees
        assert 10_000 < sum(e.kind == "realloc" for e in mine) < 20_000
        assert busy["threads"] == 17
        # pthread_create allocates an object for each thread, and libc caches them.
        others = busy.live_bytes - idle.live_bytes - live
        assert 0 <= others < 16 * 5000
        assert busy.counts()["thread_end"] == 16
        assert busy["waits"] > 0 or not ring, "such a ring is always full"

    def test_more_threads_than_chunks(self, record, build):
        source = """
        static pthread_barrier_t together;
        static void* work(void* none) {
          void* p = malloc(1111);
          pthread_barrier_wait(&together);       /* each holds its chunk, and needs it */
          free(p);
          return none;
        }
        int main(void) {
          enum { number = 300 };
          pthread_t threads[number];
          pthread_attr_t small;
          pthread_attr_init(&small);
          pthread_attr_setstacksize(&small, 65536);
          pthread_barrier_init(&together, 0, number);
          for (int i = 0; i < number; ++i)
            if (pthread_create(&threads[i], &small, work, 0)) return 1;
          for (int i = 0; i < number; ++i) pthread_join(threads[i], 0);
          return 0;
        }
        """
        program = build("record-many.c", source, "-pthread")
        image = record([program], "--ring-chunks", "8").only
        assert image["lost_events"] > 0
        assert 0 < image.sizes("malloc")[1111] < 300
        image = record([program], "--ring-chunks", "320").only
        assert image.sizes("malloc")[1111] == 300
        assert 1111 not in image.live.values()
        assert image["threads"] == 301
        assert image.counts()["thread_end"] == 300
        assert oddities(image) == NO_ODDITIES

    def test_births_and_ends(self, record, build):
        source = """
        #include <threads.h>
        static void* leaf(void* size) { free(malloc((size_t)size)); return 0; }
        static int c11_leaf(void* size) { free(malloc((size_t)size)); return 77; }
        static void* branch(void* none) {
          pthread_t one;
          pthread_create(&one, 0, leaf, (void*)5001);
          pthread_join(one, 0);
          thrd_t other;
          int result = 0;
          thrd_create(&other, c11_leaf, (void*)5002);
          thrd_join(other, &result);
          free(malloc(result == 77 ? 5003 : 1));
          return none;
        }
        int main(void) {
          pthread_t one;
          pthread_create(&one, 0, branch, 0);
          pthread_join(one, 0);
          pthread_attr_t detached;
          pthread_attr_init(&detached);
          pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
          pthread_create(&one, &detached, leaf, (void*)5004);
          usleep(50000);
          pthread_attr_setstacksize(&detached, (size_t)1 << 46);    /* cannot be had */
          if (pthread_create(&one, &detached, leaf, (void*)5005) == 0) return 1;
          return 0;
        }
        """
        image = record([build("record-births.c", source, "-pthread")]).only
        births = {e.thread: e.slot for e in image.events if e.kind == "thread_begin"}
        assert births == {1: 0, 2: 1, 3: 1, 4: 0, 5: 0}
        by_size = {e.size: e.thread for e in image.events if e.kind == "malloc" and e.size > 5000}
        assert by_size == {5001: 2, 5002: 3, 5003: 1, 5004: 4}
        assert sorted(image.by_thread("thread_end")) == [1, 2, 3, 4, 5]
        kinds = [(e.kind, e.thread) for e in image.events if e.thread == 2]
        assert kinds[0][0] == "thread_begin"
        assert kinds[-1][0] == "thread_end"

    def test_allocations_after_a_threads_end(self, record, build):
        source = """
        static pthread_key_t key;
        static void late(void* value) {         /* called in each of the four rounds */
          long round = (long)value;
          free(malloc(6000 + round));
          pthread_setspecific(key, (void*)(round + 1));
        }
        static void* work(void* none) { pthread_setspecific(key, (void*)1); return none; }
        int main(void) {
          pthread_t one;
          pthread_key_create(&key, late);
          pthread_create(&one, 0, work, 0);
          pthread_join(one, 0);
          return 0;
        }
        """
        image = record([build("record-late.c", source, "-pthread")]).only
        late = [e for e in image.events if e.size in range(6001, 6005)]
        assert [e.size for e in late] == [6001, 6002, 6003, 6004]
        # Events after the end belong to another thread, whose creator is the one that has ended.
        births = {e.thread: e.slot for e in image.events if e.kind == "thread_begin"}
        assert births in ({1: 0}, {1: 0, 2: 1}, {1: 0, 2: 1, 3: 2})
        assert late[0].thread == 1
        assert oddities(image) == NO_ODDITIES

    def test_threads_that_nobody_announced(self, record, build):
        source = """
        static volatile int is_done;
        static void ring(union sigval none) { free(malloc(4444)); is_done = 1; }
        int main(void) {
          struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = ring};
          struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
          timer_t timer;
          timer_create(CLOCK_MONOTONIC, &event, &timer);    /* libc starts threads of its own */
          timer_settime(timer, 0, &soon, 0);
          while (!is_done) usleep(1000);
          return 0;
        }
        """
        image = record([build("record-timer.c", source, "-pthread", "-lrt")]).only
        [event] = [e for e in image.events if e.size == 4444]
        births = {e.thread: e.slot for e in image.events if e.kind == "thread_begin"}
        assert event.thread in births
        assert births[event.thread] == 0

    @pytest.mark.long
    def test_signals_that_jump_out_of_events(self, record, build):
        source = """
        #include <setjmp.h>
        #include <sys/time.h>
        static sigjmp_buf back;
        static volatile sig_atomic_t jumps;
        static void jump(int number) {
          free(malloc(9));
          if (++jumps % 2) siglongjmp(back, 1);
        }
        int main(void) {
          struct itimerval often = {{0, 200}, {0, 200}};
          signal(SIGALRM, jump);
          setitimer(ITIMER_REAL, &often, 0);
          volatile long calls = 0;
          sigsetjmp(back, 1);
          while (jumps < 500) { free(malloc(33)); ++calls; }
          often = (struct itimerval){0};
          setitimer(ITIMER_REAL, &often, 0);
          for (int i = 0; i < 1000; ++i) free(malloc(44));
          printf("%ld\\n", calls);
          return 0;
        }
        """
        # glibc's own heap would not survive that; a bump allocator may be left anywhere.
        allocator = """
        static _Alignas(16) char space[64 << 20];
        static size_t used;
        void* malloc(size_t size) {
          size_t step = (size + 31) & ~(size_t)15;
          size_t at = __atomic_fetch_add(&used, step, __ATOMIC_RELAXED) % (sizeof space - 65536);
          *(size_t*)(space + at) = size;
          return space + at + 16;
        }
        void free(void* p) {}
        void* calloc(size_t n, size_t m) { return memset(malloc(n * m), 0, n * m); }
        void* realloc(void* p, size_t n) {
          void* q = malloc(n);
          if (p) memcpy(q, p, ((size_t*)p)[-2] < n ? ((size_t*)p)[-2] : n);
          return q;
        }
        """
        library = build("record-bump.so.c", allocator, "-shared", "-fPIC")
        program = build("record-jumps.c", source)
        image = record([program], "--preload", library).only
        assert image.sizes("malloc")[44] == 1000
        assert 475 <= image.sizes("malloc")[9] <= 501
        assert image["lost_events"] == 0
        # At most one event is lost for each jump out of a handler.
        lost = sum(image.live.values()) // 33 + image["unknown_frees"] + image["missed_frees"]
        assert lost <= 3 * 500
        assert image["end"] == "exited"


class TestProcesses:
    @pytest.mark.parametrize("fork", ["fork()", "_Fork()"])
    def test_forked_children_inherit(self, record, build, fork):
        program = build("forks.c", programs.FORKS, f"-DFORK={fork}")
        parent, child, grandchild = record([program]).images
        assert [each["birth"] for each in (parent, child, grandchild)] == ["root", "fork", "fork"]
        assert [each["parent"] for each in (parent, child, grandchild)] == [None, 0, 1]
        assert parent.counts() == {"malloc": 2, "free": 1, "fork": 1}
        assert parent.live_bytes == 2000
        assert sorted(child.inherited.values()) == [1000, 2000]
        assert child.counts() == {"free": 1, "malloc": 1, "fork": 1}
        assert child.live_bytes == 2500
        assert sorted(grandchild.inherited.values()) == [500, 2000]
        assert grandchild.live_bytes == 501
        assert grandchild.counts() == {"malloc": 1, "free": 1}
        assert {each["end"] for each in (parent, child, grandchild)} == {"exited"}
        assert {each["unknown_frees"] for each in (parent, child, grandchild)} == {0}

    def test_raw_forks_begin_with_nothing(self, record, build):
        program = build("forks.c", programs.FORKS, "-DFORK=(pid_t)syscall(SYS_fork)")
        parent, child, grandchild = record([program]).images
        assert [each["birth"] for each in (child, grandchild)] == ["orphan"] * 2
        assert [each["parent"] for each in (child, grandchild)] == [0, 1]
        assert parent.counts() == {"malloc": 2, "free": 1}
        assert child.counts() == grandchild.counts() == {"malloc": 1}
        assert child["unknown_frees"] == grandchild["unknown_frees"] == 1

    @pytest.mark.parametrize("allocator", under("", "tsmalloc", also=("jemalloc", "lock-best")))
    def test_forks_among_busy_threads(self, record, build, allocator):
        program = build("busy.c", programs.BUSY_FORKS, "-pthread")
        # Exactly as many events as needed.
        parent, *children = record([program, "30", "rest"], allocator=allocator).images
        assert len(children) == 30
        for child in children:
            # If another thread frees a block just before a fork, the child's record may miss it.
            frees = child.counts()["free"] - child["missed_frees"]
            assert (child.counts()["malloc"], child.counts()["calloc"], frees) == (1, 1, 2)
            assert child["missed_frees"] <= 3
            assert len(child.inherited) >= 3
            assert child["threads"] == 1
        assert parent.counts()["fork"] == 30
        assert oddities(parent) == NO_ODDITIES

    def test_daemons_fork_twice(self, record, build):
        source = """
        int main(void) {
          malloc(100);
          if (daemon(1, 0)) return 1;              /* forks within libc, its parent ends */
          if (fork() > 0) _exit(0);
          close_range(0, ~0U, 0);
          usleep(100000);                        /* by now, nobody else is left */
          malloc(200);
          return 0;
        }
        """
        images = record([build("record-daemon.c", source)]).images
        assert [image["parent"] for image in images] == [None, 0, 1]
        assert images[2].live_bytes == images[0].live_bytes + 200
        assert [image["end"] for image in images] == ["exited"] * 3

    def test_exec_and_vfork_and_spawn(self, record, build, calls):
        first, *others = record([build("spawns.c", programs.SPAWNS), calls]).images
        assert first.live_bytes == 2
        assert (first["birth"], first["end"]) == ("root", "exec")
        assert [each["program"] for each in others] == [calls.name] * 3
        assert [each["birth"] for each in others] == ["exec"] * 3
        assert [each["parent"] for each in others] == [0, 0, 0]
        assert [each.counts() for each in others] == [{"malloc": 4, "free": 4}] * 3
        assert others[2]["pid"] == first["pid"]

    def test_exec_from_a_thread(self, record, build, calls):
        first, second = record([build("becomes.c", programs.BECOMES, "-pthread"), calls]).images
        assert first.sizes("malloc")[77] > 100
        assert oddities(first) == NO_ODDITIES
        assert second.counts() == {"malloc": 4, "free": 4}

    @pytest.mark.parametrize(
        ("end", "exit_code", "said"),
        [
            ("return 0;", 0, "exited"),
            ("_exit(3);", 3, "exited"),
            ("_Exit(4);", 4, "exited"),
            ("abort();", None, "killed"),
            ("kill(getpid(), SIGKILL);", None, "killed"),
        ],
    )
    def test_no_way_to_end_loses_events(self, record, build, end, exit_code, said):
        recorded = record([build("ends.c", programs.ENDS, f"-DEND={end}")], exit_code=exit_code)
        assert recorded.only.sizes("malloc")[3] == 7
        assert recorded.only["end"] == said

    def test_killed_in_the_middle(self, tmp_path, build):
        # It counts before and after each call, in a file that survives its death.
        source = """
        struct counts { atomic_long begun, done; char rest[48]; };
        static struct counts* all;
        static void* work(void* number) {
          struct counts* mine = &all[(long)number];
          for (;;) {
            ++mine->begun;
            void* p = malloc(1000 + (long)number);
            ++mine->done;
            if (mine->done % 3) free(p);
          }
        }
        int main(int argc, char** argv) {
          int file = open(argv[1], O_RDWR);
          all = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
          pthread_t threads[4];
          for (long i = 0; i < 4; ++i) pthread_create(&threads[i], 0, work, (void*)i);
          usleep(atoi(argv[2]));
          kill(getpid(), 9);
        }
        """
        program = build("record-killed.c", source, "-pthread")
        for run, delay in enumerate((2_000, 20_000, 150_000)):
            counts = tmp_path / "counts"
            counts.write_bytes(bytes(4096))
            trace = tmp_path / f"{run}.tstrace"
            recorded = finish_record(start_record(trace, [program, counts, str(delay)]), trace)
            assert recorded.answer["signal"] == signal.SIGKILL
            image = recorded.only
            numbers = memoryview(counts.read_bytes()).cast("q")
            for thread in range(4):
                begun, done = numbers[thread * 8], numbers[thread * 8 + 1]
                assert done <= image.sizes("malloc")[1000 + thread] <= begun
            assert (image["unknown_frees"], image["missed_frees"]) == (0, 0)
            assert image["end"] == "killed"

    def test_a_slow_recorder_learns_how_a_program_ended(self, tmp_path, build):
        # It may inspect the dead more than once before it asks the system how they ended.
        source = """
        #include <poll.h>
        typedef int poll_function(struct pollfd*, nfds_t, int);
        typedef int clock_function(clockid_t, struct timespec*);
        int poll(struct pollfd* set, nfds_t count, int timeout) {
          poll_function* next = dlsym(RTLD_NEXT, "poll");
          int ready = next(set, count, timeout);
          if (ready == 1 && timeout == 0) usleep(25000);  /* it sees somebody dead */
          return ready;
        }
        int clock_gettime(clockid_t clock, struct timespec* time) {
          clock_function* next = dlsym(RTLD_NEXT, "clock_gettime");
          usleep(500);
          return next(clock, time);
        }
        """
        slow = build("record-slow.so.c", source, "-shared", "-fPIC", "-D_GNU_SOURCE")
        slowly = {"LD_PRELOAD": str(slow)}
        for run in range(16):
            trace = tmp_path / f"{run}.tstrace"
            command = ["sh", "-c", f"/bin/sleep 0.0{run % 4}; kill -9 $$"]
            process = start_record(trace, command, "--unset", "LD_PRELOAD", environment=slowly)
            recorded = finish_record(process, trace)
            [sleeper] = recorded.of("sleep")
            assert (recorded.images[0]["end"], sleeper["end"]) == ("killed", "exited")

    def test_constructors_and_destructors_around_main(self, record, build):
        program = early_and_late(build)
        image = record([program], LD_LIBRARY_PATH=str(program.parent)).only
        assert image.counts() == {"malloc": 1, "free": 1}


class TestHindrances:
    # The second one kills on any system call but read, write and exit, and on rdtsc.
    @pytest.mark.parametrize(
        "hindrance",
        ["close_range(0, ~0U, 0);", "prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);"],
    )
    def test_nothing_but_memory_is_left(self, record, build, hindrance):
        source = f"""
        #include <linux/seccomp.h>
        int main(void) {{
          free(malloc(100));
          {hindrance}
          for (int i = 0; i < 100000; ++i) free(malloc(66));
          syscall(SYS_exit, 0);
        }}
        """
        image = record([build("record-hindered.c", source)], "--ring-chunks", "16").only
        assert image.sizes("malloc")[66] == 100_000

    def test_chroot(self, record, build, tmp_path):
        if os.geteuid() != 0:
            pytest.skip("chroot needs root")
        source = """
        int main(int argc, char** argv) {
          if (chroot(argv[1]) || chdir("/")) return 1;
          malloc(70);
          if (fork() == 0) { malloc(71); _exit(0); }
          wait(0);
          return 0;
        }
        """
        empty = tmp_path / "empty"
        empty.mkdir()
        parent, child = record([build("record-chroot.c", source), empty]).images
        assert parent.sizes("malloc")[70] == 1
        assert child.sizes("malloc")[71] == 1

    def test_another_pid_namespace(self, record, calls):
        unshare = ("unshare", "--pid", "--fork")
        if ran(*unshare, "true").returncode:
            pytest.skip("this container may not make namespaces")
        script = f"{calls} malloc 20000; {calls} calloc 20000"
        recorded = record([*unshare, "sh", "-c", script])
        first, second = recorded.of(calls)
        assert first.counts()["malloc"] == 20_000
        assert second.counts()["calloc"] == 20_000

    def test_limit_on_address_space(self, record, calls):
        script = f"ulimit -v 30000; {calls} malloc 10; exec {calls} malloc 10"
        recorded = record(["/bin/sh", "-c", script])
        assert recorded.of(calls) == []
        assert recorded.answer["images_without_room"] == 2
        recorded = record(["/bin/sh", "-c", script], "--ring-chunks", "256")
        counts = [image.counts() for image in recorded.of(calls)]
        assert counts == [{"malloc": 10, "free": 10}] * 2

    LIVES = """
    int main(void) { free(malloc(10)); usleep(400000); return 0; }
    """

    def test_programs_that_escape_are_named(self, record, build):
        static = build("record-static.c", self.LIVES, "-static")
        recorded = record(["sh", "-c", f"{static}; exec {static}"])
        assert recorded.unrecorded == [static.name]
        recorded = record([static])
        assert recorded.images == []
        assert recorded.unrecorded == [static.name]
        quick = build("record-quick.c", "int main(void) { return 0; }", "-static")
        assert record([quick]).unrecorded == [quick.name[:15]]
        program = build("record-lives.c", self.LIVES)
        recorded = record(["/usr/bin/env", "-i", program])
        assert recorded.unrecorded == [program.name]

    def test_ordinary_programs_are_not_named(self, record, build):
        program = build("record-lives.c", self.LIVES)
        recorded = record(["sh", "-c", f"{program} & {program}; wait; sleep 0.2"])
        assert recorded.unrecorded == []


class TestEnds:
    """What happens if the recorder itself ends."""

    ENDLESS = """
    int main(void) { for (;;) { free(malloc(99)); usleep(100); } }
    """

    @pytest.fixture
    def trace(self, tmp_path):
        return tmp_path / "t.tstrace"

    def wait_for_bytes(self, trace, least):
        wait_until(lambda: trace.exists() and trace.stat().st_size > least)

    @pytest.mark.parametrize("way", ["interrupted", "timed_out"])
    def test_interrupted_or_timed_out(self, build, trace, way):
        options = ["--timeout", "0.3"] if way == "timed_out" else []
        process = start_record(trace, [build("record-endless.c", self.ENDLESS)], *options)
        self.wait_for_bytes(trace, 1000)
        if way == "interrupted":
            process.send_signal(signal.SIGINT)
        recorded = finish_record(process, trace)
        assert recorded.answer[way]
        assert recorded.only.sizes("malloc")[99] > 100
        assert recorded.only["end"] == "killed"

    def test_recorder_killed(self, build, trace):
        shm = Path("/dev/shm")
        process = start_record(trace, [build("record-endless.c", self.ENDLESS)])
        self.wait_for_bytes(trace, 2000)
        kill_record(process)
        assert not files.read_whole_trace(trace).is_finished
        assert sum(each.kind == "malloc" for each in read_events(trace)[0]) > 100
        # The next recorder removes what it left in memory.
        left = {path.name for path in shm.glob("tsmalloc-record-*")}
        again = trace.with_name("u.tstrace")
        assert finish_record(start_record(again, ["true"]), again).status == 0
        assert left - {path.name for path in shm.glob("tsmalloc-record-*")}

    def test_programs_outlive_a_killed_recorder(self, build, tmp_path):
        # A grandchild is not killed with the recorder; it fills the ring, waits, and continues.
        source = """
        int main(int argc, char** argv) {
          if (fork() > 0) { pause(); return 0; }
          char name[4096];
          snprintf(name, sizeof name, "%s.pid", argv[1]);
          FILE* file = fopen(name, "w");
          fprintf(file, "%d", getpid());
          fclose(file);
          while (access(argv[1], F_OK)) { free(malloc(1)); usleep(1000); }
          for (int i = 0; i < 100000; ++i) free(malloc(2));
          snprintf(name, sizeof name, "%s.done", argv[1]);
          close(open(name, O_CREAT | O_WRONLY, 0600));
          return 0;
        }
        """
        go = tmp_path / "go"
        program = build("record-outlives.c", source)
        process = start_record(tmp_path / "t.tstrace", [program, go], "--ring-chunks", "8")
        pid_file = tmp_path / "go.pid"
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
        kill_record(process)
        go.touch()
        wait_until((tmp_path / "go.done").exists)
        pid = int(pid_file.read_text())
        wait_until(lambda: not is_alive(pid))

    def test_an_old_trace_is_overwritten_if_asked(self, trace):
        recorded = finish_record(start_record(trace, ["/no/such/program"]), trace)
        assert "/no/such/program" in recorded.answer["spawn_error"]["message"]
        assert not trace.exists()
        trace.write_text("precious")
        recorded = finish_record(start_record(trace, ["/no/such/program"], "-f"), trace)
        assert recorded.answer["spawn_error"]
        recorded = finish_record(start_record(trace, ["true"]), trace)
        assert (recorded.status, "-f" in recorded.stderr) == (1, True)
        assert trace.read_text() == "precious"
        assert finish_record(start_record(trace, ["true"], "-f"), trace).images

    def test_folder_that_cannot_be_written(self, tmp_path):
        trace = Path("/proc/t.tstrace")
        recorded = finish_record(start_record(trace, ["true"], answer=tmp_path / "answer"), trace)
        assert recorded.status == 1
        mentions(recorded.stderr, "'/proc/t.tstrace'", "-o")

    def test_full_disk(self, build, tmp_path, small_disk):
        source = """
        int main(void) {
          unsigned state = 1;
          for (int i = 0; i < 2000000; ++i) {
            state = state * 1664525 + 1013904223;
            free(malloc(state >> 12));
          }
          return 5;
        }
        """
        program = build("record-fills.c", source)
        trace, answer = small_disk("256k") / "t.tstrace", tmp_path / "answer"
        process = start_record(trace, [program], answer=answer)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
        said = answer.read_text()
        mentions(said, '"exit_code": 5', "No space left")
        assert "No space left" in stderr
        assert sum(each.kind == "malloc" for each in read_events(trace)[0]) > 10_000

    def test_no_room_for_the_ring(self, tmp_path):
        script = f"""
        mount -t tmpfs -o size=1m none /dev/shm || exit 77
        exec {paths.tool("record")} -o {tmp_path}/t.tstrace -- true
        """
        command = ["unshare", "--mount", "sh", "-c", script]
        run = ran(*command)
        if run.returncode in (1, 77) and "record:" not in run.stderr:
            pytest.skip("this container may not make namespaces")
        assert run.returncode == 125
        assert "--ring-mib" in run.stderr


class TestAgainstTheTracker:
    """Both are in the same run, one after the other, and see the same calls."""

    @pytest.fixture
    def compare(self, record, tmp_path):
        def run(command, allocator=""):
            folder = tmp_path / "counts"
            folder.mkdir()
            recorded = record(
                command,
                "--preload",
                paths.library(tracker.LIBRARY),
                *(["--preload", library] if (library := library_of(allocator)) else []),
                TSMALLOC_TRACKER_CALLS=str(folder),
            )
            counts = {(each.pid, Path(each.program).name): each for each in tracker.read(folder)}
            compared = 0
            for image in recorded.images:
                counted = counts.get((image["pid"], image["program"]))
                if image["birth"] == "fork" or counted is None:
                    continue
                compared += 1
                kinds = image.counts()
                frees = kinds["free"] + image["null_frees"] + image["unknown_frees"]
                calls = sum(kinds[kind] for kind in (*MAKES, "realloc", "refused"))
                assert image["missed_frees"] == image["unknown_resizes"] == 0
                assert calls + frees == counted.calls
                assert image.requested() == counted.bytes_requested
                assert kinds["calloc"] <= counted.calloc
            assert compared
            assert recorded.unrecorded == []
            (trace,) = tmp_path.glob("*.tstrace")
            ran(paths.tool("replay"), "--verify", trace, status=0)  # checks slots and generations

        return run

    PERL = 'my %h; $h{"k$_"} = "v" x ($_ % 700) for 1..3000; delete $h{"k$_"} for 1..900;'
    PYTHON = "print(len({str(i) * 200: [i] * 100 for i in range(3000)}))"
    SQL = (
        "create table t(a integer, b text);"
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)"
        " insert into t select i, hex(randomblob(i % 300)) from n;"
        "create index x on t(b); select count(*) from t where b > '8' order by b;"
    )

    @pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
    @pytest.mark.parametrize(
        "command",
        [["perl", "-e", PERL], ["/usr/bin/python3", "-c", PYTHON], ["sqlite3", ":memory:", SQL]],
    )
    def test_programs(self, compare, command, allocator):
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        compare(command, allocator)

    def test_shells_that_fork(self, compare):
        compare(REAL_PROGRAMS[-1])

    def test_the_compiler(self, compare, tmp_path):
        code = tmp_path / "code.cpp"
        code.write_text("#include <map>\nstd::map<int, int> m; int f(int i) { return m[i]; }\n")
        compare(["g++", "-O1", "-c", str(code), "-o", str(tmp_path / "code.o")])


@pytest.mark.parametrize("command", REAL_PROGRAMS)
def test_programs_do_what_they_always_do(record, command, tmp_path):
    out = tmp_path / "out"
    recorded = record(command, stdout=out)
    assert out.read_bytes() == subprocess.run(command, capture_output=True, check=True).stdout
    assert all(image["missed_frees"] == 0 for image in recorded.images)
    assert re.fullmatch(r"[\w.+-]+", recorded.images[0]["program"])


def test_nothing_is_recorded_without_a_recorder(calls):
    shim = paths.library("libtsmalloc-record.so")
    for ring in ("", "/no/such/ring", "/etc/passwd"):
        environment = {"LD_PRELOAD": str(shim), "TSMALLOC_RECORD": ring}
        done = ran(calls, "malloc", "1000", env=environment, status=0)
        assert (done.stdout, done.stderr) == ("", "")
