"""`usable`: the size classes that it finds are those that malloc_usable_size tells of each size."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prompt import ran

from tsmlab import allocators, paths
from tsmlab.allocators import Allocator
from tsmlab.traces.size_classes import SizeClasses, ask, classes_of

# What one size gets, asked directly: a line for each size of the command line.
ASKING = r"""
int main(int count, char** sizes) {
  for (int i = 1; i < count; ++i) {
    void* block = malloc(strtoul(sizes[i], 0, 10));
    size_t usable = malloc_usable_size(block);
    free(block);
    fprintf(stdout, "%zu\n", usable);
  }
  return 0;
}
"""
# glibc serves these sizes by mapping or not, by what was freed before; its steps are checked below.
LARGEST_OF_GLIBC = 100_000


def everyone() -> list[Allocator]:
    found = allocators.discover((), versions=False)
    wanted = ("tsmalloc", "lock-first", "nolock-best", "glibc", "jemalloc", "mimalloc", "tcmalloc")
    return [each for each in found if each.name in wanted]


@pytest.mark.parametrize("allocator", everyone(), ids=lambda each: each.name)
def test_classes_are_what_each_size_gets(allocator: Allocator, build: Callable[..., Path]) -> None:
    program = build("ask.c", ASKING)
    (classes,) = classes_of([allocator], pytest.fail)
    sizes = [*range(1, 2200), *range(2200, 40_000, 97), *range(40_000, LARGEST_OF_GLIBC, 1777)]
    environment = {"LD_PRELOAD": str(allocator.path)} if allocator.path else {}
    done = ran(program, *map(str, sizes), env=environment, status=0, timeout=60)
    told = list(map(int, done.stdout.split()))
    wrong = [
        (size, classes.usable(size), usable)
        for size, usable in zip(sizes, told, strict=True)
        if classes.usable(size) != usable
    ]
    # A block that was left over may be a little longer than a fresh one.
    assert len(wrong) <= len(sizes) // 100, wrong[:10]


def test_glibc_has_steps_of_16_bytes() -> None:
    classes = SizeClasses("glibc", tuple(map(tuple, ask(allocators.glibc())["runs"])))
    for size in range(1, 3000):
        assert classes.usable(size) == max(24, (size + 8 + 15) // 16 * 16 - 8)
    assert classes.usable(200_000) % 4096 == 4096 - 16  # mapped, with a header


def test_every_class_holds_its_requests() -> None:
    for allocator in everyone():
        for first, step, count, slack in ask(allocator)["runs"]:
            assert min(first, slack) >= 0
            assert min(step, count) >= 1


def run(*arguments: str, status: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    return ran(paths.tool("usable"), *arguments, status=status, env=env)


def test_the_line_names_the_allocator_and_has_no_classes_where_it_has_none() -> None:
    answer: dict[str, Any] = json.loads(run("--most", "100").stdout)
    assert answer["schema"] == "tsmalloc-usable/1"
    assert answer["allocator"] == "libc.so.6"
    assert answer["most"] == 100
    last = answer["runs"][-1]
    assert last[0] + (last[2] - 1) * last[1] >= 100
    floor = paths.library("libtsmalloc-floor-lifo.so")
    answer = json.loads(run(LD_PRELOAD=str(floor)).stdout)
    assert answer["allocator"] == "libtsmalloc-floor-lifo.so"
    assert answer["runs"] is None


def test_wrong_use_is_named() -> None:
    for arguments in ("--most", "--most 0", "--most 12x", "more", f"--most {'9' * 30}"):
        assert "usable --help" in run(*arguments.split(), status=1).stderr
    assert "--most BYTES" in run("--help").stdout
