"""What our own allocators counted inside: reads the reports of the libraries in lib/counted."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tsmlab import paths, records
from tsmlab.allocators import Allocator, own_library
from tsmlab.errors import UserError
from tsmlab.measuring import Executor, MeasureExecutor, RunRequest
from tsmlab.records import Record
from tsmlab.system_libraries import natural_order

COUNTERS_SCHEMA = "tsmalloc-counters/1"
MAP_SCHEMA = "tsmalloc-heap-map/1"
# Names the folder for the reports to the program.
VARIABLE = "TSMALLOC_COUNTERS"

_DAMAGED = "The library writes whole files only. Was it edited, or the disk full?"


@dataclass(frozen=True)
class MapBlock:
    """Consecutive blocks of equal state and owner, in the order of addresses: how many, how large
    together. state: used, free, cached, or mixed (a slab of which `used_share` is in use)."""

    count: int
    bytes: int
    state: Literal["used", "free", "cached", "mixed"]
    owner: int
    used_share: float


@dataclass(frozen=True)
class MapChunk:
    """One contiguous piece of the heap."""

    address: int
    bytes: int
    blocks: list[MapBlock]


@dataclass(frozen=True)
class HeapMap:
    """The heap at one moment, which the program names. total_chunks: those left out included."""

    label: str
    chunks: list[MapChunk]
    total_chunks: int


@dataclass(frozen=True)
class Counted:
    """What a counted library wrote: counts by name over all processes, the same for each thread,
    maps of the heap, and what is missing."""

    counts: dict[str, float]
    threads: list[dict[str, float]]
    maps: list[HeapMap]
    notes: list[str]


@dataclass(frozen=True)
class _CountersFile:
    schema: str
    pid: int
    allocator: str
    totals: dict[str, float]
    threads: list[dict[str, float]]


@dataclass(frozen=True)
class _MapFileChunk:
    address: int
    bytes: int
    blocks: list[list[Any]]


@dataclass(frozen=True)
class _MapFile:
    schema: str
    label: str
    chunks: list[_MapFileChunk]
    total_chunks: int
    truncated: bool


def has_counted(allocator: Allocator) -> Path | None:
    """The counted twin of one of our allocators, fit for LD_PRELOAD; None if there is none."""
    if allocator.family != "tsmalloc":
        return None
    library = paths.library_dir() / "counted" / own_library(allocator.name)
    return paths.preloadable(library) if library.is_file() else None


def environment(folder: Path) -> dict[str, str]:
    """What a program that runs under a counted library needs to report into this folder."""
    return {VARIABLE: str(folder.absolute())}


def read(folder: Path) -> Counted:
    """All reports in a folder: the counts are sums over the processes, the threads and the pictures
    are one process's after the other's. Raises UserError where a file is damaged, or none is there.
    """
    reports = [
        _read(_CountersFile, COUNTERS_SCHEMA, path)
        for path in _in_order(folder.glob("*.counters.json"))
    ]
    maps = [_heap_map(path) for path in _in_order(folder.glob("*.map.json"))]
    if not reports and not maps:
        raise UserError(
            f"no process wrote what it counted to {folder}.",
            "A process that is killed, or that runs without the library, writes nothing.",
        )
    counts: dict[str, float] = {}
    for report in reports:
        counts |= {name: counts.get(name, 0.0) + n for name, n in report.totals.items()}
    return Counted(
        counts=counts,
        threads=[thread for report in reports for thread in report.threads],
        maps=[heap_map for heap_map, _ in maps],
        notes=[
            f"The map {heap_map.label!r} is cut off: the heap is in too many pieces."
            for heap_map, truncated in maps
            if truncated
        ],
    )


def counted_run(request: RunRequest, folder: Path, executor: Executor | None = None) -> Counted:
    """Runs the program under the counted twin of its allocator; `folder` takes the reports."""
    library = has_counted(request.allocator)
    if library is None:
        raise UserError(f"{request.allocator.name} has no counted library.", paths.remedy())
    counted = replace(
        request,
        allocator=replace(request.allocator, path=library),
        env={**request.env, **environment(folder)},
    )
    measurement = (executor or MeasureExecutor()).run(counted)
    if measurement.failed:
        raise UserError(
            f"nothing was counted inside {request.allocator.name}: the program failed "
            f"under its counted library ({measurement.failure_text()}).",
            f"Run it by hand: LD_PRELOAD={library}",
        )
    return read(folder)


# --- the files ------------------------------------------------------------------------------------


def _in_order(files: Iterable[Path]) -> list[Path]:
    """By process and then by number: PID-10 comes after PID-9, and PID before PID-1."""
    return sorted(files, key=lambda path: natural_order(Path(path.name.split(".", 1)[0])))


def _text(path: Path) -> str:
    try:
        # A label may hold any byte.
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", _DAMAGED) from error


def _read(kind: type[Record], schema: str, path: Path) -> Record:
    """What a counted library wrote."""
    text = _text(path)
    return records.from_json(kind, schema, text, str(path), paths.remedy(), has_checksum=False)


def _heap_map(path: Path) -> tuple[HeapMap, bool]:
    file = _read(_MapFile, MAP_SCHEMA, path)
    chunks = [
        MapChunk(chunk.address, chunk.bytes, [_block(row, path) for row in chunk.blocks])
        for chunk in file.chunks
    ]
    # The heap lists its chunks in the order in which it got them.
    chunks.sort(key=lambda chunk: chunk.address)
    return HeapMap(file.label, chunks, file.total_chunks), file.truncated


def _block(row: list[Any], path: Path) -> MapBlock:
    """[count, bytes, state, owner, used share]."""
    match row:
        case [
            int(count),
            int(size),
            "used" | "free" | "cached" | "mixed" as state,
            int(owner),
            float() | int() as share,
        ] if count > 0 and size > 0 and 0 <= share <= 1:
            return MapBlock(count, size, state, owner, float(share))
    raise UserError(f"{path} is damaged: {row!r} is no block of a heap.", _DAMAGED)
