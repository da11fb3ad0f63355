"""Shared by the tests of the shims (tracker, record): the allocators to run under, and programs
that make known calls, or start and end in every possible way.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tsmlab import paths
from tsmlab.allocators import discover


def under(*always, also):
    """Allocators as parameters: `also` for `make test-all`. "" is the C library's own."""
    return (*always, *(pytest.param(name, marks=pytest.mark.every_allocator) for name in also))


ALLOCATORS = under(
    "", "tsmalloc", also=("jemalloc", "lock-best", "nolock-first", "mimalloc", "tcmalloc")
)

# For the program of CALLS: what it calls, the kind of that call, and how many bytes it requests.
FUNCTIONS = (
    ("malloc", "malloc", 10),
    ("zero", "malloc", 0),
    ("calloc", "calloc", 21),
    ("realloc", "realloc", 12),
    ("reallocarray", "realloc", 15),
    ("memalign", "aligned", 100),
    ("aligned_alloc", "aligned", 128),
    ("posix_memalign", "aligned", 30),
)


def installed(name):
    """The allocator of this name; skips the test if there is none."""
    found = {each.name: each for each in discover(versions=False)}
    if name not in found:
        pytest.skip(f"{name} is not installed, or not built")
    return found[name]


def library_of(allocator):
    return installed(allocator).path if allocator else None


def run_in(place, shim, variable):
    """run(command, allocator="", status=0, **environment) runs it with the shim before the
    allocator, and returns the folder that the variable names."""

    def run(command, allocator="", status=0, stdout=Path(os.devnull), **environment):
        folder = place / f"folder-{len(list(place.iterdir()))}"
        folder.mkdir()
        preloads = (paths.library(shim), library_of(allocator))
        own = {"LD_PRELOAD": ":".join(str(library) for library in preloads if library)}
        own |= {variable: str(folder), "TSMALLOC_BACKGROUND": "off"}
        with stdout.open("wb") as out:
            done = subprocess.run(
                command,
                env=own | environment,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert done.returncode == status, done.stderr.decode()
        return folder

    return run


REAL_PROGRAMS: list[list[str | Path]] = [
    ["perl", "-e", 'my %h; $h{"k$_"} = "v" x $_ for 1..2000; print scalar(keys %h)'],
    ["/usr/bin/python3", "-c", "print(len({str(i): [i] for i in range(20000)}))"],
    ["sh", "-c", "for i in 1 2 3; do echo $i | sort | wc -l; done"],
]


# A kind of call, repeated N times; each block is freed. A third argument: failures must be ENOMEM.
CALLS = """
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

# All forms of new and delete, for 0 to 12 bytes, repeated N times, after M that throw.
OPERATORS = """
#include <cstdlib>
#include <new>
int main(int, char** argv) {
  using A = std::align_val_t;
  const auto& t = std::nothrow;
  for (int i = std::atoi(argv[2]); i > 0; --i) {
    try { operator delete(operator new(std::size_t{1} << 62)); } catch (const std::bad_alloc&) {}
  }
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
}
"""

# Seven blocks, then -DEND.
ENDS = """
int main(void) { for (int i = 0; i < 7; ++i) malloc(3); END }
"""

# A child and a grandchild, created by -DFORK.
FORKS = """
int main(void) {
  void* early = malloc(1000);
  void* other = malloc(2000);
  if (FORK == 0) {
    errno = 77;
    free(early);                      /* the first call makes the child's file */
    if (errno != 77) _exit(1);
    malloc(500);
    if (FORK == 0) { malloc(1); free(other); _exit(0); }
    int status = 1;
    wait(&status);
    _exit(status);
  }
  int status = 1;
  wait(&status);
  free(early);
  return status;
}
"""

# This many children among busy threads; each makes two blocks. A second argument: threads rest.
BUSY_FORKS = """
static volatile int is_over;
static void* work(void* rests) {
  while (!is_over) {
    for (int i = 0; i < 200; ++i) { void* p = malloc(100); p = realloc(p, 5000); free(p); }
    if (rests) usleep(100);
  }
  return 0;
}
int main(int argc, char** argv) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], 0, work, argv[2]);
  for (int i = atoi(argv[1]); i > 0; --i) {
    if (fork() == 0) { free(malloc(1)); free(calloc(1, 1)); _exit(0); }
    int status = 1;
    if (wait(&status) < 0 || status) return 1;
  }
  is_over = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], 0);
  return 0;
}
"""

# This many threads that pass this many blocks on to each other; prints how many were allocated and
# freed, and the bytes of all and of the remaining ones.
PRODUCERS = """
enum { slots = 64 };
static _Atomic(void*) boxes[slots];
static atomic_long allocations, frees, bytes, live;
static int rounds;
static void* work(void* seed) {
  unsigned state = (unsigned)(long)seed * 7919 + 1;
  long made = 0, freed = 0, asked = 0;
  for (int i = 0; i < rounds; ++i) {
    state = state * 1664525 + 1013904223;
    size_t size = (state >> 22) + sizeof(size_t);
    size_t* mine = malloc(size);
    if (state % 5 == 0) mine = realloc(mine, size += 1000);
    *mine = size;
    ++made; asked += size;
    live += (long)size;
    size_t* other = atomic_exchange(&boxes[(state >> 8) % slots], mine);
    if (other) { live -= (long)*other; free(other); ++freed; }
  }
  allocations += made; frees += freed; bytes += asked;
  return 0;
}
int main(int argc, char** argv) {
  pthread_t threads[16];
  int number = atoi(argv[1]);
  rounds = atoi(argv[2]);
  for (long i = 0; i < number; ++i) pthread_create(&threads[i], 0, work, (void*)i);
  for (int i = 0; i < number; ++i) pthread_join(threads[i], 0);
  dprintf(1, "%ld %ld %ld %ld\\n", allocations, frees, bytes, live);
  return 0;
}
"""

# Execs the program in its argument after four calls of malloc, in the last of four processes.
SPAWNS = """
extern char** environ;
int main(int argc, char** argv) {
  char* arguments[] = {"calls", "malloc", "4", 0};
  pid_t pid;
  malloc(1);
  if (posix_spawn(&pid, argv[1], 0, 0, arguments, environ)) return 1;
  wait(0);
  if (vfork() == 0) { execv(argv[1], arguments); _exit(1); }
  wait(0);
  if (vfork() == 0) _exit(9);              /* ends without us */
  wait(0);
  malloc(1);
  return execv(argv[1], arguments);
}
"""

# The same in a thread, while other threads allocate.
BECOMES = """
static void* churn(void* none) { for (;;) free(malloc(77)); return none; }
static void* become(void* program) {
  usleep(20000);
  execl(program, "calls", "malloc", "4", (char*)0);
  return 0;
}
int main(int argc, char** argv) {
  pthread_t threads[3];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], 0, churn, 0);
  pthread_create(&threads[2], 0, become, argv[1]);
  pthread_join(threads[0], 0);
  return 1;
}
"""

EARLY_AND_LATE = """
static void* kept;
__attribute__((constructor)) static void early(void) { kept = malloc(5); }
__attribute__((destructor)) static void late(void) { free(kept); }
"""


def early_and_late(build):
    """A program with a library, in the same folder, that allocates a block before main() and frees
    it."""
    library = build("early.so.c", EARLY_AND_LATE, "-shared", "-fPIC")
    flags = ("-Wl,--no-as-needed", str(library))
    return build("late.c", "int main(void) { return 0; }", *flags)
