"""The tools that count causes, all together, on a program with known counts."""

from pathlib import Path

import pytest
from conftest import run_request

from tsmlab import allocators, causes

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
