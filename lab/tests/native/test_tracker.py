"""The tracker: its figures are exact, under every allocator, for every function, however a process
starts and ends; and the program cannot notice it.

Figures are compared with the programs' own counts, minus those of an idle run (the loader and the
run-time library).
"""

import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import shim_programs as programs
from refusals import refused
from shared_libraries import expect_shim, exported_names
from shim_programs import ALLOCATORS, FUNCTIONS, REAL_PROGRAMS, early_and_late, library_of, run_in
from tiny_heap import TINY_HEAP

from tsmlab import paths, tracker
from tsmlab.tracker import Sums

SOME = ["", "jemalloc", "tsmalloc", "lock-best"]


@pytest.fixture
def track(tmp_path):
    """track(command, allocator="", status=0, **environment) runs it and returns the tracker's
    results."""
    run = run_in(tmp_path, tracker.LIBRARY, tracker.VARIABLE)
    return lambda *what, **how: tracker.read(run(*what, **how))


def more(busy, idle):
    """The calls and blocks in one beyond those in the other."""
    several, few = (dict(each.by_kind) | asdict(each.sums) for each in (busy, idle))
    left_out = ("reused_bytes", "usable_bytes")
    return {k: n - few[k] for k, n in several.items() if n != few[k] and k not in left_out}


# --- functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize(
    ("function", "kind", "bytes_each"),
    [*FUNCTIONS, ("valloc", "aligned", 50), ("pvalloc", "aligned", 4096), ("usable", "malloc", 10)],
)
def test_c_functions(track, calls, allocator, function, kind, bytes_each):
    library = library_of(allocator)
    passed_on = {"reallocarray": "realloc", "zero": "malloc", "usable": "malloc"}
    if library and passed_on.get(function, function) not in exported_names(library):
        pytest.skip(f"{library.name} has no {function}: the C library's block would reach its free")
    [idle] = track([calls, function, "0"], allocator)
    [busy] = track([calls, function, "1000"], allocator)
    expected = dict.fromkeys((kind, "free", "allocations", "frees"), 1000)
    if bytes_each:
        expected |= dict.fromkeys(("requested_bytes", "freed_bytes"), 1000 * bytes_each)
    assert more(busy, idle) == expected
    assert busy.bytes_requested == idle.bytes_requested + 1000 * bytes_each
    assert (busy.live_bytes, busy.live_blocks) == (idle.live_bytes, idle.live_blocks)
    assert (busy.untracked_blocks, busy.missed_frees) == (0, 0)
    assert (busy.program, busy.parent_pid) == (str(calls), os.getpid())
    assert Path(busy.provider).resolve().name == (
        library.resolve().name if library else "libc.so.6"
    )


def test_refused_requests_are_calls_that_got_nothing(track, calls):
    [idle] = track([calls, "refused", "0", "errno"])
    [busy] = track([calls, "refused", "5", "errno"])
    found = more(busy, idle)
    assert [found[kind] for kind in ("malloc", "calloc", "aligned", "realloc")] == [10, 5, 5, 5]
    assert (found["free"], busy.bytes_requested - idle.bytes_requested) == (5, 25)
    assert (found["allocations"], found["requested_bytes"], found["freed_bytes"]) == (5, 25, 25)
    # reallocarray rejects a product that overflows before it calls realloc.
    [busy] = track([calls, "overflow", "5", "errno"])
    assert more(busy, idle) == {"free": 5}
    assert track([calls, "free", "7"])[0].free == idle.free + 7  # of null


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_new_and_delete_in_all_forms(track, build, allocator):
    program = build("operators.cpp", programs.OPERATORS)
    [idle] = track([program, "0", "0"], allocator)
    [busy] = track([program, "100", "0"], allocator)
    # libstdc++'s own operators call malloc, each other and free; only the program's calls count.
    expected = {"operator_new": 1300, "operator_delete": 1400, "allocations": 1300, "frees": 1300}
    sizes = dict.fromkeys(("requested_bytes", "freed_bytes"), 100 * sum(range(1, 13)))
    assert more(busy, idle) == expected | sizes
    if allocator in ("tcmalloc", "mimalloc"):
        return  # others write a warning or abort instead of throwing
    [busy] = track([program, "100", "10"], allocator)
    found = more(busy, idle)
    assert (found["operator_new"], found["operator_delete"]) == (1310, 1400)
    # Each exception is an object that the run-time library allocates and frees.
    assert found["allocations"] == found["frees"] == 1310
    assert found["requested_bytes"] == found["freed_bytes"]
    assert (busy.live_blocks, busy.missed_frees) == (idle.live_blocks, 0)


