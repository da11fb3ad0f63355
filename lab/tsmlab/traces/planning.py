"""Plans: compiles a trace into the plan that bin/replay executes, once for all allocators.

Why: a plan is some times larger than its trace and good for one run of the lab, so it lies in a
temporary folder and goes with it.
"""

import atexit
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tsmlab import paths
from tsmlab.errors import UserError

SUFFIX = ".tstrace"

# From a trace to a file, with options of `trace plan`; what that said of the plan.
Compile = Callable[[Path, Path, Sequence[str]], dict[str, Any]]


@dataclass(frozen=True)
class Program:
    """One program image of a trace. number: what --image calls it."""

    number: int
    name: str
    events: int


@dataclass(frozen=True)
class Recipe:
    """How a plan is made, for another machine."""

    trace: Path
    plan: Path
    options: tuple[str, ...]

    def follow(self) -> None:
        """Makes the plan where there is none, in a folder that goes when this process ends."""
        if self.plan.exists():
            return
        folder = self.plan.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = self.plan.with_suffix(f".{os.getpid()}")
        compile_plan(self.trace, own, self.options)
        own.replace(self.plan)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


@dataclass(frozen=True)
class Plan:
    """A trace's plan. name: the trace's. program: the image that it begins with. left_out: images
    of the trace that are not in the plan, those with most events first. is_damaged: events of it
    are lost."""

    name: str
    trace: Path
    path: Path
    program: Program
    left_out: tuple[Program, ...]
    is_damaged: bool

    def recipe(self, options: Sequence[str]) -> Recipe:
        return Recipe(self.trace.absolute(), self.path, tuple(options))


def damage(left_out: int, is_damaged: bool) -> str | None:
    """A warning about a plan that lacks something; None if it lacks nothing."""
    if is_damaged:
        return "DAMAGED: events of the trace are lost (tsmalloc analyze tells), and are left out."
    if left_out:
        return f"{left_out:,} events are left out, on objects that the trace does not begin with."
    return None


def programs(found: Sequence[Program], most: int = 3) -> str:
    """ "perl (image 1, 20,400 events), sh (image 0, 264 events) and 2 more"."""
    told = [f"{p.name or '?'} (image {p.number}, {p.events:,} events)" for p in found[:most]]
    more = len(found) - len(told)
    return ", ".join(told) + (f" and {more:,} more" if more else "")


def trace_name(trace: Path) -> str:
    return trace.name.removesuffix(SUFFIX) or trace.name


def check_traces(traces: Sequence[Path]) -> None:
    """Raises UserError for the first that is no file, before anything takes time."""
    for trace in traces:
        if trace.is_dir():
            raise UserError(f"{trace} is a folder.", f"Name the traces in it: {trace}/*{SUFFIX}")
        if trace.exists() and not trace.is_file():
            raise UserError(f"{trace} is no regular file.", "Copy the trace into one.")
        if not trace.is_file():
            raise UserError(
                f"there is no trace {trace}.",
                "Record one: tsmalloc record -o my.tstrace -- PROGRAM. Some are in lab/traces/.",
            )


def run_trace(words: Sequence[str | Path]) -> str:
    """The output of bin/trace; raises UserError with what it says when it fails."""
    done = subprocess.run(
        [paths.tool("trace"), *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    # 1 with an answer: the trace is damaged, and what can be read is in it.
    if done.returncode == 0 or (done.returncode == 1 and done.stdout):
        return done.stdout.decode(errors="surrogateescape")
    said = done.stderr.decode(errors="replace").strip()
    said = said or f"trace {words[0]} failed (exit {done.returncode})"
    first, _, rest = said.partition("\n")
    raise UserError(first.removeprefix("trace: "), rest.strip())


def compile_plan(trace: Path, plan: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    """`trace plan`; its complaint becomes ours."""
    said = run_trace(["plan", trace, "-o", plan, *options])
    summary: dict[str, Any] = json.loads(said)
    return summary


def plan_of(
    trace: Path, folder: Path, options: Sequence[str] = (), compiler: Compile = compile_plan
) -> Plan:
    """Compiles the trace into a file of its own in the folder."""
    number = sum(1 for _ in folder.glob("*.plan"))
    name = trace_name(trace)
    path = folder / f"{number}-{name}.plan"
    summary = compiler(trace, path, options)
    first = summary["images"][0]
    if not any(image["events"] for image in summary["images"]):
        lost = summary["gaps"]
        raise UserError(
            f"{trace} has no event{' that is not lost' if lost else ''}.",
            "Record it again." if lost else "Record a program that allocates.",
        )
    left_out = [Program(i["image"], i["program"], i["events"]) for i in summary["not_planned"]]
    return Plan(
        name,
        trace,
        path,
        Program(first["image"], summary["program"], first["events"]),
        tuple(sorted(left_out, key=lambda program: -program.events)),
        bool(summary["gaps"]),
    )


def plans(
    traces: Sequence[Path], folder: Path, options: Sequence[str], compiler: Compile
) -> Iterator[Plan]:
    """One after the other; where several traces have a name, each is named by its path."""
    names = [trace_name(trace) for trace in traces]
    for trace in traces:
        plan = plan_of(trace, folder, options, compiler)
        yield plan if names.count(plan.name) == 1 else replace(plan, name=str(trace))
