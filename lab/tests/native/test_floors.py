"""The floors: each hands out what it promises, and programs of its kind run on it."""

from __future__ import annotations

import os

import pytest
from prompt import ran

from tsmlab import paths
from tsmlab.allocators import FLOORS

# Comes before each program's own requests, as a thread's first ones have memory of their own.
PREAMBLE = r"""
static void set_up(void) {
  for (int i = 0; i < 2000; i++) free(malloc(64));
}
"""
# Which of two blocks that are freed in between, and of two that are not, are the same.
SAMENESS = (
    PREAMBLE
    + r"""
int main(void) {
  set_up();
  char *a = malloc(64);
  free(a);
  char *b = malloc(64), *c = malloc(64), *d = malloc(200);
  printf("%d %d %d\n", a == b, b == c, c == d);
  return 0;
}
"""
)
# Blocks of all sizes that keep what is written to them; within the first mebibyte, `bump` must.
CONTENT = (
    PREAMBLE
    + r"""
enum { count = 600 };
int main(void) {
  static unsigned char *blocks[count];
  static size_t sizes[count];
  if (malloc(0) == NULL) return 7;
  for (int i = 0; i < count; i++) {
    sizes[i] = (size_t)i * 3 + (i % 50 == 0 ? 9000 : 0);
    blocks[i] = i % 3 ? malloc(sizes[i]) : calloc(sizes[i], 1);
    if (blocks[i] == NULL || (uintptr_t)blocks[i] % 16) return 1;
    memset(blocks[i], i, sizes[i]);
  }
  for (int i = 0; i < count; i += 2) {
    blocks[i] = realloc(blocks[i], sizes[i] * 2);
    if (sizes[i] && blocks[i][sizes[i] - 1] != (unsigned char)i) return 2;
    sizes[i] *= 2;
    memset(blocks[i], i, sizes[i]);
  }
  for (int i = 0; i < count; i++)
    for (size_t j = 0; j < sizes[i]; j++)
      if (blocks[i][j] != (unsigned char)i) return 3;
  for (size_t alignment = 8; alignment <= 65536; alignment *= 2) {
    void *block = NULL;
    if (posix_memalign(&block, alignment, 100) || (uintptr_t)block % alignment) return 4;
    free(block);
  }
  errno = 0;
  if (malloc(SIZE_MAX / 2) != NULL || errno != ENOMEM) return 5;
  if (calloc(SIZE_MAX / 4, 8) != NULL) return 6;
  puts("intact");
  return 0;
}
"""
)
# 64 MB pass through: a ring keeps its memory small, and a list, too.
CHURN = (
    PREAMBLE
    + r"""
int main(void) {
  for (int i = 0; i < 1000000; i++) {
    char *volatile block = malloc(64);
    block[0] = 1;
    free(block);
  }
  return 0;
}
"""
)
THREADS = r"""
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>
int main() {
  std::vector<std::thread> team;
  for (int number = 0; number < 4; ++number)
    team.emplace_back([number] {
      for (int i = 0; i < 200000; ++i) {
        auto block = std::make_unique<int>(number);
        if (*block != number) std::abort();
      }
    });
  for (auto& member : team) member.join();
  std::puts("joined");
}
"""


def run(floor, program, status=0):
    library = paths.library(f"libtsmalloc-floor-{floor}.so")
    return ran(program, env=os.environ | {"LD_PRELOAD": str(library)}, status=status)


@pytest.mark.parametrize(
    ("floor", "same"), [("null", "1 1 1"), ("bump", "0 0 0"), ("lifo", "1 0 0")]
)
def test_each_floor_is_what_it_says(build, floor, same):
    assert run(floor, build("sameness.c", SAMENESS)).stdout == f"{same}\n"


@pytest.mark.parametrize("floor", ["bump", "lifo"])
def test_blocks_of_all_sizes_keep_their_content(build, floor):
    assert run(floor, build("content.c", CONTENT)).stdout == "intact\n"


def test_a_programs_first_blocks_last_on_null_as_well(build):
    """Without the set-up, the blocks are among the first 1,024 requests."""
    assert run("null", build("first.c", CONTENT)).stdout == "intact\n"


@pytest.mark.parametrize("floor", FLOORS)
def test_churn_takes_little_memory(build, floor):
    library = paths.library(f"libtsmalloc-floor-{floor}.so")
    program = build("churn.c", CHURN)
    measured = ran(paths.tool("measure"), "--preload", library, "--", program, status=0)
    peak = int(measured.stdout.split('"peak_rss_bytes":')[1].split(",")[0])
    assert peak < 8 << 20


@pytest.mark.parametrize("floor", FLOORS)
def test_threads_and_operators_work(build, floor):
    assert run(floor, build("threads.cpp", THREADS, "-std=c++17", "-pthread")).stdout == "joined\n"


@pytest.mark.parametrize("floor", FLOORS)
def test_a_program_that_is_too_large_is_told_so(build, floor):
    source = PREAMBLE + "int main(void) { for (;;) if (!malloc(1ul << 30)) return 1; }\n"
    done = run(floor, build("large.c", source), status=None)
    assert done.returncode < 0
    assert "too large to be run on a floor" in done.stderr