REALLOCATIONS = """
int main(int argc, char** argv) {
  long rounds = atol(argv[1]), moves = 0, stays = 0, requested = 0;
  for (long i = 0; i < rounds; ++i) {
    size_t size = 1;
    char* p = malloc(size);
    requested += size;
    while (size < 100000) {
      size_t next = size * 3 / 2 + 1;
      uintptr_t before = (uintptr_t)p;
      p = realloc(p, next);
      if ((uintptr_t)p == before) { ++stays; requested += next - size; }
      else { ++moves; requested += next; }
      size = next;
    }
    uintptr_t before = (uintptr_t)p;
    p = realloc(p, 50);
    if ((uintptr_t)p == before) ++stays; else { ++moves; requested += 50; }
    free(p);
  }
  dprintf(1, "%ld %ld %ld\\n", moves, stays, requested);
  return 0;
}
"""


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_reallocations(track, build, allocator, tmp_path):
    program, out = build("reallocations.c", REALLOCATIONS), tmp_path / "out"
    [idle] = track([program, "0"], allocator)
    [busy] = track([program, "20"], allocator, stdout=out)
    moves, stays, requested = map(int, out.read_text().split())
    found = more(busy, idle)
    assert found["allocations"] == found["frees"] == 20 + moves
    assert (found.get("resizes", 0), found["requested_bytes"]) == (stays, requested)
    assert (busy.live_bytes, busy.live_blocks) == (idle.live_bytes, idle.live_blocks)


USABLE = """
int main(int argc, char** argv) {
  long usable = 0;
  for (int i = atoi(argv[1]); i > 0; --i) {
    void* p = malloc(i);
    usable += malloc_usable_size(p);
    void* q = realloc(p, 3 * i);
    usable += malloc_usable_size(q);
  }
  dprintf(1, "%ld\\n", usable);
  return 0;
}
"""


@pytest.mark.parametrize("allocator", SOME)
def test_usable_bytes(track, build, allocator, tmp_path):
    program, out = build("usable.c", USABLE), tmp_path / "out"
    [idle] = track([program, "0"], allocator)
    [busy] = track([program, "2000"], allocator, stdout=out)
    assert busy.knows_usable
    found, told = busy.sums.usable_bytes - idle.sums.usable_bytes, int(out.read_text())
    # The program adds a block that is resized in place twice.
    assert found <= told if busy.sums.resizes else found == told
    assert found >= busy.sums.requested_bytes - idle.sums.requested_bytes


def test_an_allocator_that_does_not_know_is_not_asked(track, build):
    tiny = build("tiny.c", TINY_HEAP, "-shared", "-fPIC")
    preload = f"{paths.library(tracker.LIBRARY)}:{tiny}"
    source = "int main(void) { for (int i = 0; i < 100; ++i) free(malloc(i)); return 0; }"
    [found] = track([build("plain.c", source)], LD_PRELOAD=preload)
    assert (found.malloc, found.knows_usable, found.sums.usable_bytes) == (100, False, 0)
    assert found.provider == str(tiny)


def test_blocks_that_come_or_go_by_functions_of_the_allocators_own(track, build):
    source = """
    extern void* __libc_malloc(size_t);
    extern void __libc_free(void*);
    int main(int argc, char** argv) {
      if (argc == 1) return 0;
      for (int i = 0; i < 10; ++i) free(__libc_malloc(100));
      void* first = malloc(77);
      __libc_free(first);
      return malloc(77) != first;  /* handed out again, without a free that is seen */
    }
    """
    [idle], [busy] = (track([build("foreign.c", source), *more]) for more in ([], ["x"]))
    found = more(busy, idle)
    assert found == {"malloc": 2, "free": 10, "allocations": 2, "requested_bytes": 154}
    assert (busy.missed_frees, busy.live_blocks, busy.live_bytes) == (1, 1, 77)


