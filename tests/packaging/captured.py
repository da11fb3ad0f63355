"""A command, run to its end, with what it printed."""

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
