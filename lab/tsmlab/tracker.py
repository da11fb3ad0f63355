"""Runs a command under the tracker, and reads its counts of malloc calls and blocks.

Times say which allocator is better, but not why. The number of blocks freed by other threads, and
the amount of reused memory, do. The tracker slows a program down, so times here are not comparable.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.measuring import MeasureExecutor, Measurement, RunRequest

LIBRARY = "libtsmalloc-tracker.so"
VARIABLE = "TSMALLOC_TRACKER"
VARIABLE_OF_CALLS = "TSMALLOC_TRACKER_CALLS"

# lab/native/tracker/tracker.cpp shows the layout: after the process, its parent and the names, the
# numbers of a Tracked in its order.
_KINDS = ("malloc", "calloc", "realloc", "free", "aligned", "operator_new", "operator_delete")
_HEAD = struct.Struct("=8s2i17Q1976s976s992s")
_THREAD = struct.Struct("=8Q")
_SIZE = _HEAD.size + 256 * _THREAD.size
_MAGIC = b"TSTRACK1"
# For threads: names in the results.
_OF_THREADS = ("allocations", "frees", "requested_bytes", "foreign_frees", "reused_bytes")


@dataclass(frozen=True)
class Sums:
    """The allocations and frees of one thread or of several together.

    resizes: reallocations in place; a block that moves is freed and allocated. foreign_frees: of
    blocks that another thread had allocated. reused_bytes: of allocations at addresses that had
    been returned before. usable_bytes: of its allocations, from malloc_usable_size.
    """

    allocations: int = 0
    frees: int = 0
    resizes: int = 0
    requested_bytes: int = 0
    freed_bytes: int = 0
    foreign_frees: int = 0
    reused_bytes: int = 0
    usable_bytes: int = 0

    @staticmethod
    def of(parts: Sequence[Sums]) -> Sums:
        return Sums(*map(sum, zip(*map(astuple, parts), strict=True)))


@dataclass(frozen=True)
class Tracked:
    """One program image in one process; a process that execs has several of these.

    Each call counts once, under the function that the program called; `aligned` is memalign and its
    kin. `provider` is the library that provided malloc, as the loader names it. `deep_bound` is the
    first library that was loaded with RTLD_DEEPBIND, or empty.

    threads: in the order in which they first allocated or freed; the last one sums up all beyond
    the 255th. A forked child begins with its parent's live bytes, its inherited_bytes.
    untracked_blocks: blocks that the tracker had no memory for. missed_frees: blocks freed by a
    function that it does not intercept.
    """

    pid: int
    parent_pid: int
    number: int
    program: str
    provider: str
    deep_bound: str
    malloc: int
    calloc: int
    realloc: int
    free: int
    aligned: int
    operator_new: int
    operator_delete: int
    bytes_requested: int
    deep_bindings: int
    knows_usable: int  # whether the allocator tells the usable size of a block
    live_bytes: int
    live_blocks: int
    peak_live_bytes: int
    peak_live_blocks: int
    inherited_bytes: int
    untracked_blocks: int
    missed_frees: int
    threads: tuple[Sums, ...]

    @property
    def by_kind(self) -> tuple[tuple[str, int], ...]:
        return tuple((kind, getattr(self, kind)) for kind in _KINDS)

    @property
    def calls(self) -> int:
        return sum(number for _, number in self.by_kind)

    @property
    def sums(self) -> Sums:
        return Sums.of([Sums(), *self.threads])


@dataclass(frozen=True)
class Run:
    """A whole run. `measurement` has how it ended, and its memory; its times are not comparable."""

    measurement: Measurement
    processes: tuple[Tracked, ...]

    def counts(self) -> dict[str, float]:
        """Counts by name, over all processes; peaks are the highest of any one process. Includes
        usable sizes if the allocators report them."""
        names = [*_OF_THREADS, "resizes"]
        if all(each.knows_usable for each in self.processes):
            names.append("usable_bytes")
        sums = Sums.of([each.sums for each in self.processes])
        return {name: float(getattr(sums, name)) for name in names} | {
            name: float(max(getattr(each, name) for each in self.processes))
            for name in ("peak_live_bytes", "peak_live_blocks")
        }


def track(request: RunRequest, variable: str = VARIABLE) -> Run:
    """Runs the command once with the tracker before its allocator. No processes: nothing could be
    preloaded. If it only counts calls, it uses no memory for blocks."""
    with tempfile.TemporaryDirectory(prefix="tsmalloc-tracker-") as name:
        tracked = replace(
            request,
            env={**request.env, variable: name},
            preload_first=(paths.preloadable(paths.library(LIBRARY)), *request.preload_first),
        )
        return Run(MeasureExecutor().run(tracked), tuple(read(Path(name))))


def explain(request: RunRequest) -> Run:
    """The same, for its counts; raises UserError if the program ran but there are none."""
    # A background thread of the allocator is not part of the program: off, unless the user wants
    # it.
    background = {"TSMALLOC_BACKGROUND": os.environ.get("TSMALLOC_BACKGROUND", "off")}
    run = track(replace(request, env={**background, **request.env}))
    if not run.processes and not run.measurement.spawn_error:
        raise UserError(
            f"cannot track {request.command[0]}: nothing can be preloaded into it.",
            f"For the reason: tsmalloc doctor {request.command[0]}",
        )
    return run


def read(directory: Path) -> list[Tracked]:
    """The tracker's output in a directory, by process and then in order; a process comes before
    those that it forked."""
    found: dict[int, list[Tracked]] = {}
    for _, each in sorted(((each.pid, each.number), each) for each in _read(directory)):
        found.setdefault(each.pid, []).append(each)
    ordered: list[Tracked] = []
    while found:
        # Process IDs wrap around, and reused ones may form a cycle.
        ready = [pid for pid, own in found.items() if own[0].parent_pid not in found]
        ordered += [each for pid in ready or list(found) for each in found.pop(pid)]
    return ordered


def _read(directory: Path) -> Iterator[Tracked]:
    for path in directory.glob("*.tracker"):
        content = path.read_bytes()
        if not content:  # its process was killed between creating and filling it
            continue
        name = re.fullmatch(r"(\d+)-(\d+)", path.stem)
        if len(content) != _SIZE or not content.startswith(_MAGIC) or not name:
            raise UserError(
                f"{path} was not written by the tracker.",
                f"Give an empty directory. {paths.remedy()}",
            )
        yield _decoded(int(name[1]), int(name[2]), content)


def _decoded(pid: int, number: int, content: bytes) -> Tracked:
    _, _, parent_pid, *fields = _HEAD.unpack_from(content)
    threads = (Sums(*each) for each in _THREAD.iter_unpack(content[_HEAD.size :]))
    used = tuple(each for each in threads if each != Sums())
    in_order: list[Any] = [*map(_text, fields[-3:]), *fields[:-3], used]
    return Tracked(pid, parent_pid, number, *in_order)


def _text(field: bytes) -> str:
    """A name in a field of fixed length, up to its first NUL."""
    return os.fsdecode(field.split(b"\0", 1)[0])