def test_calls_alone(calls, tmp_path):
    count = run_in(tmp_path, tracker.LIBRARY, tracker.VARIABLE_OF_CALLS)
    [found] = tracker.read(count([calls, "malloc", "3"]))
    assert (found.malloc, found.free, found.bytes_requested) == (3, 3, 30)
    assert (found.sums, found.peak_live_bytes) == (Sums(), 0)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_against_a_program_that_knows(track, allocator, tmp_path):
    out = tmp_path / "out"
    program = paths.build_dir() / "bin" / "thread_test_measurement"
    if not program.is_file():
        pytest.skip("the test programs are not built")
    [books] = track([program], allocator, stdout=out)
    own = {k: int(v) for k, v in re.findall(r"(?m)^(\w+): (\d+)$", out.read_text())}
    main, *others = books.threads
    assert len(others) == own["threads"] == 4
    # Each thread also frees a small object that the main thread allocated for it.
    assert sum(each.foreign_frees for each in others) == own["foreign_frees"] + 4
    # One of them prints the figures, using a buffer of 4096 bytes.
    assert sum(each.allocations for each in others) == 80_000 + 1
    assert sum(each.requested_bytes for each in others) == own["requested_bytes"] + 4096
    # At the end each thread frees its remaining blocks.
    assert sum(each.frees for each in others) == 80_000 + 4
    assert sum(each.freed_bytes for each in others) - own["requested_bytes"] in range(4, 1024)
    assert main.foreign_frees == 0
    assert books.sums.reused_bytes - own["reused_bytes"] in range(4096 + 4096)
    assert own["requested_bytes"] - own["freed_bytes"] <= books.peak_live_bytes
    assert books.peak_live_bytes <= own["requested_bytes"] + 200_000


class TestReuse:
    # argv: size and number of the blocks.
    TWICE = """
    int main(int argc, char** argv) {
      size_t size = atol(argv[1]);
      int number = atoi(argv[2]);
      void** blocks = calloc(number, sizeof *blocks);
      for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < number; ++i) blocks[i] = malloc(size);
        for (int i = number; i-- > 0;) free(blocks[i]);
      }
      return 0;
    }
    """

    @pytest.mark.parametrize("size", [8, 20, 24, 100, 1000])
    @pytest.mark.parametrize("allocator", SOME)
    def test_blocks_handed_out_again(self, track, build, allocator, size):
        [books] = track([build("twice.c", self.TWICE), str(size), "1000"], allocator)
        # The whole second batch: each of these allocators reuses what was freed last, or lies
        # lowest. A block that begins in place of one of another size may lack some of its last 8
        # bytes.
        assert books.sums.reused_bytes >= 0.97 * size * 1000
        assert books.sums.reused_bytes <= size * 1000 + 20_000

    def test_nothing_is_reused_where_nothing_is_freed(self, track, build):
        source = "int main(void) { for (int i = 0; i < 30000; ++i) malloc(i % 700); return 0; }"
        [books] = track([build("keeps.c", source)])
        assert books.sums.reused_bytes < 2000
        assert books.live_bytes >= sum(i % 700 for i in range(30000))
        assert books.live_blocks >= 30000

    def test_huge_blocks(self, track, build):
        source = """
        int main(void) {
          for (int i = 0; i < 5; ++i) {
            char* p = malloc((size_t)3 << 30);        /* mapped, unmapped, mapped again */
            if (!p) return 1;
            memset(p, 1, 10000);
            free(p);
          }
          char* reserve = malloc((size_t)1 << 41);    /* may be refused, must not take minutes */
          free(reserve);
          return 0;
        }
        """
        [books] = track([build("huge.c", source)])
        assert books.peak_live_bytes >= 3 << 30
        assert books.live_bytes < 100_000
        assert books.sums.reused_bytes == pytest.approx(4 * (3 << 30), rel=0.001)


# --- threads and processes -----------------------------------------------------------------------


@pytest.mark.parametrize("allocator", SOME)
def test_threads_pass_blocks_on(track, build, allocator, tmp_path):
    program, out = build("producers.c", programs.PRODUCERS, "-pthread"), tmp_path / "out"
    [idle] = track([program, "6", "0"], allocator)
    [busy] = track([program, "6", "50000"], allocator, stdout=out)
    allocations, frees, _, live = map(int, out.read_text().split())
    found = more(busy, idle)
    assert (found["malloc"], found["free"]) == (allocations, frees)
    assert found["allocations"] - found["frees"] == allocations - frees
    assert busy.live_bytes - idle.live_bytes == live
    workers = [each for each in busy.threads if each.allocations >= 50_000]
    assert len(workers) == 6
    assert sum(each.frees for each in workers) >= frees
    assert 0 < found["foreign_frees"] <= found["frees"]
    assert (busy.untracked_blocks, busy.missed_frees) == (0, 0)


def test_more_threads_than_places(track, build):
    source = """
    static void* work(void* none) { for (int i = 0; i < 10; ++i) free(malloc(5)); return none; }
    int main(void) {
      for (int i = 0; i < 1000; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0)) return 1;
        pthread_join(thread, 0);
      }
      return 0;
    }
    """
    [books] = track([build("churn.c", source, "-pthread")])
    assert [each.allocations for each in books.threads[1:255]] == [10] * 254
    assert books.threads[255:] == books.threads[-1:]
    assert books.threads[-1].allocations == 10 * (1001 - 255)


