"""`measure` as its users run it, and its answer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tsmlab import paths


def run(
    *arguments: str | bytes | Path,
    status: int = 0,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs measure with these arguments, with an empty standard input."""
    done = subprocess.run(
        [paths.tool("measure"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=os.environ | (env or {}),
        cwd=cwd,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def parse(line: bytes) -> dict[str, Any]:
    """The answer of a tool, which must be one line."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return dict(json.loads(line))


def measure(command: list[str | Path], *options: str | Path) -> dict[str, Any]:
    """The answer about a command whose output is thrown away."""
    return parse(run(*options, "--stdout", "/dev/null", "--", *command).stdout)
