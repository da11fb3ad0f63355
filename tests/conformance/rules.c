// The C library's rules for each function of the family, as one table: what a call returns, its
// effect on errno, and what becomes of the block and the pointer passed in. They come from the C
// standard and POSIX, and from glibc's manual where those leave a choice. limits.c tests impossible
// sizes, and aligned.c all powers of two.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

enum { kept = 4711, old_bytes = 100 };

typedef enum Function {
  f_malloc,
  f_calloc,
  f_realloc_null,  // realloc(NULL, a)
  f_realloc,       // realloc(p, a)
  f_array_null,    // reallocarray(NULL, a, b)
  f_array,         // reallocarray(p, a, b)
  f_memalign,
  f_aligned_alloc,
  f_posix_memalign,
  f_valloc,
  f_pvalloc,
} Function;

typedef enum Outcome {
  block,        // not null, aligned as in the row, errno unchanged
  no_memory,    // null, and ENOMEM; the old block is intact
  invalid,      // null, and EINVAL
  invalid_now,  // invalid; except for a block of an older libc or another library
  freed,        // null, errno unchanged, and the old block is freed
} Outcome;

typedef struct Rule {
  Function function;
  size_t a;
  size_t b;
  Outcome outcome;
  size_t alignment;  // of the result
} Rule;

static const char* const names[] = {"malloc(a)",
                                    "calloc(a, b)",
                                    "realloc(NULL, a)",
                                    "realloc(p, a)",
                                    "reallocarray(NULL, a, b)",
                                    "reallocarray(p, a, b)",
                                    "memalign(a, b)",
                                    "aligned_alloc(a, b)",
                                    "posix_memalign(&p, a, b)",
                                    "valloc(a)",
                                    "pvalloc(a)"};

#define MOST PTRDIFF_MAX
#define ROOT ((size_t)1 << 32)  // whose square overflows
#define HUGE ((size_t)1 << 63)  // the largest power of two

