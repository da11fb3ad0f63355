"""The counting shim: every call counted exactly once, under every allocator, however a process
comes to life and ends; and no trace of it in what the program sees.

Programs that allocate nothing themselves are compared with fixed numbers; C++ programs, whose run
time library allocates at its start, with the same program told to make no calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_libraries import expect_shim, exported_names
from shim_programs import (
    BUSY_FORKS,
    ENDS,
    FORKS,
    FUNCTIONS,
    OPERATORS,
    PRODUCERS,
    SPAWNS,
    early_and_late,
    library_of,
    run_in,
    under,
)

from tsmlab import paths
from tsmlab.measuring import ProcessCounts, read_counts

Build = Callable[..., Path]
CountRun = Callable[..., list[ProcessCounts]]

ALLOCATORS = under("", "jemalloc", also=("mimalloc", "tcmalloc", "tbbmalloc"))


@pytest.fixture
def count(tmp_path: Path) -> CountRun:
    """count(command, allocator="", status=0, **environment) runs it and gives its records."""
    run = run_in(tmp_path, "libtsmalloc-count.so", "TSMALLOC_COUNT_DIR")
    return lambda *what, **how: read_counts(run(*what, **how))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize(
    ("function", "kind", "bytes_each"),
    [*FUNCTIONS, ("valloc", "aligned", 50), ("pvalloc", "aligned", 4096), ("free", "free", 0)],
)
def test_c_functions(
    count: CountRun, calls: Path, allocator: str, function: str, kind: str, bytes_each: int
) -> None:
    library = library_of(allocator)
    passed_on = {"reallocarray": "realloc", "zero": "malloc"}.get(function, function)
    if library and passed_on not in exported_names(library):
        pytest.skip(f"{library.name} has no {function}: the C library's block would reach its free")
    [idle] = count([calls, function, "0"], allocator)
    [busy] = count([calls, function, "1000"], allocator)
    expected = dict(idle.by_kind)
    expected["free"] += 1000
    if kind != "free":
        expected[kind] += 1000
    assert dict(busy.by_kind) == expected
    assert busy.bytes_requested == idle.bytes_requested + 1000 * bytes_each
    assert busy.calls == idle.calls + (1000 if kind == "free" else 2000)


def test_provider_and_program_are_told(count: CountRun, calls: Path) -> None:
    [record] = count([calls, "malloc", "3"])
    assert (record.malloc, record.free, record.calls, record.bytes_requested) == (3, 3, 6, 30)
    assert record.program == str(calls)
    assert record.parent_pid == os.getpid()
    assert Path(record.provider).name == "libc.so.6"
    [record] = count([calls, "malloc", "1"], "jemalloc")
    library = library_of("jemalloc")
    assert Path(record.provider).resolve() == library.resolve()


def test_refused_requests_are_calls_that_got_nothing(count: CountRun, calls: Path) -> None:
    [record] = count([calls, "refused", "5", "errno"])
    assert (record.malloc, record.calloc, record.aligned, record.realloc) == (10, 5, 5, 5)
    assert (record.free, record.bytes_requested) == (5, 25)
    # A product that overflows is refused by reallocarray before it becomes a call of realloc.
    [record] = count([calls, "overflow", "5", "errno"])
    assert (record.calls, record.free, record.bytes_requested) == (5, 5, 0)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_new_and_delete_in_all_forms(count: CountRun, build: Build, allocator: str) -> None:
    program = build("operators.cpp", OPERATORS)
    [idle] = count([program, "0", "0"], allocator)
    [busy] = count([program, "100", "0"], allocator)
    difference = {kind: n - dict(idle.by_kind)[kind] for kind, n in busy.by_kind}
    # libstdc++'s own operators call malloc, each other and free; only the program's calls count.
    assert {kind: n for kind, n in difference.items() if n} == {
        "operator_new": 1300,
        "operator_delete": 1400,
    }
    assert busy.bytes_requested - idle.bytes_requested == 100 * sum(range(1, 13))


def test_bad_alloc_passes_through(count: CountRun, build: Build) -> None:
    program = build("operators.cpp", OPERATORS)
    [idle] = count([program, "10", "0"])
    [busy] = count([program, "10", "10"])
    assert busy.operator_new - idle.operator_new == 10  # what comes after that is not lost
    assert busy.operator_delete == idle.operator_delete
    # The C++ run time library takes and frees 10 exception objects; and the 10 attempts inside of
    # the operators that threw stay counted too.
    assert busy.malloc - idle.malloc == 10 + 10
    assert busy.free - idle.free == 10
    assert 10 < busy.bytes_requested - idle.bytes_requested < 10_000


@pytest.mark.parametrize("allocator", ["", "jemalloc"])
def test_threads(count: CountRun, build: Build, allocator: str, tmp_path: Path) -> None:
    program = build("producers.c", PRODUCERS, "-pthread")
    [idle] = count([program, "4", "0"], allocator)
    [busy] = count([program, "4", "25000"], allocator, stdout=tmp_path / "out")
    allocations, frees, *_ = map(int, (tmp_path / "out").read_text().split())
    assert busy.malloc - idle.malloc == allocations == 100_000
    assert busy.free - idle.free == frees


@pytest.mark.parametrize(
    ("end", "status"),
    [("return 0;", 0), ("_exit(3);", 3), ("abort();", -6), ("kill(getpid(), SIGKILL);", -9)],
)
def test_no_way_to_end_loses_counts(count: CountRun, build: Build, end: str, status: int) -> None:
    [record] = count([build("ends.c", ENDS, f"-DEND={end}")], status=status)
    assert record.malloc == 7


class TestProcesses:
    @pytest.mark.parametrize("fork", ["fork", "_Fork"])
    def test_a_forked_child_counts_for_itself(
        self, count: CountRun, build: Build, fork: str
    ) -> None:
        records = count([build("forks.c", FORKS, f"-DFORK={fork}()")])
        assert [(r.malloc, r.free) for r in records] == [(2, 1), (1, 1), (1, 1)]
        parent, child, grandchild = records
        assert (child.parent_pid, grandchild.parent_pid) == (parent.pid, child.pid)

    def test_forks_among_busy_threads(self, count: CountRun, build: Build) -> None:
        parent, *children = count([build("busy.c", BUSY_FORKS, "-pthread"), "100"])
        assert parent.malloc > 0
        assert [(r.malloc, r.calloc, r.free) for r in children] == [(1, 1, 2)] * 100

    def test_programs_leave_a_file_without_calls(self, count: CountRun, build: Build) -> None:
        source = "int main(void) { return fork() < 0; }"
        assert len(count([build("quiet.c", source)])) == 1
        [record] = count([build("nothing.c", "int main(void) { return 0; }")])
        assert record.calls == 0

    def test_exec_and_vfork(self, count: CountRun, build: Build, calls: Path) -> None:
        program = build("spawns.c", SPAWNS)
        records = count([program, calls])
        assert sorted(record.malloc for record in records) == [2, 4, 4, 4]
        first, second = (record for record in records if record.pid == records[0].pid)
        assert (first.number, first.program, first.malloc) == (0, str(program), 2)
        assert (second.number, second.program, second.malloc) == (1, str(calls), 4)

    def test_child_finds_the_folder_whatever_the_program_did(
        self, count: CountRun, build: Build, tmp_path: Path
    ) -> None:
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
        count([build("wander.c", source)], TSMALLOC_COUNT_DIR="relative")
        assert [r.malloc for r in read_counts(tmp_path / "relative")] == [0, 1]


def test_constructors_before_main_and_destructors(count: CountRun, build: Build) -> None:
    program = early_and_late(build)
    [record] = count([program], LD_LIBRARY_PATH=str(program.parent))
    assert (record.malloc, record.free) == (1, 1)


class TestWithoutAFile:
    """The program runs as ever; the missing file says that nothing was counted."""

    @pytest.mark.parametrize("folder", ["/no/such/folder", "", "/proc"])
    def test_folder_that_cannot_be_written(self, count: CountRun, calls: Path, folder: str) -> None:
        assert count([calls, "malloc", "10"], TSMALLOC_COUNT_DIR=folder) == []

    def test_limit_on_file_sizes(self, count: CountRun, calls: Path) -> None:
        script = f"ulimit -f 0; exec {calls} malloc 10"
        assert all(record.program != str(calls) for record in count(["/bin/sh", "-c", script]))

    def test_full_disk(
        self, count: CountRun, calls: Path, small_disk: Callable[[str], Path]
    ) -> None:
        disk = small_disk("4k")
        (disk / "filler").write_bytes(b"x" * 4096)
        count([calls, "malloc", "10"], TSMALLOC_COUNT_DIR=str(disk))
        assert [path.name for path in disk.iterdir()] == ["filler"]


class TestPlugins:
    """C++ code that a C program loads: its run time library is outside the loader's usual order."""

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

    def test_shared_run_time_library(self, count: CountRun, build: Build) -> None:
        plugin = build("plugin.cpp", self.PLUGIN, "-shared", "-fPIC")
        [record] = count([build("host.c", self.HOST), plugin])
        assert (record.operator_new, record.operator_delete) == (2, 1)

    # Linked without a C++ run time library, and told by its argument how much to ask for.
    BARE = """
    #include <new>
    extern "C" int work(std::size_t size) { operator delete(operator new(size)); return 0; }
    """

    def test_plugins_without_a_run_time_library(self, count: CountRun, build: Build) -> None:
        plugin = build("bare.cpp", self.BARE, "-shared", "-fPIC", "-nodefaultlibs", "-lc")
        [small] = count([build("host.c", self.HOST), plugin, "9"])
        [large] = count([build("host.c", self.HOST), plugin, "1009"])
        assert (small.operator_new, small.operator_delete) == (1, 1)
        assert large.by_kind == small.by_kind
        assert large.bytes_requested == small.bytes_requested + 1000
        [record] = count([build("host.c", self.HOST), plugin, str(1 << 62)], status=-6)
        assert (record.operator_new, record.operator_delete) == (1, 0)
        assert record.bytes_requested < 1 << 62


@pytest.mark.parametrize(
    ("shim", "also"),
    [
        ("count", ["dlopen"]),
        ("ledger", []),
        ("record", ["pthread_create", "thrd_create", "_Fork", "_exit", "_Exit", "prctl"]),
    ],
)
def test_shims_need_libc_and_export_little_else(shim: str, also: list[str]) -> None:
    expect_shim(paths.library(f"libtsmalloc-{shim}.so"), *also)
