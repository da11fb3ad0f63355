"""Explains results: untimed runs under tools that count calls, blocks and waits.

Counting slows a program down, so each tool has a run to itself. A failed count becomes a note next
to the others.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tsmlab import counters, strace, tracker
from tsmlab.errors import UserError
from tsmlab.measuring import ExitReport, RunRequest
from tsmlab.results import Causes
from tsmlab.wording import counted

# A counted run that takes this many times as long as the timed ones has failed.
TIMEOUT_FACTOR = 20.0
MIN_TIMEOUT_SECONDS = 30.0

# Makes one run, and returns counts and notes. The folder is empty, and no other run uses it.
Observer = Callable[[RunRequest, Path], tuple[dict[str, float], list[str]]]


def timeout_seconds(wall_seconds: float) -> float:
    return max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * wall_seconds)


def count(request: RunRequest, point: int, observers: Sequence[Observer] | None = None) -> Causes:
    """All counts of an allocator at a point; if two tools count the same thing, the later one
    wins."""
    counts: dict[str, float] = {}
    notes: list[str] = []
    for observer in OBSERVERS if observers is None else observers:
        with tempfile.TemporaryDirectory(prefix="tsmalloc-causes-") as own:
            try:
                found, note = observer(request, Path(own))
            except UserError as error:
                found, note = {}, [error.message]
        counts |= found
        notes += note
    return Causes(point, request.allocator.name, counts, list(dict.fromkeys(notes)))


def inside(request: RunRequest, folder: Path) -> tuple[dict[str, float], list[str]]:
    if request.allocator.family != "tsmalloc":
        return {}, []
    return counters.counted_run(request, folder), []


def system_calls(request: RunRequest, folder: Path) -> tuple[dict[str, float], list[str]]:
    ended, counts = strace.count(request, folder)
    _require_success(ended, "strace")
    return counts, []


def blocks(request: RunRequest, _folder: Path) -> tuple[dict[str, float], list[str]]:
    tracked = tracker.explain(request)
    _require_success(tracked.measurement, "the tracker")
    untracked = sum(each.untracked_blocks for each in tracked.processes)
    missed = sum(each.missed_frees for each in tracked.processes)
    notes = [f"the tracker had no memory for {counted(untracked, 'block')}"] if untracked else []
    notes += [f"{counted(missed, 'block')} freed without the tracker noticing"] if missed else []
    return tracked.counts(), notes


def _require_success(ended: ExitReport, under: str) -> None:
    if ended.failed:
        raise UserError(f"the program failed under {under}: {ended.failure_text()}.")


OBSERVERS: Sequence[Observer] = (inside, system_calls, blocks)
