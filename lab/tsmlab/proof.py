"""Runs a command once under an allocator and counts the calls that reach it.

Why: the only proof that a preload is in effect is that the program's own calls arrive, in the
library that was meant.
Refuses to: measure. Counting costs time, so no measurement is ever taken from such a run.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tsmlab import paths
from tsmlab.allocators import Allocator
from tsmlab.measuring import MeasureExecutor, Measurement, ProcessCounts, RunRequest, read_counts

COUNTING_LIBRARY = "libtsmalloc-count.so"


@dataclass(frozen=True)
class Proof:
    """What one counted run of a command showed."""

    allocator: Allocator
    measurement: Measurement
    processes: tuple[ProcessCounts, ...]

    @property
    def calls(self) -> int:
        """All calls that asked for memory or gave it back, in all processes."""
        return sum(counts.calls for counts in self.processes)

    @property
    def processes_served(self) -> int:
        return len({counts.pid for counts in self.processes if counts.calls})

    @property
    def served_by_others(self) -> tuple[Path, ...]:
        """Libraries other than the allocator's that served processes which did call."""
        if self.allocator.path is None:
            return ()
        meant = self.allocator.path.resolve()
        served = {Path(counts.provider or "(unknown)") for counts in self.processes if counts.calls}
        return tuple(sorted(path for path in served if path.resolve() != meant))


def prove(
    command: Sequence[str],
    allocator: Allocator,
    timeout_seconds: float | None,
    stdin: Path | None,
) -> Proof:
    """Runs the command with its output thrown away (and no input but `stdin`); reads the counts."""
    with tempfile.TemporaryDirectory(prefix="tsmalloc-count-") as name:
        request = RunRequest(
            command=tuple(command),
            allocator=allocator,
            env={"TSMALLOC_COUNT_DIR": name},
            stdin=stdin,
            stdout=Path("/dev/null"),
            stderr=Path("/dev/null"),
            timeout_seconds=timeout_seconds,
            cwd=None,
            preload_first=(paths.preloadable(paths.library(COUNTING_LIBRARY)),),
            sample_ms=0,
        )
        measurement = MeasureExecutor().run(request)
        return Proof(allocator, measurement, tuple(read_counts(Path(name))))
