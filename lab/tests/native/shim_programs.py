"""What the tests of the shims share (count, ledger, record): under which allocators they run, and
programs that make known calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tsmlab.allocators import discover


def under(*always: str, also: tuple[str, ...]) -> tuple[object, ...]:
    """Allocators as parameters: `also` for `make test-all`. "" is the C library's own."""
    return (*always, *(pytest.param(name, marks=pytest.mark.every_allocator) for name in also))


ALLOCATORS = under(
    "", "tsmalloc", also=("jemalloc", "lock-best", "nolock-first", "mimalloc", "tcmalloc")
)


def library_of(allocator: str) -> Path | None:
    """The library of an allocator's name; skips the test where there is none."""
    if not allocator:
        return None
    found = {each.name: each.path for each in discover(versions=False)}
    if allocator not in found:
        pytest.skip(f"{allocator} is not installed, or not built")
    return found[allocator]


# A kind of call, so many times; each block is freed. A third argument: refusals have to be ENOMEM.
CALLS = """
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int looks_at_errno;
static int is_refused(void* p) {
  const int error = errno;
  errno = 0;
  return p == 0 && (!looks_at_errno || error == ENOMEM);
}
int main(int argc, char** argv) {
  const char* kind = argv[1];
  void* p = 0;
  looks_at_errno = argc > 3;
  for (int n = atoi(argv[2]); n > 0; --n) {
    if (!strcmp(kind, "malloc")) p = malloc(10);
    if (!strcmp(kind, "zero")) p = malloc(0);
    if (!strcmp(kind, "usable")) { p = malloc(10); memset(p, 1, malloc_usable_size(p)); }
    if (!strcmp(kind, "calloc")) p = calloc(3, 7);
    if (!strcmp(kind, "realloc")) p = realloc(0, 12);
    if (!strcmp(kind, "reallocarray")) p = reallocarray(0, 3, 5);
    if (!strcmp(kind, "memalign")) p = memalign(64, 100);
    if (!strcmp(kind, "aligned_alloc")) p = aligned_alloc(64, 128);
    if (!strcmp(kind, "posix_memalign") && posix_memalign(&p, 64, 30)) return 1;
    if (!strcmp(kind, "valloc")) p = valloc(50);
    if (!strcmp(kind, "pvalloc")) p = pvalloc(4096);
    if (!strcmp(kind, "overflow") && !is_refused(reallocarray(0, SIZE_MAX / 2, 3))) return 2;
    if (!strcmp(kind, "refused")) {
      if (!is_refused(malloc(PTRDIFF_MAX)) || !is_refused(calloc(SIZE_MAX / 2, 3))) return 3;
      if (posix_memalign(&p, 64, PTRDIFF_MAX) == 0) return 4;
      p = malloc(5);
      if (realloc(p, PTRDIFF_MAX)) return 5;     /* p stays as it was */
    }
    free(p);                                     /* of kind "free": null */
    p = 0;
  }
  return 0;
}
"""

# All forms of new and delete, of 0 to 12 bytes, so many times; and so many that throw.
OPERATORS = """
#include <cstdlib>
#include <new>
int main(int, char** argv) {
  using A = std::align_val_t;
  const auto& t = std::nothrow;
  for (int i = std::atoi(argv[1]); i > 0; --i) {
    operator delete(operator new(0));
    operator delete(operator new(1));
    operator delete[](operator new[](2));
    operator delete(operator new(3, t), t);
    operator delete[](operator new[](4, t), t);
    operator delete(operator new(5, A{64}), A{64});
    operator delete[](operator new[](6, A{64}), A{64});
    operator delete(operator new(7, A{64}, t), A{64}, t);
    operator delete[](operator new[](8, A{64}, t), A{64}, t);
    operator delete(operator new(9), 9);
    operator delete[](operator new[](10), 10);
    operator delete(operator new(11, A{64}), 11, A{64});
    operator delete[](operator new[](12, A{64}), 12, A{64});
    operator delete(nullptr);
  }
  for (int i = std::atoi(argv[2]); i > 0; --i) {
    try { operator delete(operator new(std::size_t{1} << 62)); } catch (const std::bad_alloc&) {}
  }
}
"""