static const Rule rules[] = {
    // A request for 0 bytes returns a unique block; and success leaves errno alone, even if
    // something failed on the way.
    {f_malloc, 0, 0, block, 16},
    {f_malloc, 1, 0, block, 16},
    {f_malloc, 3000, 0, block, 16},
    {f_malloc, 70000, 0, block, 16},
    {f_malloc, 9 << 20, 0, block, 16},
    {f_malloc, 300 << 20, 0, block, 16},
    {f_calloc, 0, 0, block, 16},
    {f_calloc, 0, 1, block, 16},
    {f_calloc, 1, 0, block, 16},
    {f_calloc, 0, SIZE_MAX, block, 16},
    {f_calloc, SIZE_MAX, 0, block, 16},
    {f_calloc, 7, 1000, block, 16},
    {f_calloc, 1000, 7, block, 16},
    {f_calloc, 1, 100000, block, 16},
    {f_calloc, 100000, 1, block, 16},
    {f_calloc, 1000, 9000, block, 16},
    {f_realloc_null, 0, 0, block, 16},
    {f_realloc_null, 50, 0, block, 16},
    {f_realloc, 1, 0, block, 16},
    {f_realloc, 101, 0, block, 16},
    {f_realloc, 5 << 20, 0, block, 16},
    {f_array_null, 10, 10, block, 16},
    {f_array, 10, 1000, block, 16},
    {f_valloc, 0, 0, block, 4096},
    {f_valloc, 5000, 0, block, 4096},
    {f_pvalloc, 0, 0, block, 4096},
    {f_pvalloc, 5000, 0, block, 4096},
    // Zero is a valid size to free by (glibc, and C17 allows it; C23 leaves it undefined).
    {f_realloc, 0, 0, freed, 0},
    {f_array, 0, 0, freed, 0},
    {f_array, 0, SIZE_MAX, freed, 0},
    {f_array, SIZE_MAX, 0, freed, 0},
    // Products that overflow, to many different small numbers.
    {f_calloc, ROOT, ROOT, no_memory, 0},
    {f_calloc, ROOT + 1, ROOT, no_memory, 0},
    {f_calloc, SIZE_MAX, 2, no_memory, 0},
    {f_calloc, 2, SIZE_MAX, no_memory, 0},
    {f_calloc, 2, SIZE_MAX / 2 + 1, no_memory, 0},
    {f_calloc, SIZE_MAX / 2 + 1, 2, no_memory, 0},
    {f_calloc, 2 * ROOT, 2 * ROOT, no_memory, 0},
    {f_calloc, SIZE_MAX / 3 + 17, 3, no_memory, 0},
    {f_calloc, 16, SIZE_MAX / 16 + 2, no_memory, 0},
    {f_calloc, SIZE_MAX / 3 + 1, 3, no_memory, 0},
    {f_calloc, SIZE_MAX, SIZE_MAX, no_memory, 0},
    {f_calloc, 2, (size_t)MOST / 2 + 1, no_memory, 0},
    {f_array_null, ROOT, ROOT, no_memory, 0},
    {f_array, ROOT, ROOT, no_memory, 0},
    {f_array, ROOT + 1, ROOT, no_memory, 0},
    {f_array, 2, SIZE_MAX / 2 + 1, no_memory, 0},
    {f_array, SIZE_MAX, SIZE_MAX, no_memory, 0},
    // Sizes around the largest possible object: the old block stays.
    {f_array, 1, SIZE_MAX, no_memory, 0},
    {f_posix_memalign, 8, MOST, no_memory, 0},
    {f_posix_memalign, 4096, (size_t)MOST - 4095, no_memory, 0},
    {f_posix_memalign, 16, SIZE_MAX, no_memory, 0},
    {f_posix_memalign, 64, SIZE_MAX - 64, no_memory, 0},
    {f_posix_memalign, 4096, MOST, no_memory, 0},
    {f_posix_memalign, HUGE / 2, HUGE / 2, no_memory, 0},
    {f_posix_memalign, HUGE, 8, no_memory, 0},
    {f_posix_memalign, HUGE, SIZE_MAX, no_memory, 0},
    {f_memalign, 32, SIZE_MAX, no_memory, 0},
    {f_memalign, 32, SIZE_MAX - 31, no_memory, 0},
    {f_memalign, 4096, (size_t)MOST - 4096, no_memory, 0},
    {f_memalign, 4096, MOST, no_memory, 0},
    {f_memalign, HUGE / 2, 1, no_memory, 0},
    {f_memalign, HUGE / 2, HUGE / 2, no_memory, 0},
    {f_memalign, HUGE, 1, no_memory, 0},
    {f_memalign, HUGE, HUGE, no_memory, 0},
    {f_aligned_alloc, 32, SIZE_MAX, no_memory, 0},
    {f_aligned_alloc, 32, SIZE_MAX - 31, no_memory, 0},
    {f_aligned_alloc, 4096, MOST, no_memory, 0},
    {f_aligned_alloc, 4096, SIZE_MAX - 4095, no_memory, 0},
    {f_aligned_alloc, HUGE / 2, 1, no_memory, 0},
    {f_aligned_alloc, HUGE / 2, HUGE / 2, no_memory, 0},
    {f_aligned_alloc, HUGE, 1, no_memory, 0},
    {f_aligned_alloc, HUGE, HUGE, no_memory, 0},
    // POSIX: a power of two and a multiple of sizeof(void*). On failure the pointer is not touched.
    {f_posix_memalign, 0, 100, invalid, 0},
    {f_posix_memalign, 1, 100, invalid, 0},
    {f_posix_memalign, 2, 100, invalid, 0},
    {f_posix_memalign, 4, 100, invalid, 0},
    {f_posix_memalign, 12, 100, invalid, 0},
    {f_posix_memalign, 24, 100, invalid, 0},
    {f_posix_memalign, 48, 100, invalid, 0},
    {f_posix_memalign, 4097, 100, invalid, 0},
    {f_posix_memalign, SIZE_MAX, 100, invalid, 0},
    {f_posix_memalign, 0, SIZE_MAX, invalid, 0},
    {f_posix_memalign, 8, 0, block, 8},
    {f_posix_memalign, 8, 100, block, 8},
    {f_posix_memalign, 1 << 20, 100, block, 1 << 20},
    // memalign takes any alignment, and rounds it up.
    {f_memalign, 0, 100, block, 16},
    {f_memalign, 1, 100, block, 16},
    {f_memalign, 3, 100, block, 16},
    {f_memalign, 5, 100, block, 16},
    {f_memalign, 17, 100, block, 32},
    {f_memalign, 24, 100, block, 32},
    {f_memalign, 48, 100, block, 64},
    {f_memalign, 65, 0, block, 128},
    {f_memalign, 100, 100, block, 128},
    {f_memalign, 1000, 100, block, 1024},
    {f_memalign, 4095, 100, block, 4096},
    {f_memalign, 5000, 100, block, 8192},
    {f_memalign, 4097, 5, block, 8192},
    {f_memalign, ((size_t)1 << 63) + 1, 100, invalid, 0},
    {f_memalign, SIZE_MAX, 100, invalid, 0},
    // C11 required the size to be a multiple of the alignment, C17 does not.
    {f_aligned_alloc, 64, 1, block, 64},
    {f_aligned_alloc, 64, 65, block, 64},
    {f_aligned_alloc, 4096, 100, block, 4096},
    {f_aligned_alloc, 4096, 0, block, 4096},
    {f_aligned_alloc, 1, 100, block, 1},
    {f_aligned_alloc, 2, 1, block, 2},
    {f_aligned_alloc, 0, 100, invalid_now, 1},
    {f_aligned_alloc, 3, 100, invalid_now, 4},
    {f_aligned_alloc, 5, 100, invalid_now, 8},
    {f_aligned_alloc, 17, 100, invalid_now, 32},
    {f_aligned_alloc, 24, 100, invalid_now, 32},
    {f_aligned_alloc, 48, 96, invalid_now, 64},
    {f_aligned_alloc, 100, 100, invalid_now, 128},
    {f_aligned_alloc, 1000, 100, invalid_now, 1024},
    {f_aligned_alloc, 4095, 100, invalid_now, 4096},
    {f_aligned_alloc, 5000, 100, invalid_now, 8192},
    {f_aligned_alloc, SIZE_MAX, 100, invalid, 0},
};

