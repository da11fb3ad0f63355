"""What the tests of the native tools share: small programs compiled on demand, and a way to run
`measure` as its users do.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_programs import CALLS

from tsmlab import paths

LONGEST_TEST_SECONDS = 60


@pytest.fixture(scope="session")
def calls(build: Callable[..., Path]) -> Path:
    """The program of CALLS."""
    return build("calls.c", CALLS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """small_disk(size) is a folder with a file system of its own."""
    disk = tmp_path / "disk"

    def mount(size: str) -> Path:
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk]
        if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root, and a container that allows it")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", disk], check=True)


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
    run: Callable[..., subprocess.CompletedProcess[bytes]], parse: Callable[[bytes], dict[str, Any]]
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