class TestProcesses:
    @pytest.mark.parametrize("fork", ["fork", "_Fork"])
    def test_forked_child_begins_its_own(self, track, build, fork):
        parent, child, grandchild = track([build("forks.c", programs.FORKS, f"-DFORK={fork}()")])
        assert (child.parent_pid, grandchild.parent_pid) == (parent.pid, child.pid)
        assert (parent.sums.allocations, parent.sums.frees, parent.live_bytes) == (2, 1, 2000)
        assert (child.sums.allocations, child.sums.frees, child.live_bytes) == (1, 1, 2500)
        assert (child.sums.foreign_frees, child.peak_live_bytes) == (0, 3000)
        assert (grandchild.sums.allocations, grandchild.live_bytes) == (1, 501)
        found = [
            (each.malloc, each.free, each.inherited_bytes) for each in (parent, child, grandchild)
        ]
        assert found == [(2, 1, 0), (1, 1, 3000), (1, 1, 2500)]

    @pytest.mark.parametrize("allocator", SOME)
    def test_forks_among_busy_threads(self, track, build, allocator):
        parent, *children = track(
            [build("busy.c", programs.BUSY_FORKS, "-pthread"), "50"], allocator
        )
        assert parent.sums.allocations > 0
        found = [(r.malloc, r.calloc, r.free, r.sums.allocations, r.sums.frees) for r in children]
        assert found == [(1, 1, 2, 2, 2)] * 50
        assert parent.live_bytes < 200_000

    def test_programs_leave_a_file_without_calls(self, track, build):
        assert len(track([build("quiet.c", "int main(void) { return fork() < 0; }")])) == 1
        [record] = track([build("nothing.c", "int main(void) { return 0; }")])
        assert record.calls == 0

    def test_exec_and_vfork(self, track, build, calls):
        program = build("spawns.c", programs.SPAWNS)
        found = track([program, calls])
        first, second = (each for each in found if each.pid == found[0].pid)
        assert (first.number, first.program, first.malloc) == (0, str(program), 2)
        assert (first.sums.allocations, first.live_bytes) == (2, 2)
        assert (second.number, second.program, second.malloc) == (1, str(calls), 4)
        assert sorted((each.malloc, each.sums.allocations) for each in found) == [
            *[(2, 2), (4, 4), (4, 4), (4, 4)]
        ]

    def test_exec_from_a_thread(self, track, build, calls):
        first, second = track([build("becomes.c", programs.BECOMES, "-pthread"), calls])
        assert first.sums.allocations > 100
        assert second.sums.allocations == 4

    def test_child_finds_the_folder_whatever_the_program_did(self, track, build, tmp_path):
        source = """
        int main(void) {
          clearenv();
          if (chdir("/")) return 1;
          if (fork() == 0) { malloc(1); _exit(0); }
          wait(0);
          return 0;
        }
        """
        (tmp_path / "relative").mkdir()
        track([build("wander.c", source)], TSMALLOC_TRACKER="relative")
        assert [each.malloc for each in tracker.read(tmp_path / "relative")] == [0, 1]

    @pytest.mark.parametrize(
        ("end", "status"),
        [("return 0;", 0), ("_exit(3);", 3), ("abort();", -6), ("kill(getpid(), SIGKILL);", -9)],
    )
    def test_no_way_to_end_loses_anything(self, track, build, end, status):
        [found] = track([build("ends.c", programs.ENDS, f"-DEND={end}")], status=status)
        assert (found.malloc, found.sums.allocations) == (7, 7)
        assert (found.live_bytes, found.peak_live_bytes) == (21, 21)

    def test_constructors_before_main_and_destructors(self, track, build):
        program = early_and_late(build)
        [found] = track([program], LD_LIBRARY_PATH=str(program.parent))
        assert (found.malloc, found.free) == (1, 1)
        assert (found.sums.allocations, found.sums.frees, found.live_bytes) == (1, 1, 0)


@pytest.mark.parametrize("allocator", SOME)
@pytest.mark.parametrize("command", REAL_PROGRAMS)
def test_real_programs(track, allocator, command, tmp_path):
    out = tmp_path / "out"
    books = track(command, allocator, stdout=out, PATH=os.environ["PATH"])
    plain = subprocess.run(command, capture_output=True, check=True).stdout
    assert out.read_bytes() == plain
    assert all(each.missed_frees == 0 for each in books)
    root = next(each for each in books if each.parent_pid == os.getpid())
    assert 0 < root.sums.frees <= root.sums.allocations