// The call as written in C. `*pointer` is the variable passed to posix_memalign.
static void* call(const Rule* rule, void* old, void** pointer) {
  const size_t a = opaque(rule->a);
  const size_t b = opaque(rule->b);
  switch (rule->function) {
    case f_malloc:
      return malloc(a);
    case f_calloc:
      return calloc(a, b);
    case f_realloc_null:
    case f_realloc:
      return realloc(old, a);
    case f_array_null:
    case f_array:
      return reallocarray(old, a, b);
    case f_memalign:
      return memalign(a, b);
    case f_aligned_alloc:
      return aligned_alloc(a, b);
    case f_posix_memalign: {
      const int error = posix_memalign(pointer, a, b);
      if (error == 0) return *pointer;
      errno = error;  // which it may set or not
      return NULL;
    }
    case f_valloc:
      return valloc(a);
    case f_pvalloc:
      return pvalloc(a);
  }
  return NULL;
}

static size_t bytes_of(const Rule* rule) {
  switch (rule->function) {
    case f_calloc:
    case f_array_null:
    case f_array:
      return rule->a * rule->b;
    case f_memalign:
    case f_aligned_alloc:
    case f_posix_memalign:
      return rule->b;
    default:
      return rule->a;
  }
}

static void expect_block(const Rule* rule, const char* name, unsigned char* result, bool was_old) {
  const size_t bytes = bytes_of(rule);
  EXPECT(errno == kept, "%s with %zu, %zu succeeded and set errno to %d", name, rule->a, rule->b,
         errno);
  EXPECT((uintptr_t)result % rule->alignment == 0, "%s with %zu, %zu is %p", name, rule->a, rule->b,
         (void*)result);
  EXPECT(malloc_usable_size(result) >= bytes, "%s with %zu, %zu: %zu usable bytes", name, rule->a,
         rule->b, malloc_usable_size(result));
  if (was_old) {
    const size_t compared = bytes < old_bytes ? bytes : old_bytes;
    EXPECT(first_damage(result, compared, 7) == compared, "%s with %zu, %zu lost contents", name,
           rule->a, rule->b);
  }
  if (rule->function == f_calloc)
    EXPECT(first_nonzero(result, bytes) == bytes, "%s with %zu, %zu is not zero", name, rule->a,
           rule->b);
  if (bytes <= 1 << 20) fill(result, bytes, 8);
  errno = kept;
  free(result);
  EXPECT(errno == kept, "free after %s with %zu, %zu set errno to %d", name, rule->a, rule->b,
         errno);
}

