// Shared by the programs of this folder: the process's memory, a burst, and waiting.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conformance/check.h"

// A field of /proc/self/status, such as "VmRSS:" or "VmHWM:", in bytes.
static inline size_t memory(const char* key) {
  const long kilobytes = figure_of("/proc/self/status", key);
  REQUIRE(kilobytes > 0, "%s is %ld", key, kilobytes);
  return (size_t)kilobytes << 10;
}

// Allocates and fills blocks of `each` bytes, `total` bytes altogether, and frees them. Returns
// what was resident before the frees.
static inline size_t burst(size_t each, size_t total) {
  const size_t count = total / each;
  void** const blocks = malloc(count * sizeof *blocks);
  REQUIRE(blocks != NULL, "malloc is null");
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = written(each);
  }
  const size_t bytes = resident_bytes();
  for (size_t i = 0; i < count; ++i) free(blocks[i]);
  free(blocks);
  return bytes;
}

static inline void idle(unsigned milliseconds) {
  struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) continue;
}
