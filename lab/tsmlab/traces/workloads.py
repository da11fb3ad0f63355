"""The corpus as workloads of `tsmalloc bench --traces`: each trace of a folder, replayed.

Why: the suite's own workloads are made to stress one thing each; a trace has the mixture of a real
program, and ends in seconds.
Refuses to: be part of the suite's file. A trace says for itself what it holds.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.text import slug
from tsmlab.traces.planning import (
    SUFFIX,
    Compile,
    Recipe,
    compile_plan,
    plan_of,
    run_trace,
    trace_name,
)
from tsmlab.workloads import Workload

PREFIX = "trace-"
# Memory is looked at often enough for a peak, and objects are written to as programs do: else
# resident memory would be that of headers alone.
OPTIONS = ("--touch", "page", "--samples", "100")


def corpus() -> Path:
    return paths.data_dir() / "traces"


def trace_workloads(folder: Path, replay: Path) -> list[Workload]:
    """A workload for each trace in the folder, by name; its command ends with the trace, and
    `planned` makes it fit to run. replay: the tool."""
    found = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not found:
        raise UserError(
            f"there is no trace in {folder}.",
            f"Record one: tsmalloc record -o {folder}/mine{SUFFIX} -- PROGRAM",
        )
    return [_workload(path, replay, _info(path)) for path in found]


def planned(
    workloads: Sequence[Workload], folder: Path, replay: Path, compiler: Compile = compile_plan
) -> tuple[list[Workload], list[Recipe]]:
    """The workloads with the plan of each trace, compiled into the folder, in the trace's place;
    and how other machines make these plans."""
    found, recipes = [], []
    for each in workloads:
        if each.command[0] == str(replay):
            plan = plan_of(Path(each.command[-1]), folder, (), compiler)
            recipes.append(plan.recipe(()))
            found.append(replace(each, command=(*each.command[:-1], str(plan.path))))
        else:
            found.append(each)
    return found, recipes


def _workload(path: Path, replay: Path, info: dict[str, Any]) -> Workload:
    first = next(each for each in info["images"] if each["number"] == info["busiest"])
    threads = max(1, int(first["threads"]))
    return Workload(
        name=f"{PREFIX}{slug(trace_name(path), 'trace')}",
        stresses=f"{first['events']:,} recorded calls of {first['program'] or 'a program'}",
        command=(str(replay), *OPTIONS, str(path)),
        threads=threads,
        floors=(),
        time="wall",
        memory=True,
    )


def _info(path: Path) -> dict[str, Any]:
    """What `trace info` says; damage is no obstacle as long as there is a program to replay."""
    remedy = f"Remove it from {path.parent}, or record it anew."
    try:
        info: dict[str, Any] = json.loads(run_trace(["info", "--json", path]))
    except UserError as error:
        raise UserError(error.message, remedy) from error
    if info.get("busiest") is None:
        raise UserError(f"{path} holds no program.", remedy)
    return info
