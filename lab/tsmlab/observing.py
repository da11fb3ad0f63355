"""Runs a command under tools that explain: its system calls, and the books on its blocks.

Why: a time says which allocator is better, and not why. How often threads slept in a futex, how
often memory came from the kernel, how many blocks other threads freed and how much was handed out
again does.
Refuses to: measure. Watching slows a program down, so nothing here is a time to compare.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tsmlab import measuring, paths, records
from tsmlab.errors import UserError

LEDGER_LIBRARY = "libtsmalloc-ledger.so"
LEDGER_VARIABLE = "TSMALLOC_LEDGER"

# --- system calls ---------------------------------------------------------------------------------

SYSCALLS_SCHEMA = "tsmalloc-syscalls/1"
_REFUSED = 126
TRACING_REFUSED = UserError(
    "system calls cannot be counted here: the system does not let a program trace its own child.",
    "In a container, start it with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined; on a "
    "host, set kernel.yama.ptrace_scope to 0 or 1 (sysctl).",
)


@dataclass(frozen=True)
class SyscallCounts(measuring.Ended):
    """The answer of `syscalls` (lab/native/README.md), and how the program ended."""

    raw: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> SyscallCounts:
        """The answer as `syscalls` wrote it."""
        measuring.require_schema(raw, "syscalls", SYSCALLS_SCHEMA)
        return SyscallCounts(**vars(records.restore(measuring.Ended, raw)), raw=raw)

    def counts(self) -> dict[str, float]:
        """By names like `futex_calls`: of futex also `errors` and `wait_ns`, of the others the
        figures in bytes."""
        flat: dict[str, float] = {}
        for name, counts in self.raw["calls"].items():
            for figure, number in counts.items():
                if figure != "errors" or name == "futex":
                    flat[f"{name}_{figure}"] = float(number)
        return flat


def count_syscalls(request: measuring.RunRequest, tool: Path | None = None) -> SyscallCounts:
    """Runs the command once under `syscalls`. A program that fails is an answer, not an error;
    UserError where nothing may be traced."""
    native = measuring.NativeTool(tool or paths.tool("syscalls"), {_REFUSED: TRACING_REFUSED})
    return SyscallCounts.from_json(native.run(measuring.launch_arguments(request)))


# --- the ledger -----------------------------------------------------------------------------------

# The layout is drawn in lab/native/ledger/record.h.
_HEAD = struct.Struct("=8s2i10Q32s1984s1984s")
_TOTALS = (
    *("threads", "live_bytes", "live_blocks", "peak_live_bytes", "peak_live_blocks", "peak_ns"),
    *("untracked_blocks", "missed_frees", "points", "inherited_bytes"),
)
_SUMS = struct.Struct("=8Q")
_POINT = struct.Struct("=2Q")
_OF_THREADS = ("allocations", "frees", "requested_bytes", "foreign_frees", "reused_bytes")
_THREAD_PLACES = 256
_MOST_POINTS = 1000
_CURVE_AT = _HEAD.size + _THREAD_PLACES * _SUMS.size
_SIZE = _CURVE_AT + _MOST_POINTS * _POINT.size
_MAGIC = b"TSLEDGR1"


@dataclass(frozen=True)
class LedgerSums:
    """The allocations and frees of one thread. number: in the order in which the threads began; 0
    is all threads beyond the 255th together.

    resizes: reallocations in place; a block that moves is freed and allocated. foreign_frees: of
    blocks that another thread had allocated. reused_bytes: of its allocations, those at addresses
    that had been handed out before.
    """

    number: int
    allocations: int
    frees: int
    resizes: int
    requested_bytes: int
    freed_bytes: int
    foreign_frees: int
    reused_bytes: int


@dataclass(frozen=True)
class ProcessLedger:
    """The books of one program image in one process; a process that execs has several of these.

    live: seconds since it began and bytes in use, in order, the peak among them. A forked child
    begins with what its parent had in use, its inherited_bytes, and may free some.
    untracked_blocks: that the ledger had no memory for. missed_frees: blocks that went by a
    function that the shim does not stand before.
    """

    pid: int
    parent_pid: int
    number: int
    program: str
    provider: str
    thread_count: int
    live_bytes: int
    live_blocks: int
    peak_live_bytes: int
    peak_live_blocks: int
    inherited_bytes: int
    untracked_blocks: int
    missed_frees: int
    threads: tuple[LedgerSums, ...]
    live: tuple[tuple[float, int], ...]

    @property
    def sums(self) -> LedgerSums:
        """Of all its threads together; their number is 0."""
        return _added(self.threads)


@dataclass(frozen=True)
class Ledger:
    """The books of a whole run. `measurement` is how it ended, and its memory; no time in it is
    worth comparing."""

    measurement: measuring.Measurement
    processes: tuple[ProcessLedger, ...]

    @property
    def largest(self) -> ProcessLedger:
        """The process that added most to what it had in use when it began: not the child that a
        server forks to write its memory down."""
        return max(self.processes, key=lambda each: each.peak_live_bytes - each.inherited_bytes)

    def counts(self) -> dict[str, float]:
        """By name, over all processes; the peaks are the highest of any one process."""
        sums = _added([each.sums for each in self.processes])
        highest = {
            name: float(max(getattr(each, name) for each in self.processes))
            for name in ("peak_live_bytes", "peak_live_blocks")
        }
        return {n: float(getattr(sums, n)) for n in (*_OF_THREADS, "resizes")} | highest

    def threads(self) -> list[dict[str, float]]:
        """The same names for each thread of the largest process, in the order they began."""
        return [
            {name: float(getattr(sums, name)) for name in _OF_THREADS}
            for sums in self.largest.threads
            if sums.number
        ]


def keep_ledger(request: measuring.RunRequest) -> Ledger:
    """Runs the command once with the ledger before its allocator. UserError if nothing was
    recorded, though the program ran."""
    with tempfile.TemporaryDirectory(prefix="tsmalloc-ledger-") as name:
        shim = paths.preloadable(paths.library(LEDGER_LIBRARY))
        watched = replace(
            request,
            # A thread of the allocator is none of the program's, unless the user wants it.
            env={
                "TSMALLOC_BACKGROUND": os.environ.get("TSMALLOC_BACKGROUND", "off"),
                **request.env,
                LEDGER_VARIABLE: name,
            },
            preload_first=(shim, *request.preload_first),
        )
        measurement = measuring.MeasureExecutor().run(watched)
        processes = tuple(read_ledgers(Path(name)))
    if not processes and not measurement.spawn_error:
        raise UserError(
            f"{request.command[0]} left no ledger: nothing can be preloaded into it.",
            f"tsmalloc doctor {request.command[0]} says why.",
        )
    return Ledger(measurement, processes)


def read_ledgers(directory: Path) -> list[ProcessLedger]:
    """The books that the shim left in a directory, by process and then in order."""
    files = measuring.process_files(directory, "ledger", _MAGIC, _SIZE)
    return [_decode_ledger(number, content) for number, content in files]


def _decode_ledger(number: int, content: bytes) -> ProcessLedger:
    _, pid, parent_pid, *numbers, _, executable, provider = _HEAD.unpack_from(content)
    totals = dict(zip(_TOTALS, numbers, strict=True))
    threads, points, peak_ns = (totals.pop(name) for name in ("threads", "points", "peak_ns"))
    sums = [
        LedgerSums(*_SUMS.unpack_from(content, _HEAD.size + place * _SUMS.size))
        for place in range(min(threads, _THREAD_PLACES))
    ]
    curve = [
        _POINT.unpack_from(content, _CURVE_AT + index * _POINT.size)
        for index in range(min(points, _MOST_POINTS))
    ]
    peak = (peak_ns, totals["peak_live_bytes"])
    return ProcessLedger(
        pid=pid,
        parent_pid=parent_pid,
        number=number,
        program=measuring.text_in_record(executable),
        provider=measuring.text_in_record(provider),
        thread_count=threads,
        threads=tuple(sums),
        live=tuple((time_ns / 1e9, size) for time_ns, size in sorted({*curve, peak})),
        **totals,
    )


def _added(parts: Sequence[LedgerSums]) -> LedgerSums:
    names = [each.name for each in fields(LedgerSums) if each.name != "number"]
    return LedgerSums(0, **{name: sum(getattr(part, name) for part in parts) for name in names})
