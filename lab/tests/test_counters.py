"""Reading what the counted libraries write: sums over processes, pictures in order, damage by name.

Why: a wrong sum would be a wrong cause, told with confidence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Behaviour, measure_answer, run_request
from refusals import refused

from tsmlab import counters
from tsmlab.allocators import Allocator, own_library
from tsmlab.counters import MapBlock
from tsmlab.errors import UserError
from tsmlab.measuring import Measurement, RunRequest


def report(folder: Path, name: str, threads: list[dict[str, int]], **gauges: int) -> Path:
    """A file as a library writes it; its totals are the sums over the threads."""
    totals = {key: sum(t[key] for t in threads) for key in threads[0]} | gauges
    return write(
        folder / f"{name}.counters.json",
        schema="tsmalloc-counters/1",
        pid=int(name.split("-", maxsplit=1)[0]),
        allocator="lock-best",
        threads=threads,
        totals=totals,
    )


def heap_map(folder: Path, name: str, *chunks: dict[str, Any], **changed: Any) -> Path:
    content = {
        "schema": "tsmalloc-heap-map/1",
        "allocator": "lock-best",
        "label": "now",
        "chunks": list(chunks),
        "total_chunks": len(chunks),
        "truncated": False,
    }
    return write(folder / f"{name}.map.json", **(content | changed))


def chunk(address: int, *blocks: list[Any]) -> dict[str, Any]:
    return {"address": address, "bytes": sum(b[1] for b in blocks), "blocks": list(blocks)}


def write(path: Path, **content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_counts_are_sums_over_processes_and_threads_follow_each_other(tmp_path: Path) -> None:
    report(tmp_path, "100", [{"frees": 1}, {"frees": 2}], free_blocks_at_snapshot=5)
    report(tmp_path, "99", [{"frees": 4}], free_blocks_at_snapshot=6)
    report(tmp_path, "100-1", [{"frees": 8}])
    causes = counters.read(tmp_path)
    assert causes.counts == {"frees": 15.0, "free_blocks_at_snapshot": 11.0}
    # By process and number, not by the letters of the name.
    assert [thread["frees"] for thread in causes.threads] == [4.0, 1.0, 2.0, 8.0]
    assert causes.maps == []
    assert causes.notes == []


def test_maps_come_in_the_order_in_which_they_were_drawn(tmp_path: Path) -> None:
    report(tmp_path, "7", [{"frees": 1}])
    for number in (10, 9, 1):
        heap_map(tmp_path, f"7-{number}", label=f"picture {number}")
    labels = [each.label for each in counters.read(tmp_path).maps]
    assert labels == ["picture 1", "picture 9", "picture 10"]


def test_a_map_has_its_chunks_by_address(tmp_path: Path) -> None:
    heap_map(
        tmp_path,
        "7-1",
        chunk(8192, [3, 96, "used", 0, 1.0], [1, 32, "free", 0, 0.0]),
        chunk(4096, [2, 32768, "mixed", 4, 0.25], [1, 16, "cached", 4, 0]),
        total_chunks=9,
        truncated=True,
    )
    causes = counters.read(tmp_path)
    (picture,) = causes.maps
    assert [each.address for each in picture.chunks] == [4096, 8192]
    assert picture.chunks[0].blocks == [
        MapBlock(2, 32768, "mixed", 4, 0.25),
        MapBlock(1, 16, "cached", 4, 0.0),
    ]
    assert picture.chunks[1].bytes == 128
    assert picture.total_chunks == 9
    assert causes.notes == ["The map 'now' is cut off: the heap is in too many pieces."]


def test_an_empty_folder_says_why_it_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / ".7.unfinished").write_text("{", encoding="utf-8")
    with refused("no process wrote", remedy="killed"):
        counters.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": "tsmalloc-counters/1", "pid": 1', "is not JSON"),
        ('{"schema": "tsmalloc-counters/2"}', "its schema is 'tsmalloc-counters/2'"),
        ("[]", "it has no schema"),
        ('{"schema": "tsmalloc-counters/1", "pid": 1}', "lacks the field 'allocator'"),
    ],
)
def test_a_damaged_report_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "1.counters.json"
    path.write_text(content, encoding="utf-8")
    with refused(message, str(path)) as error:
        counters.read(tmp_path)
    assert error.value.remedy


@pytest.mark.parametrize(
    "block",
    [
        [1, 32, "lost", 0, 1.0],
        [0, 32, "used", 0, 1.0],
        [1, -32, "used", 0, 1.0],
        [1, 32, "used", 0, 1.5],
        [1, 32, "used", 0],
        [1, "32", "used", 0, 1.0],
    ],
)
def test_a_block_that_cannot_be_is_named(tmp_path: Path, block: list[Any]) -> None:
    path = heap_map(tmp_path, "1-1", {"address": 16, "bytes": 32, "blocks": [block]})
    with refused("is no block of a heap", str(path)):
        counters.read(tmp_path)


def test_a_count_that_is_no_number_is_damage(tmp_path: Path) -> None:
    report(tmp_path, "1", [{"frees": 1}], free_blocks_at_snapshot="many")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="is damaged"):
        counters.read(tmp_path)


# --- which allocators, and runs under them --------------------------------------------------------


@pytest.fixture
def library_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path / "build"))
    folder = tmp_path / "build" / "lib" / "counted"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["tsmalloc", "lock-best"])
def test_ours_have_a_counted_twin_once_it_is_built(library_folder: Path, name: str) -> None:
    allocator = Allocator(name, Path("/l/x.so"), "tsmalloc", "1")
    assert counters.has_counted(allocator) is None
    library = library_folder / own_library(name)
    library.touch()
    assert counters.has_counted(allocator) == library


def test_nobody_else_has_one(library_folder: Path) -> None:
    (library_folder / own_library("lock-best")).touch()
    assert counters.has_counted(Allocator("lock-best", Path("/l/x.so"), "user", "1")) is None
    assert counters.has_counted(Allocator("glibc", None, "libc", "2.36")) is None


@dataclass
class Reporting:
    """An executor under which every program reports one free, and ends with this status."""

    exit_code: int = 0
    requests: list[RunRequest] = field(default_factory=list)

    def run(self, request: RunRequest) -> Measurement:
        self.requests.append(request)
        report(Path(request.env[counters.VARIABLE]), "1", [{"frees": 1}])
        answer = measure_answer(Behaviour(exit_code=self.exit_code), request, 1.0)
        return Measurement.from_json(answer)


def request_under(allocator: Allocator) -> RunRequest:
    return run_request("true", allocator=allocator, env={"SEED": "1"}, timeout_seconds=9.0)


def test_a_counted_run_is_the_same_run_under_the_twin(library_folder: Path, tmp_path: Path) -> None:
    library = library_folder / own_library("lock-best")
    library.touch()
    executor = Reporting()
    allocator = Allocator("lock-best", Path("/l/x.so"), "tsmalloc", "1")
    counted = counters.counted_run(request_under(allocator), tmp_path, executor)
    (request,) = executor.requests
    assert request.allocator.path == library
    assert request.env == {"SEED": "1", counters.VARIABLE: str(tmp_path)}
    assert (request.command, request.timeout_seconds) == (("true",), 9.0)
    assert counted.counts == {"frees": 1.0}


def test_a_program_that_fails_under_the_twin_is_told(library_folder: Path, tmp_path: Path) -> None:
    (library_folder / own_library("lock-best")).touch()
    allocator = Allocator("lock-best", Path("/l/x.so"), "tsmalloc", "1")
    with refused("exit 3", remedy="LD_PRELOAD="):
        counters.counted_run(request_under(allocator), tmp_path, Reporting(3))
