"""Commands of package tests: run in an environment of few variables, with their output."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """The output of a command that has to succeed, stdout and stderr together."""
    status, said = try_to_run(*command, cwd=cwd, **environment)
    assert status == 0, f"{' '.join(map(str, command))} ends with {status}:\n{said}"
    return said


def try_to_run(
    *command: str | Path, cwd: Path | None = None, **environment: str
) -> tuple[int, str]:
    """The exit status and the output of a command, in an environment of few variables."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
