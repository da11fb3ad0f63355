"""`tsmalloc record`: what it checks beforehand, what it says afterwards, and its exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tsmlab import paths
from tsmlab.cli import main
from tsmlab.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_PROGRAM_FAILED, EXIT_USAGE
from tsmlab.traces.recording import Recording

Run = Callable[..., int]
Out = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(*arguments) is the exit status, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM,)}

    def record(*arguments: str | Path) -> int:
        try:
            return main(["record", *map(str, arguments)])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return record


def info(trace: Path) -> dict[str, Any]:
    command = [paths.tool("trace"), "info", "--json", trace]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert isinstance(answer, dict)
    return answer


def test_trace_has_the_programs_name_and_input_reaches_it(run: Run, capfd: Out) -> None:
    assert run("--", "perl", "-e", "print 6 * 7") == EXIT_OK
    out, err = capfd.readouterr()
    assert out == "42"
    assert "perl.tstrace: " in err
    assert " on libc.so.6: " in err
    assert info(Path("perl.tstrace"))["events"] > 100
    Path("input").write_text("hello")
    assert run("--input", "input", "-o", "t.tstrace", "cat") == EXIT_OK
    assert capfd.readouterr().out == "hello"


def test_json_and_quiet(run: Run, capfd: Out) -> None:
    assert run("-q", "-o", "t.tstrace", "true") == EXIT_OK
    assert capfd.readouterr() == ("", "")
    assert run("-f", "--json", "-o", "t.tstrace", "true") == EXIT_OK
    answer = json.loads(capfd.readouterr().out)
    assert (answer["trace"], answer["exit_code"]) == ("t.tstrace", 0)
    assert answer["events"] == sum(image["events"] for image in answer["images"])


def test_allocator_of_ones_own(run: Run, capfd: Out, build: Callable[..., Path]) -> None:
    library = build("libmine.so.c", "int mine;", "-shared", "-fPIC")
    assert run("--allocator", f"mine={library}", "-a", "mine", "--json", "true") == EXIT_OK
    assert json.loads(capfd.readouterr().out)["images"][0]["allocator"] == "libc.so.6"
    assert run("-a", "nobodys", "-f", "true") == EXIT_USAGE
    assert "nobodys" in capfd.readouterr().err


def test_program_that_fails_or_runs_out_of_time(run: Run, capfd: Out) -> None:
    assert run("-o", "t.tstrace", "sh", "-c", "exit 3") == EXIT_PROGRAM_FAILED
    assert "exit 3" in capfd.readouterr().err
    assert info(Path("t.tstrace"))["events"] > 10
    assert run("-i", "-f", "-o", "t.tstrace", "sh", "-c", "exit 3") == EXIT_OK
    assert run("-f", "-o", "t.tstrace", "sh", "-c", "kill -9 $$") == EXIT_PROGRAM_FAILED
    assert "SIGKILL" in capfd.readouterr().err
    assert run("-f", "--timeout", "0.2", "-o", "t.tstrace", "sleep", "60") == EXIT_PROGRAM_FAILED
    assert "timed out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/program"], "/no/such/program"),
        (["-o", "old", "true"], "old exists"),
        (["-o", "no/such/folder/t", "true"], "no folder"),
        (["-o", ".", "true"], "is a folder"),
        (["--ring-mib", "1000", "true"], "too much"),
        (["--", "--"], "no program"),
        ([], "PROGRAM"),
    ],
)
def test_wrong_usage(run: Run, capfd: Out, arguments: list[str], message: str) -> None:
    Path("old").write_text("precious")
    assert run(*arguments) == EXIT_USAGE
    assert message in capfd.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["old"]
    assert Path("old").read_text() == "precious"


def test_static_program_is_refused(run: Run, capfd: Out, build: Callable[..., Path]) -> None:
    program = build("static.c", "int main(void) { return 0; }", "-static")
    assert run(program) == EXIT_USAGE
    assert "static" in capfd.readouterr().err
    assert not Path(f"{program.name}.tstrace").exists()


def test_unrecorded_programs_are_told(run: Run, capfd: Out) -> None:
    assert run("-o", "t.tstrace", "env", "-i", "/bin/sleep", "0.4") == EXIT_OK
    assert "warning: sleep was not recorded" in capfd.readouterr().err


def test_full_disk_is_told() -> None:
    raw = {
        **dict.fromkeys(("spawn_error", "timeout_ns", "signal")),
        **dict.fromkeys(("timed_out", "interrupted"), False),
        **dict.fromkeys(("exit_code", "left_behind", "trace_bytes", "events"), 0),
        "schema": "tsmalloc-record/1",
        "wall_ns": 5,
        "write_error": "cannot write",
        "images": [],
        "unrecorded": [{"program": "x", "reason": "it is statically linked"}],
        "images_without_place": 2,
        "images_without_room": 3,
    }
    recording = Recording.from_json(Path("t"), raw)
    said = "\n".join(recording.warnings())
    assert "x was not recorded: it is statically linked." in said
    assert "2 programs at a time" in said
    assert "3 programs were not recorded" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_keeps_the_trace(tmp_path: Path, number: int) -> None:
    trace = tmp_path / "t.tstrace"
    command = [sys.executable, "-m", "tsmlab", "record", "-o", trace, "--"]
    script = "while true; do echo $(echo x) > /dev/null; sleep 0.01; done"
    environment = dict(os.environ) | {"PYTHONPATH": str(paths.repository_root() / "lab")}
    with subprocess.Popen(
        [*map(str, command), "sh", "-c", script], stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        give_up = time.monotonic() + 60
        while not trace.exists() or trace.stat().st_size < 500:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert str(trace) in err
    assert info(trace)["events"] > 10
