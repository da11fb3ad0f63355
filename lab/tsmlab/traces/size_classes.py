"""What allocators round requests to, as bin/usable tells it.

That predicts an allocator's internal waste on a trace without running anything under it. An
allocator that does not tell a block's usable size is left out.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tsmlab import paths
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.traces.distributions import Ints

TIMEOUT_SECONDS = 60.0
UNKNOWN = 2  # usable's exit status
# No allocator has classes a byte apart for this many sizes above one of these.
BYTE_STEPS = 64
LOOKED_AT = (1 << 10, 1 << 16, 1 << 20)

Ask = Callable[[Allocator, Ints], Ints]


@dataclass(frozen=True)
class SizeClasses:
    """blocks: the usable bytes of the blocks for these requests."""

    allocator: str
    blocks: Callable[[Ints], Ints]


def ask(allocator: Allocator, sizes: Ints) -> Ints:
    """bin/usable's answers under the allocator."""
    environment = dict(os.environ) | dict(allocator.env)
    if allocator.path is not None:
        environment["LD_PRELOAD"] = str(allocator.path)
    try:
        done = subprocess.run(
            [paths.tool("usable")],
            env=environment,
            input=sizes.astype("<u8").tobytes(),
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"usable did not end under {allocator.name}.", "Choose others with -a."
        ) from error
    if done.returncode == UNKNOWN:
        raise UserError(f"{allocator.name} does not tell its blocks' usable sizes.")
    if done.returncode != 0 or len(done.stdout) != 8 * len(sizes):
        said = done.stderr.decode(errors="replace").strip()
        raise UserError(
            f"usable fails under {allocator.name} (exit {done.returncode}): {said}",
            "Choose others with -a.",
        )
    return np.frombuffer(done.stdout, "<u8").astype(np.int64)


def classes_of(
    allocators: Sequence[Allocator], note: Callable[[str], None], question: Ask = ask
) -> list[SizeClasses]:
    """The classes of each that tells them; a note for each that does not, or that fails."""
    sizes = np.add.outer(np.array(LOOKED_AT), np.arange(1, BYTE_STEPS + 1))
    found = []
    for allocator in allocators:
        try:
            blocks = question(allocator, sizes.ravel()).reshape(sizes.shape)
        except UserError as error:
            note(f"no size classes: {error.message}")
            continue
        literal = [size for size, row in zip(LOOKED_AT, blocks == sizes, strict=True) if row.all()]
        if literal:
            note(
                f"{allocator.name} tells the requested sizes of blocks of {literal[0]:,} bytes, "
                "not the usable ones: for such no waste is predicted"
            )
        if LOOKED_AT[0] not in literal:
            found.append(SizeClasses(allocator.name, partial(question, allocator)))
    return found
