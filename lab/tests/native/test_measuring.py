"""The lab's side of the native tools: requests become command lines, answers become values."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import run_request as request
from prompt import is_alive, wait_until

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.measuring import MeasureExecutor, Measurement, measure_arguments, read_counts
from tsmlab.observing import read_ledgers


class TestRequests:
    def test_least_command_line(self) -> None:
        expected = ["--sample-ms", "10", "--stdin", "/dev/null", "--", "ls", "--all"]
        assert measure_arguments(request("ls", "--all")) == expected

    def test_everything_is_passed_on(self) -> None:
        allocator = Allocator("mine", Path("/mine.so"), "user", "1", env={"A": "1", "B": "1"})
        full = request(
            "x",
            allocator=allocator,
            env={"B": "2", "C": "3"},
            stdin=Path("i"),
            stdout=Path("o"),
            stderr=Path("e"),
            timeout_seconds=0.25,
            cwd=Path("/d"),
            preload_first=(Path("/first.so"),),
            sample_ms=0,
        )
        assert measure_arguments(full) == [
            *("--sample-ms", "0", "--env", "A=1", "--env", "B=2", "--env", "C=3"),
            *("--preload", "/first.so", "--preload", "/mine.so"),
            *("--stdin", "i", "--stdout", "o", "--stderr", "e", "--cwd", "/d"),
            *("--timeout", "0.250000000", "--", "x"),
        ]


class TestExecutor:
    def test_measures(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        measurement = MeasureExecutor().run(request("sh", "-c", "echo hello; exit 3", stdout=out))
        assert out.read_text() == "hello\n"
        assert (measurement.exit_code, measurement.failed) == (3, True)
        assert measurement.wall_ns > 0
        assert measurement.peak_rss_bytes >= measurement.floor_bytes // 2
        assert measurement.raw["schema"] == "tsmalloc-measure/1"
        assert measurement.raw["wall_ns"] == measurement.wall_ns

    def test_program_without_input_reads_nothing_and_one_that_is_not_there_fails(self) -> None:
        assert not MeasureExecutor().run(request("cat")).failed
        measurement = MeasureExecutor().run(request("/no/such/program"))
        assert measurement.failed
        assert measurement.spawn_error.errno == 2
        assert measurement.wall_ns == 0

    def test_tools_that_do_not_start_fail_or_are_of_another_version(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(UserError, match="does not start"):
            MeasureExecutor(tmp_path / "measure").run(request("true"))
        with pytest.raises(UserError, match=r"failed \(exit 1\)"):
            MeasureExecutor().run(request("true", timeout_seconds=0))
        assert "--timeout wants more than 0 seconds" in capfd.readouterr().err
        tool = tmp_path / "measure"
        tool.write_text('#!/bin/sh\necho \'{"schema": "tsmalloc-measure/0"}\' > "$2"\n')
        tool.chmod(0o755)
        with pytest.raises(UserError, match="tsmalloc-measure/0"):
            MeasureExecutor(tool).run(request("true"))

    def test_interrupt_ends_the_program_first(self, tmp_path: Path) -> None:
        note = tmp_path / "pid"
        script = f"""
import signal
from pathlib import Path
from tsmlab.allocators import Allocator
from tsmlab.measuring import MeasureExecutor, RunRequest
signal.signal(signal.SIGINT, signal.default_int_handler)
command = ("sh", "-c", "echo $$; exec sleep 60")
glibc = Allocator("glibc", None, "libc", "")
request = RunRequest(command, glibc, {{}}, None, Path({str(note)!r}), None, None, None)
try:
    MeasureExecutor().run(request)
except KeyboardInterrupt:
    print("interrupted")
"""
        path = os.pathsep.join(sys.path)
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == b"interrupted\n"
        assert not is_alive(int(note.read_text()))


@pytest.fixture
def answer() -> dict[str, Any]:
    return json.loads(json.dumps(MeasureExecutor().run(request("true")).raw))


@pytest.mark.parametrize(
    ("changes", "failed", "text"),
    [
        ({}, False, "ok"),
        ({"exit_code": 3}, True, "exit 3"),
        ({"exit_code": None, "signal": 11}, True, "SIGSEGV"),
        ({"exit_code": None, "signal": 40}, True, "signal 40"),
        ({"timed_out": True, "timeout_ns": 5 * 10**9}, True, "timed out after 5 s"),
        (
            {"timed_out": True, "timeout_ns": 25 * 10**7, "exit_code": None, "signal": 15},
            True,
            "timed out after 0.25 s",
        ),
        ({"interrupted": True}, True, "interrupted"),
        ({"exit_code": None}, True, "could not be ended"),
        (
            {"exit_code": None, "wall_ns": None, "spawn_error": {"errno": 2, "message": "no x"}},
            True,
            "could not start: no x",
        ),
    ],
)
def test_failures_in_words(
    answer: dict[str, Any], changes: dict[str, Any], failed: bool, text: str
) -> None:
    measurement = Measurement.from_json(answer | changes)
    assert (measurement.failed, measurement.failure_text()) == (failed, text)


@pytest.mark.parametrize(
    ("read", "name", "contents"),
    [
        (read_counts, "1-0.count", (b"TSCOUNT2", b"x" * 4096, b"TSCOUNT1" + bytes(4088))),
        (read_ledgers, "1-0.ledger", (b"TSLEDGR1", bytes(36480), b"TSLEDGR2" + bytes(36472))),
    ],
)
def test_what_no_shim_wrote(
    tmp_path: Path, read: Callable[[Path], object], name: str, contents: tuple[bytes, ...]
) -> None:
    assert read(tmp_path) == []
    (tmp_path / name).touch()
    assert read(tmp_path) == []
    for content in contents:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="is not what the shim"):
            read(tmp_path)


class TestRecordsOfCounts:
    def test_order_is_by_process_and_then_by_number(self, tmp_path: Path) -> None:
        for pid, number in [(12, 10), (12, 9), (3, 0)]:
            record = b"TSCOUNT2" + pid.to_bytes(4, sys.byteorder) + bytes(4084)
            (tmp_path / f"{pid}-{number}.count").write_bytes(record)
        order = [(record.pid, record.number) for record in read_counts(tmp_path)]
        assert order == [(3, 0), (12, 9), (12, 10)]

    @pytest.mark.parametrize(
        ("parents", "order"),
        [
            ({7: 5, 8: 7, 9: 7}, [7, 8, 9]),
            ({32767: 5, 300: 32767, 301: 300, 32768: 32767}, [32767, 300, 32768, 301]),
            ({7: 8, 8: 7}, [7, 8]),
        ],
    )
    def test_parents_come_first(
        self, tmp_path: Path, parents: dict[int, int], order: list[int]
    ) -> None:
        for pid, parent in parents.items():
            numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in (pid, parent))
            (tmp_path / f"{pid}-0.count").write_bytes(b"TSCOUNT2" + numbers + bytes(4080))
        assert [record.pid for record in read_counts(tmp_path)] == order
