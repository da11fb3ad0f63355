// mallopt, one parameter of the manual page after the other: the parameters that are accepted and
// refused, and the effects of those that have one. docs/embedding.md has the table.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

// mallopt(3), for machines of 64 bits.
enum { most_fast = 80 * sizeof(size_t) / 4, most_mmap_threshold = 4 * 1024 * 1024 * sizeof(long) };

typedef struct Row {
  int value;
  int result;
} Row;

static void hold_to(const char* name, int parameter, const Row* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int result = mallopt(parameter, rows[i].value);
    EXPECT(result == rows[i].result, "mallopt(%s, %d) returned %d", name, rows[i].value, result);
    void* const small = malloc(100);
    void* const large = malloc(300000);
    REQUIRE(small != NULL && large != NULL, "null after mallopt(%s, %d)", name, rows[i].value);
    fill(small, 100, i);
    fill(large, 300000, i);
    free(small);
    free(large);
  }
}

CHECK("M_ARENA_MAX is accepted") {
  static const Row rows[] = {{1, 1}, {4, 1}, {1000, 1}, {0, 1}};
  hold_to("M_ARENA_MAX", M_ARENA_MAX, rows, COUNT_OF(rows));
}

CHECK("M_ARENA_TEST is accepted") {
  static const Row rows[] = {{1, 1}, {8, 1}};
  hold_to("M_ARENA_TEST", M_ARENA_TEST, rows, COUNT_OF(rows));
}

CHECK("M_CHECK_ACTION is accepted") {
  static const Row rows[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {5, 1}, {7, 1}};
  hold_to("M_CHECK_ACTION", M_CHECK_ACTION, rows, COUNT_OF(rows));
}

CHECK("M_MMAP_MAX is accepted") {
  static const Row rows[] = {{0, 1}, {1, 1}, {65536, 1}};
  hold_to("M_MMAP_MAX", M_MMAP_MAX, rows, COUNT_OF(rows));
}

CHECK("M_MMAP_THRESHOLD is accepted up to the manual's limit") {
  static const Row rows[] = {{128 << 10, 1}, {0, 1}, {most_mmap_threshold, 1}};
  hold_to("M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, rows, COUNT_OF(rows));
  // glibc itself takes any number, from 2.35 on at least.
  static const Row beyond[] = {{most_mmap_threshold + 1, 0}, {-1, 0}};
  if (library_is_ours()) hold_to("M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, beyond, COUNT_OF(beyond));
}

CHECK("M_MXFAST is accepted up to the manual's limit") {
  static const Row rows[] = {{0, 1}, {64, 1}, {most_fast, 1}, {most_fast + 1, 0}, {-1, 0}};
  hold_to("M_MXFAST", M_MXFAST, rows, COUNT_OF(rows));
}

CHECK("M_TRIM_THRESHOLD is accepted") {
  static const Row rows[] = {{128 << 10, 1}, {0, 1}, {1 << 30, 1}, {-1, 1}};
  hold_to("M_TRIM_THRESHOLD", M_TRIM_THRESHOLD, rows, COUNT_OF(rows));
}

CHECK("what is no parameter is refused") {
  if (!library_is_ours()) skip_check("glibc returns 1 for what is no parameter");
  static const int parameters[] = {-100, -9, 0, 5, 100};
  for (size_t i = 0; i < COUNT_OF(parameters); ++i) {
    EXPECT(mallopt(parameters[i], 1) == 0, "mallopt(%d, 1) returned %d", parameters[i],
           mallopt(parameters[i], 1));
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

// Where the heap is the data segment, it grows by so much more at a time.
CHECK("M_TOP_PAD makes the break move further") {
  enum { pad = 8 << 20, bytes = 1000, blocks = 4000 };
  const Row rows[] = {{0, 1}, {pad, 1}};
  hold_to("M_TOP_PAD", M_TOP_PAD, rows, COUNT_OF(rows));
  const char* const before = sbrk(0);
  for (int i = 0; i < blocks && sbrk(0) == before; ++i) {
    char* const block = malloc(bytes);
    REQUIRE(block != NULL, "null at block %d", i);
    memset(block, 1, bytes);
  }
  const ptrdiff_t grown = (const char*)sbrk(0) - before;
  if (grown == 0) skip_check("the heap does not grow by the break");
  EXPECT(grown >= pad, "the break moved by %td bytes", grown);
}
