// mallopt, one parameter of the manual page after the other: which are accepted or refused, and
// what those with an effect do. docs/embedding.md has the table.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

// mallopt(3), for machines of 64 bits.
enum { most_fast = 80 * sizeof(size_t) / 4, most_mmap_threshold = 4 * 1024 * 1024 * sizeof(long) };

enum { most_values = 6, ends = -2 };

typedef struct Parameter {
  const char* name;
  int number;
  int accepted[most_values + 1];  // values, up to `ends`
  int refused[most_values + 1];
} Parameter;

static const Parameter parameters[] = {
    {"M_ARENA_MAX", M_ARENA_MAX, {1, 4, 1000, 0, ends}, {ends}},
    {"M_ARENA_TEST", M_ARENA_TEST, {1, 8, ends}, {ends}},
    {"M_CHECK_ACTION", M_CHECK_ACTION, {0, 1, 2, 3, 5, 7, ends}, {ends}},
    {"M_MMAP_MAX", M_MMAP_MAX, {0, 1, 65536, ends}, {ends}},
    {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, {128 << 10, 0, most_mmap_threshold, ends}, {ends}},
    {"M_MXFAST", M_MXFAST, {0, 64, most_fast, ends}, {most_fast + 1, -1, ends}},
    {"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD, {128 << 10, 0, 1 << 30, -1, ends}, {ends}},
    {"M_TOP_PAD", M_TOP_PAD, {0, 8 << 20, ends}, {ends}},
};

static void hold_to(const char* name, int parameter, const int* values, int expected) {
  for (; *values != ends; ++values) {
    const int result = mallopt(parameter, *values);
    EXPECT(result == expected, "mallopt(%s, %d) returned %d", name, *values, result);
    free(filled(100, 1));
    free(filled(300000, 2));
  }
}

CHECK("each parameter is accepted up to the manual's limit, and refused beyond") {
  for (size_t i = 0; i < COUNT_OF(parameters); ++i) {
    hold_to(parameters[i].name, parameters[i].number, parameters[i].accepted, 1);
    hold_to(parameters[i].name, parameters[i].number, parameters[i].refused, 0);
  }
}

// glibc itself accepts any number, at least from 2.35 on, and returns 1 for unknown parameters.
CHECK("what is no threshold and no parameter is refused") {
  if (!library_is_ours()) skip_check("glibc accepts it");
  static const int beyond[] = {most_mmap_threshold + 1, -1, ends};
  hold_to("M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, beyond, 0);
  static const int unknown[] = {-100, -9, 0, 5, 100};
  for (size_t i = 0; i < COUNT_OF(unknown); ++i) {
    const int result = mallopt(unknown[i], 1);
    EXPECT(result == 0, "mallopt(%d, 1) returned %d", unknown[i], result);
  }
}

CHECK("M_PERTURB fills blocks, or is refused") {
  enum { bytes = 5000, pattern = 0x5a };
  EXPECT(mallopt(M_PERTURB, 0) == 1, "mallopt(M_PERTURB, 0) returned %d", mallopt(M_PERTURB, 0));
  const int result = mallopt(M_PERTURB, pattern);
  EXPECT(result == 0 || result == 1, "mallopt(M_PERTURB, %d) returned %d", pattern, result);
  unsigned char* const block = malloc(bytes);
  REQUIRE(block != NULL, "null");
  for (size_t i = 0; result == 1 && i < bytes; ++i) {
    REQUIRE(block[i] == (pattern ^ 0xff), "mallopt returned 1, and byte %zu is %d", i, block[i]);
  }
  const unsigned char* const zeroed = calloc(1, bytes);
  REQUIRE(zeroed != NULL, "null");
  for (size_t i = 0; i < bytes; ++i) REQUIRE(zeroed[i] == 0, "calloc's byte %zu is not zero", i);
}

// If the heap is the data segment, it grows by this much more at a time.
CHECK("M_TOP_PAD makes the break move further") {
  enum { pad = 8 << 20, bytes = 1000, blocks = 4000 };
  EXPECT(mallopt(M_TOP_PAD, pad) == 1, "mallopt(M_TOP_PAD, %d) failed", pad);
  free(filled(300000, 1));
  const char* const before = sbrk(0);
  for (int i = 0; i < blocks && sbrk(0) == before; ++i) {
    written(bytes);
  }
  const ptrdiff_t grown = (const char*)sbrk(0) - before;
  if (grown == 0) skip_check("the heap does not grow by the break");
  EXPECT(grown >= pad, "the break moved by %td bytes", grown);
}
