// errno, and sizes that no object can have, or none on this machine: every function fails with
// ENOMEM and a null pointer, and free never touches errno.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void* by_calloc_count(size_t bytes) { return calloc(bytes, 1); }
static void* by_calloc_size(size_t bytes) { return calloc(1, bytes); }
static void* by_realloc_of_null(size_t bytes) { return realloc(opaque_pointer(NULL), bytes); }
static void* by_memalign(size_t bytes) { return memalign(64, bytes); }
static void* by_aligned_alloc(size_t bytes) { return aligned_alloc(64, bytes); }

static const struct {
  const char* name;
  void* (*allocate)(size_t bytes);
} functions[] = {
    {"malloc(n)", malloc},
    {"calloc(n, 1)", by_calloc_count},
    {"calloc(1, n)", by_calloc_size},
    {"realloc(NULL, n)", by_realloc_of_null},
    {"memalign(64, n)", by_memalign},
    {"aligned_alloc(64, n)", by_aligned_alloc},
    {"valloc(n)", valloc},
    {"pvalloc(n)", pvalloc},
};

// Each function refuses this size, and so does realloc of blocks, which keep their contents.
static void expect_refused(size_t bytes) {
  for (size_t f = 0; f < COUNT_OF(functions); ++f) {
    errno = 0;
    void* block = functions[f].allocate(opaque(bytes));
    EXPECT(block == NULL, "%s with n = %zu is %p", functions[f].name, bytes, block);
    EXPECT(errno == ENOMEM, "%s with n = %zu: errno %d", functions[f].name, bytes, errno);
  }
  static const size_t sizes[] = {1, 24, 100, 1000, 100000, 4 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    char* const block = filled(sizes[i], i);
    errno = 0;
    void* const moved = realloc(block, opaque(bytes));
    REQUIRE(moved == NULL, "realloc from %zu to %zu bytes is %p", sizes[i], bytes, moved);
    EXPECT(errno == ENOMEM, "realloc to %zu: errno %d", bytes, errno);
    EXPECT_FILLED(block, sizes[i], i);
    free(block);
  }
}

CHECK("impossible sizes are refused with ENOMEM") {
  static const size_t sizes[] = {PTRDIFF_MAX - 4096,
                                 PTRDIFF_MAX - 1,
                                 PTRDIFF_MAX,
                                 (size_t)PTRDIFF_MAX + 1,
                                 (size_t)PTRDIFF_MAX + 4096,
                                 SIZE_MAX - 65536,
                                 SIZE_MAX - 4096,
                                 SIZE_MAX - 4095,
                                 SIZE_MAX - 64,
                                 SIZE_MAX - 63,
                                 SIZE_MAX - 32,
                                 SIZE_MAX - 16,
                                 SIZE_MAX - 15,
                                 SIZE_MAX - 8,
                                 SIZE_MAX - 7,
                                 SIZE_MAX - 1,
                                 SIZE_MAX};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) expect_refused(sizes[i]);
}

// The machine's memory in bytes, if the kernel refuses to promise more at once. These checks touch
// none of it.
static size_t memory_that_is_not_overcommitted(void) {
  char mode = '\0';
  const int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
  if (file < 0 || read(file, &mode, 1) != 1 || mode != '0')
    skip_check("vm.overcommit_memory is not 0");
  close(file);
  struct sysinfo machine;
  REQUIRE(sysinfo(&machine) == 0, "sysinfo: %s", strerror(errno));
  return (machine.totalram + machine.totalswap) * machine.mem_unit;
}

CHECK("more than the machine has is refused with ENOMEM") {
  const size_t bytes = 8 * memory_that_is_not_overcommitted();
  expect_refused(bytes);
  void* const half = malloc(opaque(bytes / 16));
  EXPECT(half != NULL, "half of the machine's memory cannot be had");
  free(half);
}

// A table that grows by copying: the earlier blocks, which are free, and the last one exceed the
// machine's memory, and the kernel would refuse a fork if it counted both.
CHECK("a process with much that is free can fork") {
  if (library_is_ours() && !library_is_engine() && !library_is_hardened())
    skip_check("the teaching heaps' memory counts, free or not");
  const size_t most = memory_that_is_not_overcommitted();
  char* table = NULL;
  for (size_t sixteenths = 1; sixteenths <= 10;
       sixteenths = sixteenths == 8 ? 10 : 2 * sixteenths) {
    char* const larger = malloc(opaque(most / 16 * sixteenths));
    REQUIRE(larger != NULL, "malloc of %zu/16 of the machine's memory is null", sixteenths);
    larger[0] = 1;
    free(table);
    table = larger;
    if (sixteenths == 10) break;
  }
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT(child > 0, "fork: %s", strerror(errno));
  if (child > 0) waitpid(child, NULL, 0);
  free(table);
}
