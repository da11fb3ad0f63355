"""System calls, as strace counts them.

strace may be missing, or not be allowed to trace (in a container). Then a note says so, and
everything else is counted.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab.errors import UserError
from tsmlab.measuring import Executor, MeasureExecutor, Measurement, RunRequest
from tsmlab.system_libraries import run_tool

WATCHED = ("futex", "mmap", "munmap", "mremap", "brk", "madvise", "sched_yield")
_ALL = ("strace", "-f", "-qq", "-c")
# Uses a seccomp filter, so that all other calls run at full speed. -w: wall time within a call.
_SELECTED = (*_ALL, "-w", "--seccomp-bpf")


@dataclass(frozen=True)
class Calls:
    """How often a system call was made and failed, and how long threads were in it."""

    calls: int = 0
    errors: int = 0
    seconds: float = 0.0


def refusal() -> str | None:
    """Why system calls cannot be counted here, and what to do; None if they can."""
    if shutil.which("strace") is None:
        return "system calls are not counted: strace is not installed (sudo apt install strace)"
    done = run_tool([*_SELECTED, "-o", "/dev/null", "true"])
    if done.returncode == 0:
        return None
    message = done.stderr.strip().partition("\n")[0] or f"strace: exit {done.returncode}"
    return (
        f"system calls are not counted: {message}: in a container, start it with "
        "--cap-add=SYS_PTRACE; on a host, set kernel.yama.ptrace_scope to 0 or 1"
    )


def run(
    request: RunRequest, executor: Executor, table: Path, names: tuple[str, ...] = ()
) -> Measurement:
    """Runs under strace, which writes a table of these calls, or of all."""
    chosen = (*_SELECTED, "-e", f"trace={','.join(names)}") if names else _ALL
    command = (*chosen, "-o", str(table), *request.command)
    return executor.run(replace(request, command=command))


def count(request: RunRequest, folder: Path) -> tuple[Measurement, dict[str, float]]:
    """How a run ended, and how often it made the system calls with which an allocator waits and
    gets memory; raises UserError if they cannot be counted."""
    if missing := refusal():
        raise UserError(f"{missing}.")
    table = folder / "calls"
    ended = run(request, MeasureExecutor(), table, WATCHED)
    if ended.failed:
        return ended, {}
    found = dict.fromkeys(WATCHED, Calls()) | read(table)
    counts = {f"{name}_calls": float(found[name].calls) for name in WATCHED}
    counts["futex_errors"] = float(found["futex"].errors)
    counts["futex_wait_ns"] = 1e9 * found["futex"].seconds
    return ended, counts


def read(table: Path) -> dict[str, Calls]:
    """The counts by system call; "total" is all of them.

    Columns: share, seconds, microseconds a call, calls, errors if there were any, name.
    """
    found = {}
    for line in table.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) in (5, 6) and words[3].isdigit():
            errors = int(words[4]) if len(words) == 6 else 0
            found[words[-1]] = Calls(int(words[3]), errors, float(words[1]))
    if "total" not in found:
        raise UserError("strace wrote no summary.", "Is the disk full?")
    return found
