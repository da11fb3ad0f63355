"""What the tests of the native tools share: small programs compiled on demand, and a way to run
`measure` as its users do.

Why: what a program does must be known exactly to check what is measured of it.
Refuses to: fall back to ready-made programs, whose calls and memory differ from machine to machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tsmlab import paths

LONGEST_TEST_SECONDS = 60


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(name, source, *flags) compiles C (or C++, by the name) and gives the result's path."""
    folder = tmp_path_factory.mktemp("programs")
    done: dict[tuple[str, ...], Path] = {}

    def compile_once(name: str, source: str, *flags: str) -> Path:
        key = (name, source, *flags)
        if key not in done:
            code = folder / f"{len(done)}-{name}"
            code.write_text(source)
            output = code.with_suffix("")
            compiler = "c++" if name.endswith(".cpp") else "cc"
            # The compilers know malloc, and would remove calls whose result nobody uses.
            command = [compiler, "-O1", "-fno-builtin", *flags, str(code), "-o", str(output)]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)
            assert finished.returncode == 0, finished.stderr
            done[key] = output
        return done[key]

    return compile_once


@pytest.fixture
def run() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """run(*arguments) runs measure with these arguments, with an empty standard input."""

    def run_measure(
        *arguments: str | bytes | Path, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [paths.tool("measure"), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST_TEST_SECONDS,
            env=os.environ | (env or {}),
            cwd=cwd,
            check=False,
        )

    return run_measure


@pytest.fixture
def parse() -> Callable[[bytes], dict[str, Any]]:
    """parse(output) is the answer of measure, which must be one line."""

    def parse_line(line: bytes) -> dict[str, Any]:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    return parse_line


@pytest.fixture
def measure(
    run: Callable[..., subprocess.CompletedProcess[bytes]],
    parse: Callable[[bytes], dict[str, Any]],
) -> Callable[..., dict[str, Any]]:
    """measure(command, *options) is the answer about a command whose output is thrown away."""

    def measure_command(command: list[str | Path], *options: str | Path) -> dict[str, Any]:
        done = run(*options, "--stdout", "/dev/null", "--", *command)
        assert done.returncode == 0, done.stderr
        return parse(done.stdout)

    return measure_command


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """is_alive(pid): whether a process exists and has not ended."""

    def exists_and_runs(pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}

    return exists_and_runs


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """wait_until(condition) returns when it holds, and fails when that takes too long."""

    def poll(condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + LONGEST_TEST_SECONDS
        while not condition():
            assert time.monotonic() < give_up, "waited in vain"
            time.sleep(0.01)

    return poll


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a program that says "ready", with the housekeeper off: nothing goes back meanwhile."""
    started: list[subprocess.Popen[bytes]] = []

    def run(
        *command: str | Path, library: str | Path | None = "libtsmalloc.so"
    ) -> subprocess.Popen[bytes]:
        environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
        environment["TSMALLOC_BACKGROUND"] = "off"
        if library is not None:
            files = [str(paths.library(name)) for name in str(library).split(":")]
            environment["LD_PRELOAD"] = ":".join(files)
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in started:  # one of them may trace another
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
