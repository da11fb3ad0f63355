"""The corpus as workloads of `tsmalloc bench --traces`: each trace of a folder, replayed.

The suite's own workloads stress one thing each; a trace has the mixture of a real program, and
takes seconds. Each trace describes itself.
"""

from pathlib import Path

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.text import slug
from tsmlab.traces.files import SUFFIX, read_whole_trace, trace_name
from tsmlab.workloads import Workload

PREFIX = "trace-"
# Samples memory often enough to find the peak, and writes to objects as programs do: otherwise only
# headers would be resident.
OPTIONS = ("--touch", "page", "--samples", "100")


def corpus() -> Path:
    return paths.data_dir() / "traces"


def trace_workloads(folder: Path, replay: Path) -> list[Workload]:
    """A workload for each trace in the folder, by name. replay: the tool's path."""
    found = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not found:
        raise UserError(
            f"no traces in {folder}.",
            f"Record one: tsmalloc record -o {folder}/mine{SUFFIX} -- PROGRAM",
        )
    return [_workload(path, replay) for path in found]


def _workload(path: Path, replay: Path) -> Workload:
    try:
        first = read_whole_trace(path).chosen(None)
    except UserError as error:
        remedy = f"Remove it from {path.parent}, or record it again."
        raise UserError(error.message, remedy) from error
    return Workload(
        name=f"{PREFIX}{slug(trace_name(path), 'trace')}",
        stresses=f"{first.events:,} recorded calls of {first.program or 'a program'}",
        command=(str(replay), *OPTIONS, str(path)),
        threads=max(1, first.threads),
        time="wall",
        memory=True,
    )