class TestWithoutAFile:
    """The program runs normally; the missing file shows that nothing was tracked."""

    @pytest.mark.parametrize("folder", ["/no/such/folder", "", "/proc"])
    def test_folder_that_cannot_be_written(self, track, calls, folder):
        assert track([calls, "malloc", "10"], TSMALLOC_TRACKER=folder) == []

    def test_limit_on_file_sizes(self, track, calls):
        script = f"ulimit -f 0; exec {calls} malloc 10"
        assert all(each.program != str(calls) for each in track(["/bin/sh", "-c", script]))

    def test_limit_on_address_space(self, track, calls):
        found = track(["/bin/sh", "-c", f"ulimit -v 30000; exec {calls} malloc 10"])
        [books] = [each for each in found if each.program == str(calls)]
        assert books.malloc == books.sums.allocations + books.untracked_blocks == 10

    def test_full_disk(self, track, calls, small_disk):
        disk = small_disk("4k")
        (disk / "filler").write_bytes(b"x" * 4096)
        track([calls, "malloc", "10"], TSMALLOC_TRACKER=str(disk))
        assert [path.name for path in disk.iterdir()] == ["filler"]


class TestPlugins:
    """C++ code that a C program loads: its run-time library is outside the loader's usual order."""

    PLUGIN = """
    #include <new>
    extern "C" int work() {
      operator delete[](operator new[](100));
      try { operator delete(operator new(std::size_t{1} << 62)); }
      catch (const std::bad_alloc&) { return 0; }
      return 1;
    }
    """
    HOST = """
    int main(int argc, char** argv) {
      void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
      if (!plugin) { puts(dlerror()); return 2; }
      int (*work)(unsigned long) = (int (*)(unsigned long))dlsym(plugin, "work");
      int result = work(argc > 2 ? strtoul(argv[2], 0, 10) : 0);
      if (dlerror()) return 3;  /* ours would be found here */
      return result;
    }
    """

    def test_shared_run_time_library(self, track, build):
        plugin = build("plugin.cpp", self.PLUGIN, "-shared", "-fPIC")
        [record] = track([build("host.c", self.HOST), plugin])
        assert (record.operator_new, record.operator_delete) == (2, 1)

    # Linked without a C++ run-time library; its argument is how much to request.
    BARE = """
    #include <new>
    extern "C" int work(std::size_t size) { operator delete(operator new(size)); return 0; }
    """

    def test_plugins_without_a_run_time_library(self, track, build):
        plugin = build("bare.cpp", self.BARE, "-shared", "-fPIC", "-nodefaultlibs", "-lc")
        [small], [large] = (track([build("host.c", self.HOST), plugin, n]) for n in ("9", "1009"))
        assert (small.operator_new, small.operator_delete) == (1, 1)
        assert more(large, small) == dict.fromkeys(("requested_bytes", "freed_bytes"), 1000)
        [record] = track([build("host.c", self.HOST), plugin, str(1 << 62)], status=-6)
        assert (record.operator_new, record.operator_delete) == (1, 0)
        assert record.bytes_requested < 1 << 62


@pytest.mark.parametrize(
    ("shim", "also"),
    [
        ("tracker", ["dlopen"]),
        ("record", ["pthread_create", "thrd_create", "_Fork", "_exit", "_Exit", "prctl"]),
    ],
)
def test_shims_need_libc_and_export_little_else(shim, also):
    expect_shim(paths.library(f"libtsmalloc-{shim}.so"), *also)


# --- files ---------------------------------------------------------------------------------------


def test_what_no_tracker_wrote(tmp_path):
    file = tmp_path / "1-0.tracker"
    file.touch()  # its process was killed before filling it
    assert tracker.read(tmp_path) == []
    for content in (b"TSTRACK1", bytes(20480), b"TSTRACK0" + bytes(20472)):
        file.write_bytes(content)
        with refused(str(file)):
            tracker.read(tmp_path)


@pytest.mark.parametrize(
    ("parents", "order"),
    [
        ({7: 5, 8: 7, 9: 7}, [7, 8, 9]),
        ({32767: 5, 300: 32767, 301: 300, 32768: 32767}, [32767, 300, 32768, 301]),
        ({7: 8, 8: 7}, [7, 8]),
    ],
)
def test_parents_come_first(tmp_path, parents, order):
    for pid, parent in parents.items():
        for number in (9, 10):
            content = b"TSTRACK1" + bytes(4) + parent.to_bytes(4, "little") + bytes(20464)
            (tmp_path / f"{pid}-{number}.tracker").write_bytes(content)
    found = [(each.pid, each.number) for each in tracker.read(tmp_path)]
    assert found == [(pid, number) for pid in order for number in (9, 10)]
