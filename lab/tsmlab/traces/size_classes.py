"""The size classes of allocators, as bin/usable finds them.

What an allocator rounds requests to predicts its internal waste on a trace without running anything
under it. An allocator that does not tell a block's usable size has none here.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tsmlab import paths
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.measuring import read_answer

SCHEMA = "tsmalloc-usable/1"
TIMEOUT_SECONDS = 60.0
# No allocator has classes a byte apart for longer than this.
MOST_BYTE_STEPS = 64
# An allocator that tells requested sizes already of blocks this small tells nothing.
LITERAL_FROM = 1024

Run = tuple[int, int, int, int]
Ask = Callable[[Allocator], dict[str, Any]]


@dataclass(frozen=True)
class SizeClasses:
    """Runs of classes: first, step, count, slack (their meaning: lab/native/usable/usable.cpp)."""

    allocator: str
    runs: tuple[Run, ...]

    def usable(self, size: int) -> int:
        """The bytes of the block for a request; beyond the last class, its run goes on."""
        holding = (run for run in self.runs if size <= run[0] + (run[2] - 1) * run[1])
        first, step, _, slack = next(holding, self.runs[-1])
        steps = max(0, -(-(size - first) // step))
        return first + steps * step + slack


def ask(allocator: Allocator) -> dict[str, Any]:
    """bin/usable's answer under the allocator."""
    environment = dict(os.environ) | dict(allocator.env)
    if allocator.path is not None:
        environment["LD_PRELOAD"] = str(allocator.path)
    try:
        done = subprocess.run(
            [paths.tool("usable")],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"usable did not end under {allocator.name}.", "Choose others with -a."
        ) from error
    if done.returncode != 0:
        raise UserError(
            f"usable fails under {allocator.name} (exit {done.returncode}): {done.stderr.strip()}",
            "Choose others with -a.",
        )
    return read_answer(done.stdout, "usable", SCHEMA)


def classes_of(
    allocators: Sequence[Allocator], note: Callable[[str], None], question: Ask = ask
) -> list[SizeClasses]:
    """The classes of each that tells them; a note for each that does not, or that fails."""
    found = []
    for allocator in allocators:
        try:
            answer = question(allocator)
        except UserError as error:
            note(f"no size classes: {error.message}")
            continue
        if answer["runs"] is None:
            note(f"{allocator.name} does not tell its blocks' usable sizes")
            continue
        runs = tuple((int(a), int(b), int(c), int(d)) for a, b, c, d in answer["runs"])
        literal = [run[0] for run in runs if run[1] == 1 and run[2] > MOST_BYTE_STEPS]
        if literal and literal[0] <= LITERAL_FROM:
            note(f"{allocator.name} tells the requested sizes of its blocks, not the usable ones")
            continue
        if literal:
            note(
                f"{allocator.name} tells the requested sizes of blocks above {literal[0]:,} bytes: "
                "for them no waste is predicted"
            )
        found.append(SizeClasses(allocator.name, runs))
    return found