static void hold_to(const Rule* rule) {
  const char* const name = names[rule->function];
  const bool has_old = rule->function == f_realloc || rule->function == f_array;
  unsigned char* const old = has_old ? malloc(old_bytes) : NULL;
  if (has_old) fill(old, old_bytes, 7);
  int marker = 0;
  void* pointer = &marker;
  errno = kept;
  unsigned char* const result = call(rule, opaque_pointer(old), &pointer);
  const int error = errno;
  const bool wants_block = rule->outcome == block ||
                           (rule->outcome == invalid_now && result != NULL && !library_is_ours());
  if (wants_block) {
    REQUIRE(result != NULL, "%s with %zu, %zu is null with errno %d", name, rule->a, rule->b,
            error);
    return expect_block(rule, name, result, has_old);
  }
  EXPECT(result == NULL, "%s with %zu, %zu is %p", name, rule->a, rule->b, (void*)result);
  const int expected = rule->outcome == no_memory ? ENOMEM : rule->outcome == freed ? kept : EINVAL;
  EXPECT(error == expected, "%s with %zu, %zu is null with errno %d", name, rule->a, rule->b,
         error);
  EXPECT(pointer == &marker, "%s with %zu, %zu failed and set the pointer", name, rule->a, rule->b);
  if (!has_old || rule->outcome == freed) return;
  EXPECT(first_damage(old, old_bytes, 7) == old_bytes, "%s with %zu, %zu harmed the block", name,
         rule->a, rule->b);
  free(old);
}

CHECK("each call returns what it must, and leaves errno and the block") {
  for (size_t i = 0; i < COUNT_OF(rules); ++i) hold_to(&rules[i]);
}

// In each round, replaces blocks by ones of any order of magnitude, then applies random rules.
CHECK("so it does in a heap that is in use") {
  enum { rounds = 30, held = 500 };
  static void* holding[held];
  uint64_t random = 17;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < held; ++i) {
      free(holding[i]);
      holding[i] = malloc(random_size(&random, 200000));
    }
    for (size_t i = 0; i < COUNT_OF(rules); ++i)
      hold_to(&rules[next_random(&random) % COUNT_OF(rules)]);
  }
  for (size_t i = 0; i < held; ++i) free(holding[i]);
}

// realloc(p, 0) frees: freeing a gigabyte this way leaves nothing behind.
CHECK("realloc(p, 0) frees") {
  static const struct {
    size_t bytes;
    int times;
    size_t most;  // that may stay resident
  } rounds[] = {{1000, 1000000, 4 << 20}, {1 << 20, 256, 64 << 20}};
  for (size_t i = 0; i < COUNT_OF(rounds); ++i) {
    const size_t before = resident_bytes();
    for (int k = 0; k < rounds[i].times; ++k) {
      char* const p = written(rounds[i].bytes);
      EXPECT(realloc(opaque_pointer(p), 0) == NULL, "realloc(p, 0) is a block");
    }
    EXPECT(resident_bytes() < before + rounds[i].most, "blocks of %zu bytes: %zu bytes more",
           rounds[i].bytes, resident_bytes() - before);
  }
}
