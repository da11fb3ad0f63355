"""Runs under the tracker, and under strace, as values that explain a result."""

from pathlib import Path

import pytest
from conftest import run_request
from prompt import script
from refusals import refused
from shim_programs import installed

from tsmlab import paths, strace, tracker
from tsmlab.measuring import MeasureExecutor

WORK = 'my %h; $h{"key$_"} = "v" x ($_ % 90) for 1..20000; print scalar(keys %h)'


def request(*command, **changes):
    quiet = {"stdout": Path("/dev/null"), "stderr": Path("/dev/null"), "timeout_seconds": 60}
    return run_request(*command, **(quiet | changes))


@pytest.mark.parametrize("name", ["glibc", "jemalloc", "tsmalloc", "lock-best"])
def test_a_real_program(name):
    chosen = installed(name)
    run = tracker.explain(
        request("perl", "-e", WORK, allocator=chosen, series_points=50, sample_ms=1)
    )
    counts = run.counts()
    assert not run.measurement.failed
    assert counts["allocations"] > 40_000
    assert counts["requested_bytes"] > counts["peak_live_bytes"] > 1_000_000
    assert counts["requested_bytes"] <= counts["usable_bytes"] < 2 * counts["requested_bytes"]
    assert counts["foreign_frees"] == 0
    assert counts["reused_bytes"] > 10_000
    [process] = run.processes
    if chosen.path:
        assert Path(process.provider).resolve() == chosen.path.resolve()
    assert [t.allocations for t in process.threads] == [counts["allocations"]]
    assert run.measurement.series
    # Live bytes are resident, except for pages that were not written.
    assert run.measurement.peak_rss_bytes > counts["peak_live_bytes"]


def test_processes_are_added():
    run = tracker.explain(request("sh", "-c", f"perl -e '{WORK}'; perl -e 'print 1'; true"))
    alone = tracker.explain(request("perl", "-e", WORK)).counts()
    assert len(run.processes) >= 3
    assert run.counts()["peak_live_bytes"] == pytest.approx(alone["peak_live_bytes"], rel=0.05)
    assert run.counts()["allocations"] > alone["allocations"]


def test_program_that_cannot_be_preloaded():
    with refused("cannot track", remedy="tsmalloc doctor"):
        tracker.explain(request(str(paths.tool("measure")), "--help"))


def test_failures_are_answers():
    failed = tracker.explain(request("perl", "-e", "exit 3"))
    assert failed.measurement.failure_text() == "exit 3"
    assert failed.counts()["allocations"] > 0
    missing = tracker.explain(request("/no/such/program"))
    assert missing.measurement.spawn_error is not None
    assert missing.processes == ()
    hoards = "my @a; push @a, 'x' x 1000 while @a < 5000; sleep 60"
    late = tracker.explain(request("perl", "-e", hoards, timeout_seconds=1.0))
    assert late.measurement.timed_out
    assert late.counts()["peak_live_bytes"] > 5_000_000


# --- system calls --------------------------------------------------------------------------------

needs_strace = pytest.mark.skipif(strace.refusal() is not None, reason=f"{strace.refusal()}")

# argv: this many threads that wake and wait for nothing this often; every fourth time they map a
# page.
FUTEXES = """
#include <linux/futex.h>
static int word;
static long rounds;
static void* work(void* none) {
  for (long i = 0; i < rounds; ++i) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    if (i % 2) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, 0, 0, 0);  /* it is not 5 */
    if (i % 4) continue;
    char* p = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, 4096, MADV_DONTNEED);
    p = mremap(p, 12288, 8192, 0);
    munmap(p, 8192);
  }
  return none;
}
int main(int argc, char** argv) {
  pthread_t threads[8];
  rounds = atol(argv[2]);
  for (int i = 0; i < atoi(argv[1]); ++i) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < atoi(argv[1]); ++i) pthread_join(threads[i], 0);
  int never = 1;
  struct timespec patience = {0, 200000000};
  syscall(SYS_futex, &never, FUTEX_WAIT_PRIVATE, 1, &patience, 0, 0);
  return fork() == 0 ? brk(0) : wait(0) < 0;
}
"""


@needs_strace
def test_system_calls_of_threads(build, tmp_path):
    program = build("futexes.c", FUTEXES, "-pthread")
    (_, idle), (ended, busy) = (
        strace.count(request(str(program), "4", rounds), tmp_path) for rounds in ("0", "400")
    )
    assert not ended.failed
    found = {name: busy[name] - idle[name] for name in busy}
    # It is chance whether a join has to wait.
    assert found["futex_calls"] == pytest.approx(4 * 600, abs=8)
    assert found["futex_errors"] == pytest.approx(4 * 200, abs=8)
    for name in ("mmap", "munmap", "mremap", "madvise"):
        assert found[f"{name}_calls"] == pytest.approx(400, abs=1)  # one more arena
    assert (idle["sched_yield_calls"], idle["brk_calls"] > 0) == (0, True)
    assert 0.2e9 <= idle["futex_wait_ns"] < 2e9


@needs_strace
def test_system_calls_tell_heaps_apart(tmp_path):
    (_, locked), (_, engine) = (
        strace.count(request("perl", "-e", WORK, allocator=installed(name)), tmp_path)
        for name in ("lock-best", "tsmalloc")
    )
    assert locked["brk_calls"] > engine["brk_calls"]


@needs_strace
def test_environment_reaches_the_program(tmp_path):
    out = tmp_path / "out"
    wanted = request("sh", "-c", "echo $B; exit 3", env={"B": "2"}, stdout=out)
    ended = strace.run(wanted, MeasureExecutor(), tmp_path / "calls")
    assert (ended.failure_text(), out.read_text()) == ("exit 3", "2\n")
    found = strace.read(tmp_path / "calls")
    assert found["total"].calls == sum(c.calls for n, c in found.items() if n != "total") > 10


TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 70.07    0.065414          66       986           mmap
  2.13    0.001990          36        55         1 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.093355          78      1184         1 total
"""


def test_table_of_strace(tmp_path):
    table = tmp_path / "table"
    table.write_text(TABLE)
    assert strace.read(table) == {
        "mmap": strace.Calls(986, 0, 0.065414),
        "futex": strace.Calls(55, 1, 0.00199),
        "total": strace.Calls(1184, 1, 0.093355),
    }
    table.write_text(TABLE[:100])
    with refused(remedy="disk"):
        strace.read(table)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (None, ["sudo apt install strace"]),
        ("echo 'strace: ptrace: not permitted' >&2; exit 1", ["not permitted"]),
        ("exit 1", ["exit 1", "--cap-add=SYS_PTRACE"]),
    ],
)
def test_where_strace_cannot_count_it_says_why(tmp_path, monkeypatch, does, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    if does is not None:
        script(tmp_path / "strace", f"#!/bin/sh\n{does}\n")
    with refused("system calls", *words, remedy=None):
        strace.count(request("/bin/true"), tmp_path)
