"""The tools that count causes, all together, on a program with known counts; and the reports of
instrumented libraries.
"""

import json
from pathlib import Path

import pytest
from conftest import run_request
from refusals import refused

from tsmlab import allocators, causes, counters
from tsmlab.allocators import Allocator, own_library

BLOCKS = 5000
BYTES = 1000

# Allocates all blocks and frees them; "fail" exits with 3.
PROGRAM = f"""
static void *blocks[{BLOCKS}];
int main(int argc, char **argv) {{
  for (int i = 0; i < {BLOCKS}; i++) memset(blocks[i] = malloc({BYTES}), i, {BYTES});
  for (int i = 0; i < {BLOCKS}; i++) free(blocks[i]);
  return argc > 1 ? 3 : 0;
}}
"""


@pytest.fixture(scope="module")
def program(build):
    return build("blocks.c", PROGRAM)


def request(program, name, *arguments):
    quiet = {"stdout": Path("/dev/null"), "stderr": Path("/dev/null"), "timeout_seconds": 60.0}
    under = allocators.find(name, allocators.discover(versions=False))
    return run_request(str(program), *arguments, allocator=under, **quiet)


def test_together_they_tell_all(program):
    found = causes.count(request(program, "lock-best"), 2)
    assert (found.point, found.allocator, found.notes) == (2, "lock-best", [])
    # In front of an allocator, inside our own library, and at the system calls.
    assert found.counts["allocations"] >= BLOCKS
    assert found.counts["requested_bytes"] >= BLOCKS * BYTES
    assert found.counts["foreign_frees"] == 0
    assert found.counts["splits"] > 0
    assert found.counts["brk_calls"] > 0


def test_a_program_that_fails_is_told_by_each(program):
    found = causes.count(request(program, "lock-best", "fail"), 0)
    assert found.counts == {}
    assert len(found.notes) == 3
    assert all("exit 3" in note for note in found.notes)


def report(folder, name, **totals):
    content = {"schema": "tsmalloc-counters/1", "pid": 7, "allocator": "lock-best", "threads": []}
    path = folder / f"{name}.counters.json"
    path.write_text(json.dumps({**content, "totals": totals}), encoding="utf-8")


def test_counts_are_sums_over_processes(tmp_path):
    (tmp_path / ".7.unfinished").write_text("{", encoding="utf-8")
    with refused("no process wrote", remedy="killed"):
        counters.read(tmp_path)
    report(tmp_path, "100", frees=3, free_blocks_at_snapshot=5)
    report(tmp_path, "99", frees=4, free_blocks_at_snapshot=6)
    report(tmp_path, "100-1", frees=8)
    assert counters.read(tmp_path) == {"frees": 15.0, "free_blocks_at_snapshot": 11.0}


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


def test_only_ours_have_a_counted_twin_once_it_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path))
    folder = tmp_path / "lib" / "counted"
    folder.mkdir(parents=True)
    for name in ("tsmalloc", "lock-best"):
        ours, users = (Allocator(name, Path("/x.so"), f, "1") for f in ("tsmalloc", "user"))
        assert counters.has_counted(ours) is None
        library = folder / own_library(name)
        library.touch()
        assert (counters.has_counted(ours), counters.has_counted(users)) == (library, None)
    assert counters.has_counted(allocators.glibc()) is None
