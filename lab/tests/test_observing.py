"""What explains a result, as values: real runs of the native tools, and what they answer."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import run_request
from refusals import refused
from shim_programs import installed

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.measuring import MeasureExecutor, Measurement, RunRequest, measure_arguments
from tsmlab.observing import TRACING_REFUSED, SyscallCounts, count_syscalls, keep_ledger

ALLOCATORS = ("glibc", "jemalloc", "tsmalloc", "lock-best")
WORK = 'my %h; $h{"key$_"} = "v" x ($_ % 90) for 1..20000; print scalar(keys %h)'


def request(*command: str, **changes: Any) -> RunRequest:
    quiet = {"stdout": Path("/dev/null"), "stderr": Path("/dev/null"), "timeout_seconds": 60}
    return run_request(*command, **(quiet | changes))


@pytest.fixture
def traced() -> None:
    try:
        count_syscalls(request("true"))
    except UserError as error:
        pytest.skip(error.message)


@pytest.mark.usefixtures("traced")
class TestSyscalls:
    @pytest.mark.parametrize("name", ALLOCATORS)
    def test_counts(self, name: str) -> None:
        counts = count_syscalls(request("perl", "-e", WORK, allocator=installed(name)))
        assert not counts.failed
        assert (counts.raw["threads"], counts.raw["processes"]) == (1, 1)
        flat = counts.counts()
        assert flat["mmap_bytes"] + flat["brk_bytes"] > 2_000_000
        assert flat["mmap_calls"] > 5
        assert set(flat) >= {
            *("futex_calls", "futex_errors", "futex_wait_ns", "mmap_calls", "mmap_bytes"),
            *("munmap_calls", "munmap_bytes", "brk_calls", "brk_bytes", "madvise_calls"),
            *("madvise_bytes", "mremap_calls", "sched_yield_calls"),
        }
        assert "mmap_errors" not in flat

    def test_futexes_tell_heaps_apart(self) -> None:
        program = paths.build_dir() / "bin" / "thread_test_measurement"
        if not program.is_file():
            pytest.skip("the test programs are not built")
        calls = {
            name: count_syscalls(request(str(program), allocator=installed(name))).counts()
            for name in ("lock-best", "tsmalloc")
        }
        assert calls["lock-best"]["brk_calls"] > calls["tsmalloc"]["brk_calls"]

    def test_failures_are_answers(self) -> None:
        assert count_syscalls(request("sh", "-c", "exit 3")).failure_text() == "exit 3"
        assert count_syscalls(request("sh", "-c", "kill -9 $$")).failure_text() == "SIGKILL"
        missing = count_syscalls(request("/no/such/program"))
        assert missing.failed
        assert "could not start" in missing.failure_text()
        late = count_syscalls(request("sleep", "60", timeout_seconds=0.2))
        assert late.failure_text() == "timed out after 0.2 s"

    def test_environment_reaches_the_program(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        mine = replace(installed("tsmalloc"), env={"A": "1"})
        count_syscalls(
            request("sh", "-c", "echo $A $B; pwd", allocator=mine, env={"B": "2"}, stdout=out)
        )
        assert out.read_text().startswith("1 2\n")


class TestRefusals:
    def tool(self, folder: Path, script: str) -> Path:
        tool = folder / "syscalls"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        return tool

    def test_tools_that_are_refused_fail_or_are_of_another_schema(self, tmp_path: Path) -> None:
        with refused("cannot be counted here", remedy="--cap-add=SYS_PTRACE") as caught:
            count_syscalls(request("true"), self.tool(tmp_path, "exit 126"))
        assert caught.value is TRACING_REFUSED
        script = 'echo \'{"schema": "tsmalloc-syscalls/0"}\' > "$2"'
        with pytest.raises(UserError, match="tsmalloc-syscalls/0"):
            count_syscalls(request("true"), self.tool(tmp_path, script))
        with pytest.raises(UserError, match=r"failed \(exit 125\)"):
            count_syscalls(request("true"), self.tool(tmp_path, "exit 125"))


def test_an_answer_in_words() -> None:
    raw = {
        **dict.fromkeys(("spawn_error", "signal", "timeout_ns")),
        **dict.fromkeys(("timed_out", "interrupted"), False),
        "schema": "tsmalloc-syscalls/1",
        "exit_code": 0,
        "left_behind": 0,
        "threads": 4,
        "processes": 2,
        "calls": {
            "futex": {"calls": 7, "errors": 2, "wait_ns": 9},
            "brk": {"calls": 1, "errors": 1},
        },
    }
    counts = SyscallCounts.from_json(raw)
    assert not counts.failed
    assert counts.counts() == {
        "futex_calls": 7.0,
        "futex_errors": 2.0,
        "futex_wait_ns": 9.0,
        "brk_calls": 1.0,
    }


class TestLedger:
    @pytest.mark.parametrize("name", ALLOCATORS)
    def test_books_of_a_real_program(self, name: str) -> None:
        chosen = installed(name)
        ledger = keep_ledger(
            request("perl", "-e", WORK, allocator=chosen, series_points=50, sample_ms=1)
        )
        counts = ledger.counts()
        assert not ledger.measurement.failed
        assert counts["allocations"] > 40_000
        assert counts["requested_bytes"] > counts["peak_live_bytes"] > 1_000_000
        assert counts["foreign_frees"] == 0
        assert counts["reused_bytes"] > 10_000
        [books] = ledger.processes
        if chosen.path:
            assert Path(books.provider).resolve() == chosen.path.resolve()
        assert ledger.threads() == [{key: counts[key] for key in ledger.threads()[0]}]
        assert max(size for _, size in books.live) == counts["peak_live_bytes"]
        assert ledger.measurement.series
        # What is in use is in memory, but for the pages that were not written.
        assert ledger.measurement.peak_rss_bytes > counts["peak_live_bytes"]

    def test_processes_are_added_and_the_largest_told(self) -> None:
        script = f"perl -e '{WORK}'; perl -e 'print 1'; true"
        ledger = keep_ledger(request("sh", "-c", script))
        assert len(ledger.processes) >= 3
        alone = keep_ledger(request("perl", "-e", WORK))
        assert ledger.largest.program.endswith("perl")
        assert ledger.counts()["peak_live_bytes"] == pytest.approx(
            alone.counts()["peak_live_bytes"], rel=0.05
        )
        assert ledger.counts()["allocations"] > alone.counts()["allocations"]

    def test_program_that_cannot_be_preloaded(self) -> None:
        with refused("left no ledger", remedy="tsmalloc doctor"):
            keep_ledger(request(str(paths.tool("measure")), "--help"))

    def test_failures_are_answers(self) -> None:
        failed = keep_ledger(request("perl", "-e", "exit 3"))
        assert failed.measurement.failure_text() == "exit 3"
        assert failed.counts()["allocations"] > 0
        missing = keep_ledger(request("/no/such/program"))
        assert missing.measurement.spawn_error is not None
        assert missing.processes == ()

    def test_books_of_a_run_that_is_ended_by_its_time(self) -> None:
        script = "my @a; push @a, 'x' x 1000 while @a < 5000; sleep 60"
        ledger = keep_ledger(request("perl", "-e", script, timeout_seconds=1.0))
        assert ledger.measurement.timed_out
        assert ledger.counts()["peak_live_bytes"] > 5_000_000

    @pytest.mark.parametrize("name", ALLOCATORS)
    def test_a_server(self, name: str, tmp_path: Path) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not installed")
        path = tmp_path / "socket"
        command = ("redis-server", "--port", "0", "--unixsocket", str(path), "--save", "")
        talk = f"""
