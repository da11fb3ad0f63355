"""Plans: compiles a trace into what bin/replay executes, once for all allocators.

Why: a plan is some times larger than its trace and good for one run of the lab, so it lies in a
temporary folder and goes with it.
Refuses to: read a trace. bin/trace does, and its complaints are passed on.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsmlab import paths
from tsmlab.errors import UserError

SUFFIX = ".tstrace"

Compile = Callable[[Path, Path, Sequence[str]], None]


@dataclass(frozen=True)
class Plan:
    """A trace's plan, and what the trace is called: its file's name without its suffix."""

    trace: Path
    path: Path

    @property
    def name(self) -> str:
        return trace_name(self.trace)


def trace_name(trace: Path) -> str:
    return trace.name.removesuffix(SUFFIX) or trace.name


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_traces(traces: Sequence[Path]) -> None:
    """Raises UserError for the first that is no file, before anything takes time."""
    for trace in traces:
        if trace.is_dir():
            raise UserError(f"{trace} is a folder.", f"Name the traces in it: {trace}/*{SUFFIX}")
        if not trace.is_file():
            raise UserError(
                f"there is no trace {trace}.",
                "Record one: tsmalloc record -o my.tstrace -- PROGRAM. Some are in traces/.",
            )


def run_trace(words: Sequence[str | Path], remedy: str = "") -> str:
    """What bin/trace prints; raises UserError with what it says when it fails, or with `remedy`
    where that has no second line."""
    done = subprocess.run(
        [paths.tool("trace"), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    # 1 with an answer: the trace is damaged, and what can be read is in it.
    if done.returncode == 0 or (done.returncode == 1 and done.stdout):
        return done.stdout.decode(errors="surrogateescape")
    said = done.stderr.decode(errors="replace").strip()
    said = said or f"trace {words[0]} failed (exit {done.returncode})"
    first, _, rest = said.partition("\n")
    raise UserError(first.removeprefix("trace: "), rest.strip() or remedy)


def compile_plan(trace: Path, plan: Path, options: Sequence[str] = ()) -> None:
    """`trace plan`; its complaint becomes ours."""
    run_trace(["plan", trace, "-o", plan, *options], "It must be a whole trace.")


def plan_of(
    trace: Path, folder: Path, options: Sequence[str] = (), compiler: Compile = compile_plan
) -> Plan:
    """Compiles the trace into a file of its own in the folder."""
    number = sum(1 for _ in folder.glob("*.plan"))
    path = folder / f"{number}-{trace_name(trace)}.plan"
    compiler(trace, path, options)
    return Plan(trace, path)
