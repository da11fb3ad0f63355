"""Shows the steps of the set-up on stderr: one moving line on a terminal, two plain lines for each
step elsewhere.

A first use takes a minute, and silence would look like a hang. Shows only the progress that the
build itself reports, without guesses.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time

REDRAW_SECONDS = 0.1


class Display:
    """The progress of concurrent steps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._shares: dict[str, str] = {}
        self._drawn_at = 0.0
        self._moving = sys.stderr.isatty()

    def start(self, step: str) -> None:
        with self._lock:
            self._started[step] = time.monotonic()
            if not self._moving:
                print(f"tsmalloc: setting up {step} ...", file=sys.stderr, flush=True)

    def show(self, step: str, line: str) -> None:
        """Handles one line of the step's output."""
        if not self._moving:
            return
        with self._lock:
            share = percentage(line)
            now = time.monotonic()
            if share is None and now - self._drawn_at < REDRAW_SECONDS:
                return
            if share is not None:
                self._shares[step] = f" {share}"
            self._drawn_at = now
            steps = ", ".join(f"{name}{self._shares.get(name, '')}" for name in self._started)
            elapsed = int(now - min(self._started.values()))
            text = f"tsmalloc: setting up {steps}  {elapsed // 60}:{elapsed % 60:02}  "
            text = (text + line.strip())[: shutil.get_terminal_size().columns - 1]
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def finish(self, step: str, outcome: str) -> None:
        with self._lock:
            elapsed = time.monotonic() - self._started.pop(step)
            before = "\r\033[K" if self._moving else ""
            print(
                f"{before}tsmalloc: setting up {step}: {outcome} ({elapsed:.0f} s)",
                file=sys.stderr,
                flush=True,
            )


def percentage(line: str) -> str | None:
    """The progress that a build reports: make prints `[ 42%]`, ninja `[42/100]`."""
    if found := re.match(r"\[ *(\d+)%\]", line):
        return f"{found[1]}%"
    if found := re.match(r"\[(\d+)/(\d+)\]", line):
        return f"{100 * int(found[1]) // max(1, int(found[2]))}%"
    return None
