"""What counts the causes: our own libraries inside, strace the system calls, the tracker every
block; and how memory goes over time.

Each sees what the others cannot, and slows the program in a way of its own, so each has a run to
itself. A run that failed is an error, which becomes a note.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tsmlab import strace, tracker
from tsmlab.allocators import Allocator
from tsmlab.counters import CountedRun
from tsmlab.errors import UserError
from tsmlab.experiments.causes import Observer
from tsmlab.experiments.model import Causes, Curve
from tsmlab.measuring import Ended, Executor, MeasureExecutor, RunRequest

# Enough for a figure; results have a curve for each of hundreds of cells.
CURVE_POINTS = 200
SAMPLE_MS = 1

Points = list[list[float]]


def all_observers() -> list[Observer]:
    """In the order in which they run; of a count that two of them know, the last one's holds."""
    return [CountedRun(), SystemCalls(), Memory()]


class SystemCalls:
    """The calls by which an allocator waits and gets memory, where strace is installed."""

    def applies_to(self, allocator: Allocator) -> bool:
        return True

    def observe(self, request: RunRequest, folder: Path) -> Causes:
        ended, counts = strace.count(request, folder)
        _require_success(ended, "strace")
        return Causes(counts, [], None, [], [])


class Memory:
    """All blocks, and memory over time.

    The tracker needs memory, too. So what is resident comes from a run without it, to whose length
    the times of the live bytes are scaled.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor

    def applies_to(self, allocator: Allocator) -> bool:
        return True

    def observe(self, request: RunRequest, folder: Path) -> Causes:
        tracked = tracker.explain(request)
        _require_success(tracked.measurement, "the tracker")
        executor = self._executor or MeasureExecutor()
        plain = executor.run(replace(request, series_points=CURVE_POINTS, sample_ms=SAMPLE_MS))
        _require_success(plain, "the sampling of its memory")
        scale = plain.wall_ns / max(tracked.measurement.wall_ns, 1)
        curve = Curve(
            resident=thinned([[time_ns / 1e9, float(size)] for time_ns, size in plain.series]),
            live=thinned([[time * scale, float(size)] for time, size in tracked.largest.live]),
            sampling_share=plain.sampling_ns / max(plain.wall_ns, 1),
        )
        return Causes(tracked.counts(), tracked.threads(), curve, [], list(_gaps(tracked)))


def _require_success(ended: Ended, under: str) -> None:
    if ended.failed:
        raise UserError(f"the program failed under {under}: {ended.failure_text()}.")


def _gaps(tracked: tracker.Run) -> Iterator[str]:
    """What the tracker missed."""
    untracked = sum(each.untracked_blocks for each in tracked.processes)
    if untracked:
        yield f"the tracker had no memory for {untracked:,} blocks"
    missed = sum(each.missed_frees for each in tracked.processes)
    if missed:
        yield f"{missed:,} blocks were freed past the tracker"


def thinned(points: Sequence[Sequence[float]], most: int = CURVE_POINTS) -> Points:
    """At most so many points: of each stretch its highest, and always the first and the last."""
    if len(points) <= most:
        return [list(point) for point in points]
    inner, stretches = points[1:-1], most - 2
    kept = [points[0]]
    for stretch in range(stretches):
        begin, end = (len(inner) * i // stretches for i in (stretch, stretch + 1))
        kept.append(max(inner[begin:end], key=lambda point: point[1]))
    return [list(point) for point in (*kept, points[-1])]
