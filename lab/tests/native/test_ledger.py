"""The ledger: its figures are exact, under every allocator, for every function, however a process
comes to life and ends; and no trace of it in what the program sees.

Programs that know their own numbers are compared with them; what the loader and the run time
library allocate is subtracted by a run that does nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from shim_programs import (
    ALLOCATORS,
    BECOMES,
    BUSY_FORKS,
    ENDS,
    FORKS,
    FUNCTIONS,
    OPERATORS,
    PRODUCERS,
    REAL_PROGRAMS,
    SPAWNS,
    early_and_late,
    library_of,
    run_in,
)

from tsmlab import paths
from tsmlab.observing import LedgerSums, ProcessLedger, read_ledgers

Build = Callable[..., Path]
Keep = Callable[..., list[ProcessLedger]]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """keep(command, allocator="", status=0, **environment) runs it and gives its ledgers."""
    run = run_in(tmp_path, "libtsmalloc-ledger.so", "TSMALLOC_LEDGER")
    return lambda *what, **how: read_ledgers(run(*what, **how))


def difference(busy: LedgerSums, idle: LedgerSums) -> dict[str, int]:
    names = ("allocations", "frees", "resizes", "requested_bytes", "freed_bytes", "foreign_frees")
    return {
        name: getattr(busy, name) - getattr(idle, name)
        for name in names
        if getattr(busy, name) != getattr(idle, name)
    }


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize(
    ("function", "bytes_each"),
    [*((name, size) for name, _, size in FUNCTIONS), ("usable", 10), ("refused", 5)],
)
def test_c_functions(
    keep: Keep, calls: Path, allocator: str, function: str, bytes_each: int
) -> None:
    if allocator == "tcmalloc" and function == "refused":
        pytest.skip("it writes a warning of its own for each")
    [idle] = keep([calls, function, "0"], allocator)
    [busy] = keep([calls, function, "1000"], allocator)
    expected = {"allocations": 1000, "frees": 1000}
    if bytes_each:
        expected |= {"requested_bytes": 1000 * bytes_each, "freed_bytes": 1000 * bytes_each}
    assert difference(busy.sums, idle.sums) == expected
    assert (busy.live_bytes, busy.live_blocks) == (idle.live_bytes, idle.live_blocks)
    assert (busy.untracked_blocks, busy.missed_frees) == (0, 0)
    if library := library_of(allocator):
        assert Path(busy.provider).resolve() == library.resolve()


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_new_and_delete_in_all_forms(keep: Keep, build: Build, allocator: str) -> None:
    if allocator in ("tcmalloc", "mimalloc"):
        pytest.skip("where others throw, it writes a warning, or aborts")
    program = build("operators.cpp", OPERATORS)
    [idle] = keep([program, "0", "0"], allocator)
    [busy] = keep([program, "100", "100"], allocator)
    more = difference(busy.sums, idle.sums)
    # An exception is an object that the run time library allocates and frees for each throw.
    assert more["allocations"] == more["frees"] == 1400
    exceptions = more["requested_bytes"] - 100 * sum(range(1, 13))
    assert exceptions == more["freed_bytes"] - 100 * sum(range(1, 13))
    assert exceptions % 100 == 0
    assert exceptions // 100 in range(16, 512)
    assert busy.live_blocks == idle.live_blocks
    assert busy.missed_frees == 0


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
def test_reallocations(keep: Keep, build: Build, allocator: str, tmp_path: Path) -> None:
    program = build("reallocations.c", REALLOCATIONS)
    [idle] = keep([program, "0"], allocator)
    out = tmp_path / "out"
    [busy] = keep([program, "20"], allocator, stdout=out)
    moves, stays, requested = map(int, out.read_text().split())
    more = difference(busy.sums, idle.sums)
    assert more["allocations"] == more["frees"] == 20 + moves
    assert more.get("resizes", 0) == stays
    assert more["requested_bytes"] == requested
    assert (busy.live_bytes, busy.live_blocks) == (idle.live_bytes, idle.live_blocks)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_against_a_program_that_knows(keep: Keep, allocator: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = paths.build_dir() / "bin" / "thread_test_measurement"
    if not program.is_file():
        pytest.skip("the test programs are not built")
    [books] = keep([program], allocator, stdout=out)
    own = {k: int(v) for k, v in re.findall(r"(?m)^(\w+): (\d+)$", out.read_text())}
    main, *others = books.threads
    assert len(others) == own["threads"] == 4
    # Each thread also frees a small object that the main thread made for it.
    assert sum(each.foreign_frees for each in others) == own["foreign_frees"] + 4
    # One of them prints the figures, into a buffer of 4096 bytes.
    assert sum(each.allocations for each in others) == 80_000 + 1
    assert sum(each.requested_bytes for each in others) == own["requested_bytes"] + 4096
    # In the end each frees what is left of its own.
    assert sum(each.frees for each in others) == 80_000 + 4
    assert sum(each.freed_bytes for each in others) - own["requested_bytes"] in range(4, 1024)
    assert main.foreign_frees == 0
    assert books.sums.reused_bytes - own["reused_bytes"] in range(4096 + 4096)
    assert own["requested_bytes"] - own["freed_bytes"] <= books.peak_live_bytes
    assert books.peak_live_bytes <= own["requested_bytes"] + 200_000


class TestReuse:
    # argv: size and number of the blocks, and how many bytes less the second lot has.
    TWICE = """
    int main(int argc, char** argv) {
      size_t size = atol(argv[1]), less = atol(argv[3]);
      int number = atoi(argv[2]);
      void** blocks = calloc(number, sizeof *blocks);
      for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < number; ++i) blocks[i] = malloc(size - round * less);
        for (int i = number; i-- > 0;) free(blocks[i]);
      }
      return 0;
    }
    """

    @pytest.mark.parametrize("size", [8, 20, 24, 100, 1000])
    @pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
    def test_blocks_handed_out_again(
        self, keep: Keep, build: Build, allocator: str, size: int
    ) -> None:
        program = build("twice.c", self.TWICE)
        [books] = keep([program, str(size), "1000", "0"], allocator)
        # All of the second lot: each of these allocators uses what was freed last, or lies lowest.
        # A block that begins where another size's lay may miss some bytes of its last 8.
        assert books.sums.reused_bytes >= 0.97 * size * 1000
        assert books.sums.reused_bytes <= size * 1000 + 20_000

    def test_nothing_is_reused_where_nothing_is_freed(self, keep: Keep, build: Build) -> None:
        source = """
        int main(void) { for (int i = 0; i < 30000; ++i) malloc(i % 700); return 0; }
        """
        [books] = keep([build("keeps.c", source)])
        assert books.sums.reused_bytes < 2000
        assert books.live_bytes >= sum(i % 700 for i in range(30000))
        assert books.live_blocks >= 30000

    def test_huge_blocks(self, keep: Keep, build: Build) -> None:
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
        [books] = keep([build("huge.c", source)])
        assert books.peak_live_bytes >= 3 << 30
        assert books.live_bytes < 100_000
        assert books.sums.reused_bytes == pytest.approx(4 * (3 << 30), rel=0.001)


class TestCurve:
    def test_follows_a_known_course(self, keep: Keep, build: Build) -> None:
        source = """
        int main(void) {
          static char* blocks[1000];
          for (int i = 0; i < 1000; ++i) { blocks[i] = malloc(10000); usleep(100); }
          for (int i = 0; i < 500; ++i) { free(blocks[i]); usleep(100); }
          for (int i = 0; i < 100; ++i) { usleep(1000); free(malloc(1)); }
          return 0;
        }
        """
        [books] = keep([build("course.c", source)])
        times = [time for time, _ in books.live]
        sizes = [size for _, size in books.live]
        assert len(times) <= 1001
        assert times == sorted(times)
        assert times[-1] >= 0.25
        assert max(sizes) == books.peak_live_bytes
        assert 10_000_000 <= books.peak_live_bytes < 10_100_000
        assert 5_000_000 <= sizes[-1] < 5_100_000
        rise = sizes[: sizes.index(max(sizes))]
        assert rise == sorted(rise)
        # Seen all along, and not in one jump.
        assert max(b - a for a, b in pairwise(rise)) < 2_000_000

    def test_long_runs_keep_their_beginning(self, keep: Keep, build: Build) -> None:
        source = """
        int main(void) {
          struct timespec now;
          clock_gettime(CLOCK_MONOTONIC, &now);
          double end = now.tv_sec + now.tv_nsec * 1e-9 + 0.4;
          void* p = 0;
          for (size_t size = 1; now.tv_sec + now.tv_nsec * 1e-9 < end; ++size) {
            free(p);
            p = malloc(size);
            clock_gettime(CLOCK_MONOTONIC, &now);
          }
          return 0;
        }
        """
        [books] = keep([build("long.c", source)])
        assert 400 <= len(books.live) <= 1001
        times = [time for time, _ in books.live]
        assert times[0] < 0.01
        assert times[-1] == pytest.approx(0.4, rel=0.2)
        gaps = [b - a for a, b in pairwise(times)]
        assert max(gaps) < 0.1


@pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
def test_threads_pass_blocks_on(keep: Keep, build: Build, allocator: str, tmp_path: Path) -> None:
    program = build("producers.c", PRODUCERS, "-pthread")
    [idle] = keep([program, "0", "0"], allocator)
    out = tmp_path / "out"
    [busy] = keep([program, "6", "50000"], allocator, stdout=out)
    allocations, frees, _, live = map(int, out.read_text().split())
    more = difference(busy.sums, idle.sums)
    # pthread_create makes one object for each thread; a block that moves counts once more.
    assert more["allocations"] - more["frees"] - (allocations - frees) in range(20)
    assert busy.live_bytes - idle.live_bytes - live in range(6 * 5000)
    workers = [each for each in busy.threads if each.allocations >= 50_000]
    assert len(workers) == 6
    assert sum(each.frees for each in workers) >= frees
    assert 0 < more["foreign_frees"] <= more["frees"]
    assert (busy.untracked_blocks, busy.missed_frees) == (0, 0)


def test_more_threads_than_places(keep: Keep, build: Build) -> None:
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
    [books] = keep([build("churn.c", source, "-pthread")])
    assert books.thread_count == 1001
    assert [each.number for each in books.threads] == [*range(1, 256), 0]
    assert books.sums.allocations >= 10_000
    assert books.threads[-1].allocations == 10 * (1001 - 255)


class TestProcesses:
    @pytest.mark.parametrize("fork", ["fork", "_Fork"])
    def test_forked_child_begins_its_own(self, keep: Keep, build: Build, fork: str) -> None:
        program = build("forks.c", FORKS, f"-DFORK={fork}()")
        parent, child, grandchild = keep([program])
        assert (child.parent_pid, grandchild.parent_pid) == (parent.pid, child.pid)
        assert (parent.sums.allocations, parent.sums.frees, parent.live_bytes) == (2, 1, 2000)
        assert (child.sums.allocations, child.sums.frees, child.live_bytes) == (1, 1, 2500)
        assert (child.sums.foreign_frees, child.peak_live_bytes) == (0, 3000)
        assert (grandchild.sums.allocations, grandchild.live_bytes) == (1, 501)
        inherited = [each.inherited_bytes for each in (parent, child, grandchild)]
        assert inherited == [0, 3000, 2500]

    @pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
    def test_forks_among_busy_threads(self, keep: Keep, build: Build, allocator: str) -> None:
        program = build("busy.c", BUSY_FORKS, "-pthread")
        parent, *children = keep([program, "50"], allocator)
        assert parent.sums.allocations > 0
        sums = [(each.sums.allocations, each.sums.frees) for each in children]
        assert sums == [(2, 2)] * 50
        assert parent.live_bytes < 200_000

    def test_exec_and_vfork(self, keep: Keep, build: Build, calls: Path) -> None:
        program = build("spawns.c", SPAWNS)
        books = keep([program, calls])
        first, second = (each for each in books if each.pid == books[0].pid)
        assert (first.number, first.program, second.program) == (0, str(program), str(calls))
        assert (first.sums.allocations, first.live_bytes, second.number) == (2, 2, 1)
        assert sorted(each.sums.allocations for each in books) == [2, 4, 4, 4]

    def test_exec_from_a_thread(self, keep: Keep, build: Build, calls: Path) -> None:
        first, second = keep([build("becomes.c", BECOMES, "-pthread"), calls])
        assert first.sums.allocations > 100
        assert second.sums.allocations == 4

    @pytest.mark.parametrize(
        ("end", "status"),
        [("return 0;", 0), ("_exit(3);", 3), ("abort();", -6), ("kill(getpid(), SIGKILL);", -9)],
    )
    def test_no_way_to_end_loses_the_books(
        self, keep: Keep, build: Build, end: str, status: int
    ) -> None:
        [books] = keep([build("ends.c", ENDS, f"-DEND={end}")], status=status)
        assert (books.sums.allocations, books.live_bytes, books.peak_live_bytes) == (7, 21, 21)

    def test_constructors_and_destructors_around_main(self, keep: Keep, build: Build) -> None:
        program = early_and_late(build)
        [books] = keep([program], LD_LIBRARY_PATH=str(program.parent))
        assert (books.sums.allocations, books.sums.frees, books.live_bytes) == (1, 1, 0)


@pytest.mark.parametrize("allocator", ["", "jemalloc", "tsmalloc", "lock-best"])
@pytest.mark.parametrize("command", REAL_PROGRAMS)
def test_real_programs(
    keep: Keep, allocator: str, command: list[str | Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    books = keep(command, allocator, stdout=out, PATH=os.environ["PATH"])
    plain = subprocess.run(command, capture_output=True, check=True).stdout
    assert out.read_bytes() == plain
    assert all(each.missed_frees == 0 for each in books)
    root = next(each for each in books if each.parent_pid == os.getpid())
    assert 0 < root.sums.frees <= root.sums.allocations


class TestWithoutAFile:
    """The program runs as ever; the missing file says that nothing was recorded."""

    @pytest.mark.parametrize("folder", ["/no/such/folder", "", "/proc"])
    def test_folder_that_cannot_be_written(self, keep: Keep, calls: Path, folder: str) -> None:
        assert keep([calls, "malloc", "10"], TSMALLOC_LEDGER=folder) == []

    def test_limit_on_address_space(self, keep: Keep, calls: Path) -> None:
        found = keep(["/bin/sh", "-c", f"ulimit -v 30000; exec {calls} malloc 10"])
        [books] = [each for each in found if each.program == str(calls)]
        assert books.sums.allocations + books.untracked_blocks == 10
