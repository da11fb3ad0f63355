"""Shows one step of the set-up on stderr: a moving line on a terminal, two plain lines elsewhere.

Why: a first use takes minutes, and silence looks like a hang.
Refuses to: guess how long it will take; it shows what the build itself reports.
"""

from __future__ import annotations

import re
import shutil
import sys
import time

REDRAW_SECONDS = 0.1


class Display:
    """The progress of one step."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._share = ""
        self._moving = sys.stderr.isatty()
        if not self._moving:
            print(f"tsmalloc: {title} ...", file=sys.stderr, flush=True)

    def show(self, line: str) -> None:
        """Takes one line of the step's output."""
        if not self._moving:
            return
        share = percentage(line)
        now = time.monotonic()
        if share is None and now - self._drawn_at < REDRAW_SECONDS:
            return
        self._share = share or self._share
        self._drawn_at = now
        elapsed = int(now - self._started)
        text = f"tsmalloc: {self._title} {self._share:>4} {elapsed // 60}:{elapsed % 60:02}  "
        text = (text + line.strip())[: shutil.get_terminal_size().columns - 1]
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def finish(self, outcome: str) -> None:
        elapsed = time.monotonic() - self._started
        before = "\r\033[K" if self._moving else ""
        print(f"{before}tsmalloc: {self._title}: {outcome} ({elapsed:.0f} s)", file=sys.stderr)


def percentage(line: str) -> str | None:
    """How far a build says that it is: make prints `[ 42%]`, ninja `[42/100]`."""
    if found := re.match(r"\[ *(\d+)%\]", line):
        return f"{found[1]}%"
    if found := re.match(r"\[(\d+)/(\d+)\]", line):
        return f"{100 * int(found[1]) // max(1, int(found[2]))}%"
    return None
