"""Why a result is as it is: runs that nobody times, under tools that count.

Why: "faster by 30 %" answers nothing; "and it slept 40 times less often in a lock" does. Counting
slows a program down, so it is done in runs of its own.
Refuses to: fail. What could not be counted is a note beside what could.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.experiments.model import Causes, Curve
from tsmlab.measuring import RunRequest

NOTHING = Causes(counts={}, threads=[], memory=None, maps=[], notes=[])
# A run that is watched may take this many times as long as the timed ones before it has failed.
TIMEOUT_FACTOR = 20.0
MIN_TIMEOUT_SECONDS = 30.0
# Those of a program that begins thousands would be most of the results.
MOST_THREADS = 64


class Observer(Protocol):
    """Who makes one run and counts something in it."""

    def applies_to(self, allocator: Allocator) -> bool:
        """Whether there is anything for it to see under this allocator."""

    def observe(self, request: RunRequest, folder: Path) -> Causes:
        """Makes the run; `folder` is empty, and its own until it returns. Raises UserError if it
        cannot count."""


def watchers(observers: Sequence[Observer], allocator: Allocator) -> list[Observer]:
    return [observer for observer in observers if observer.applies_to(allocator)]


def timeout_seconds(wall_seconds: float) -> float:
    """The limit of a watched run, from the time of one that was not."""
    return max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * wall_seconds)


def merged(parts: Sequence[Causes]) -> Causes:
    """Counts of one name mean the same: those of the later part win."""
    counts: dict[str, float] = {}
    threads: list[dict[str, float]] = []
    memory: Curve | None = None
    for part in parts:
        counts.update(part.counts)
        memory = part.memory or memory
        # Who is who in two runs can be told only where both had as many threads.
        if not threads:
            threads = part.threads
        elif len(part.threads) == len(threads):
            threads = [a | b for a, b in zip(threads, part.threads, strict=True)]
    notes = [note for part in parts for note in part.notes]
    if len(threads) > MOST_THREADS:
        notes.append(f"of {len(threads)} threads or more, the first {MOST_THREADS} are listed")
    return Causes(
        counts=counts,
        threads=threads[:MOST_THREADS],
        memory=memory,
        maps=[each for part in parts for each in part.maps],
        notes=list(dict.fromkeys(notes)),
    )


def observed(observer: Observer, request: RunRequest, folder: Path) -> Causes:
    """What one observer sees; a note where it cannot."""
    try:
        return observer.observe(request, folder)
    except UserError as error:
        return Causes({}, [], None, [], [error.message])
