"""A movie from a trace: one replay under each allocator, one after the other."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.measuring import Executor, RunRequest
from tsmlab.movie import data
from tsmlab.movie.page import page
from tsmlab.traces.files import Trace, trace_name

FRAMES = 240


def make(
    trace: Trace,
    command: Sequence[str],
    allocators: Sequence[Allocator],
    executor: Executor,
    note: Callable[[str], None],
    timeout_seconds: float | None = None,
) -> tuple[str, list[str]]:
    """The page, and text about what it lacks. `command` is the command line of replay, with the
    trace last. Raises UserError if all allocators failed."""
    heaps, curves, notes = [], [], []
    common: data.Blocks | None = None
    line: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="tsmalloc-movie-") as folder:
        for allocator in allocators:
            note(f"replay     {allocator.name}")
            try:
                samples_line = _replay(command, allocator, executor, Path(folder), timeout_seconds)
                blocks, address = data.read_blocks(Path(folder) / "log")
                if common is not None and not common.equals(blocks):
                    raise data.UnsuitableLog("its calls differ: it ran out of memory")
            except data.UnsuitableLog as error:
                notes.append(f"{allocator.name} is left out: {error}")
                continue
            if common is None:
                common, line = blocks, samples_line
            frames = data.read_frames(Path(folder) / "log.frames", blocks.entries)
            heaps.append(data.heap(allocator.name, address, blocks.size, frames))
            curves.append(data.curves(blocks, heaps[-1]))
    if common is None:
        raise UserError(
            "no movie: every allocator failed. " + "; ".join(notes) + ".",
            "Try one on its own: tsmalloc replay TRACE -a NAME",
        )
    if not len(common.born):
        raise UserError(
            f"{trace.path} contains no allocations.", "Record a program that allocates."
        )
    planned = line["planned"]
    assert isinstance(planned, dict)
    facts = {
        "program": str(line["program"]),
        "trace": trace_name(trace.path),
        "schedule": line["schedule"],
        "end": common.entries + common.left_out - planned["live_objects"],
    }
    return page(common, heaps, curves, facts, notes)


def _replay(
    command: Sequence[str],
    allocator: Allocator,
    executor: Executor,
    folder: Path,
    timeout_seconds: float | None,
) -> dict[str, object]:
    """The output of replay; it leaves the files log and log.frames in the folder."""
    words = [*command[:-1], "--samples", "1"]  # frames have the details
    words += ["--addresses", str(folder / "log"), "--frames", str(FRAMES)]
    done = executor.run(
        RunRequest(
            command=(*words, command[-1]),
            allocator=allocator,
            env=allocator.env,
            stdout=folder / "stdout",
            stderr=folder / "stderr",
            timeout_seconds=timeout_seconds,
        )
    )
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failed:
        stderr_lines = (folder / "stderr").read_text(errors="replace").strip().splitlines()
        raise data.UnsuitableLog(
            ": ".join([f"replay failed, {done.failure_text()}", *stderr_lines[-1:]])
        )
    found: dict[str, object] = json.loads((folder / "stdout").read_text(errors="replace"))
    return found
