"""Commands that are run to their end, with what they printed."""

from __future__ import annotations

import subprocess
from typing import Any


def captured(
    *command: object, check: bool = False, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The words of the command may be paths and numbers; with `check`, it has to succeed."""
    words = list(map(str, command))
    return subprocess.run(
        words, capture_output=True, text=True, check=check, timeout=timeout, **options
    )


def merged(*command: object, **options: Any) -> tuple[int, str]:
    """The exit status, and what the command printed to standard output and standard error."""
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    return done.returncode, done.stdout
