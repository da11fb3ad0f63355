"""Reading the output of instrumented libraries: sums over processes, and reports of damage."""

import json
from pathlib import Path

import pytest
from refusals import refused

from tsmlab import counters
from tsmlab.allocators import Allocator, own_library


def report(folder, name, **totals):
    content = {"schema": "tsmalloc-counters/1", "pid": 7, "allocator": "lock-best", "threads": []}
    path = folder / f"{name}.counters.json"
    path.write_text(json.dumps({**content, "totals": totals}), encoding="utf-8")


def test_counts_are_sums_over_processes(tmp_path):
    report(tmp_path, "100", frees=3, free_blocks_at_snapshot=5)
    report(tmp_path, "99", frees=4, free_blocks_at_snapshot=6)
    report(tmp_path, "100-1", frees=8)
    assert counters.read(tmp_path) == {"frees": 15.0, "free_blocks_at_snapshot": 11.0}


def test_an_empty_folder_says_why_it_may_be_empty(tmp_path):
    (tmp_path / ".7.unfinished").write_text("{", encoding="utf-8")
    with refused("no process wrote", remedy="killed"):
        counters.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": "tsmalloc-counters/2"}', "its schema is 'tsmalloc-counters/2'"),
        ('{"schema": "tsmalloc-counters/1", "pid": 1}', "lacks the field 'allocator'"),
    ],
)
def test_a_damaged_report_is_named(tmp_path, content, message):
    path = tmp_path / "1.counters.json"
    path.write_text(content, encoding="utf-8")
    with refused(message, str(path)):
        counters.read(tmp_path)


# --- which allocators (test_causes.py has runs under them) ----------------------------------------


@pytest.fixture
def library_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path / "build"))
    folder = tmp_path / "build" / "lib" / "counted"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["tsmalloc", "lock-best"])
def test_ours_have_a_counted_twin_once_it_is_built(library_folder, name):
    allocator = Allocator(name, Path("/l/x.so"), "tsmalloc", "1")
    assert counters.has_counted(allocator) is None
    library = library_folder / own_library(name)
    library.touch()
    assert counters.has_counted(allocator) == library


def test_nobody_else_has_one(library_folder):
    (library_folder / own_library("lock-best")).touch()
    assert counters.has_counted(Allocator("lock-best", Path("/l/x.so"), "user", "1")) is None
    assert counters.has_counted(Allocator("glibc", None, "libc", "2.36")) is None
