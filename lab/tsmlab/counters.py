"""The internal counts of our own allocators: reads the reports of the libraries in lib/counted."""

from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab import paths, records
from tsmlab.allocators import Allocator, own_library
from tsmlab.errors import UserError
from tsmlab.measuring import Executor, MeasureExecutor, RunRequest

SCHEMA = "tsmalloc-counters/1"
# The variable that names the folder for the reports.
VARIABLE = "TSMALLOC_COUNTERS"


@dataclass(frozen=True)
class _Report:
    schema: str
    pid: int
    allocator: str
    totals: dict[str, float]


def has_counted(allocator: Allocator) -> Path | None:
    """The instrumented build of one of our allocators, for LD_PRELOAD; None if there is none."""
    if allocator.family != "tsmalloc":
        return None
    library = paths.library_dir() / "counted" / own_library(allocator.name)
    return paths.preloadable(library) if library.is_file() else None


def read(folder: Path) -> dict[str, float]:
    """The counts by name, summed over all processes that reported into a folder. Raises UserError
    if a file is damaged or there is none."""
    files = sorted(folder.glob("*.counters.json"))
    if not files:
        raise UserError(
            f"no process wrote its counts to {folder}.",
            "A process that is killed, or that runs without the library, writes nothing.",
        )
    counts: dict[str, float] = {}
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        remedy = paths.remedy()
        report = records.from_json(_Report, SCHEMA, text, str(path), remedy, has_checksum=False)
        counts |= {name: counts.get(name, 0.0) + n for name, n in report.totals.items()}
    return counts


def counted_run(
    request: RunRequest, folder: Path, executor: Executor | None = None
) -> dict[str, float]:
    """Runs the program under the instrumented build of its allocator; `folder` takes the
    reports."""
    library = has_counted(request.allocator)
    if library is None:
        raise UserError(f"{request.allocator.name} has no instrumented build.", paths.remedy())
    counted = replace(
        request,
        allocator=replace(request.allocator, path=library),
        env={**request.env, VARIABLE: str(folder.absolute())},
    )
    measurement = (executor or MeasureExecutor()).run(counted)
    if measurement.failed:
        raise UserError(
            f"nothing was counted inside {request.allocator.name}: the program failed under its "
            f"instrumented build ({measurement.failure_text()}).",
            f"To reproduce: LD_PRELOAD={library}",
        )
    return read(folder)