import socket, time
for _ in range(200):
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect({str(path)!r})
        break
    except OSError:
        time.sleep(0.05)
for i in range(500):
    client.sendall(b"SET key%d %s\\r\\n" % (i, b"v" * 1000))
    client.recv(100)
client.sendall(b"BGSAVE\\r\\n")
client.recv(100)
time.sleep(0.3)
client.sendall(b"SHUTDOWN NOSAVE\\r\\n")
client.recv(100)
"""
        client = subprocess.Popen(["/usr/bin/python3", "-c", talk])
        ledger = keep_ledger(request(*command, allocator=installed(name), cwd=tmp_path))
        assert client.wait(timeout=30) == 0
        assert ledger.measurement.exit_code == 0
        # The server, and not the child that writes its memory down.
        assert len(ledger.processes) == 2
        assert ledger.largest.inherited_bytes == 0
        assert all(each.missed_frees == 0 for each in ledger.processes)
        assert ledger.counts()["peak_live_bytes"] > 500 * 1000


class TestSeries:
    def test_series_are_asked_for_and_given_only_then(self) -> None:
        arguments = measure_arguments(request("x", series_points=400))
        assert arguments[:4] == ["--sample-ms", "10", "--series", "400"]
        assert "--series" not in measure_arguments(request("x"))
        measured = MeasureExecutor().run(request("sleep", "0.05"))
        assert measured.series == ()
        assert "series" not in measured.raw

    def run(self, points: int, *command: str, sample_ms: int = 1) -> Measurement:
        wanted = request(*command, series_points=points, sample_ms=sample_ms)
        return MeasureExecutor().run(wanted)

    def test_grows_as_the_program_does(self) -> None:
        step = "push @a, 'x' x 1000000; select undef, undef, undef, 0.02"
        # After a sample that a busy machine held up for 100 ms the sampler waits for 3 s.
        script = f"my @a; for (1..20) {{ {step} }} sleep 4"
        for _ in range(3):
            measured = self.run(1000, "perl", "-e", script)
            if measured.wall_ns - measured.series[-1][0] < 3.5e9:
                break  # else the machine held the sampler up until the end: once more
        times = [time_ns for time_ns, _ in measured.series]
        sizes = [size for _, size in measured.series]
        assert len(times) == measured.samples > 10
        assert times == sorted(times)
        assert times[-1] <= measured.wall_ns
        assert max(sizes) == measured.tree_peak_rss_bytes
        # The last samples may see the end of the process, which gives its memory up part by part.
        assert max(sizes) - sizes[0] > 10_000_000
        assert measured.sampling_ns <= 0.03 * measured.wall_ns

    @pytest.mark.parametrize("points", [1, 2, 7, 8])
    def test_never_more_points_than_asked_for(self, points: int) -> None:
        measured = self.run(points, "sleep", "0.4")
        assert points // 2 < len(measured.series) <= points < measured.samples
        gaps = {b[0] - a[0] for a, b in pairwise(measured.series)}
        assert all(gap > 0 for gap in gaps)
        assert measured.series[0][0] < 50_000_000  # the beginning stays

    def test_sums_up_the_tree(self) -> None:
        script = "perl -e '$x = q(x) x 20000000; sleep 1' & perl -e '$x = q(x) x 20000000; sleep 1'"
        measured = self.run(100, "sh", "-c", script + "; wait", sample_ms=10)
        assert max(size for _, size in measured.series) > 40_000_000
