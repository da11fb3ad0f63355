// What the hardened heap keeps resident of large blocks that a program uses only in part, such as
// coroutine stacks: the pages the program touched, and one for the tail of each block. Neither
// malloc, realloc, free nor a trim touches another.
#include <malloc.h>
#include <stdint.h>

#include "footprint/memory.h"

enum { most_blocks = 20000, page = 4096 };

typedef void* Get(size_t bytes);

static void* get(size_t bytes) { return malloc(bytes); }
static void* get_zeroed(size_t bytes) { return calloc(1, bytes); }
static void* get_aligned(size_t bytes) { return aligned_alloc(page, bytes); }
// In place if the class is the same; the old end is past the used part.
static void* get_resized(size_t bytes) {
  return realloc(opaque_pointer(malloc(bytes + 1000)), opaque(bytes));
}

static char* blocks[most_blocks];

// Uses the last bytes, as a stack does.
static void renew(size_t i, size_t bytes, size_t used, Get* get_block) {
  free(blocks[i]);
  blocks[i] = get_block(bytes);
  REQUIRE(blocks[i] != NULL, "a request of %zu bytes fails", bytes);
  memset(blocks[i] + bytes - used, 1, used);
}

static void check_resident(const char* when, size_t count, size_t bytes, size_t most) {
  const size_t resident = memory("VmRSS:");
  report_figure("%zu blocks of %zu bytes, %s: %zu MB", count, bytes, when, resident / 1000000);
  EXPECT(resident <= most, "%zu bytes for blocks of %zu, %s: at most %zu", resident, bytes, when,
         most);
}

// Blocks used in part, freed and allocated again, with at most `count` live ones.
static void use_in_part(size_t count, size_t bytes, size_t used, Get* get_block, size_t most) {
  uint64_t random = 7;
  for (size_t i = 0; i < count; ++i) renew(i, bytes, used, get_block);
  check_resident("live", count, bytes, most);
  for (size_t i = 0; i < count; ++i) renew(random_size(&random, count) - 1, bytes, used, get_block);
  check_resident("replaced at random", count, bytes, most);
  malloc_trim(0);
  check_resident("looked through", count, bytes, most);
  for (size_t i = 0; i < count; i += 2) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
  check_resident("half of them freed", count, bytes, most);
  for (size_t i = 0; i < count; i += 2) renew(i, bytes, used, get_block);
  check_resident("live again", count, bytes, most);
  for (size_t i = 0; i < count; ++i) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
  check_resident("all freed", count, bytes, most);
}

// Uses 120 MB, and touches three pages of each block.
enum { stack = 65536, used_of_stack = 6144, most_of_stacks = 260000000 };

CHECK("stacks of which a tenth is used") {
  use_in_part(20000, stack, used_of_stack, get, most_of_stacks);
}
CHECK("blocks of calloc") {
  use_in_part(5000, stack, used_of_stack, get_zeroed, most_of_stacks / 4 + 5000000);
}
CHECK("aligned blocks") {
  use_in_part(5000, stack, used_of_stack, get_aligned, most_of_stacks / 4 + 5000000);
}
CHECK("blocks that realloc made shorter") {
  use_in_part(5000, stack, used_of_stack, get_resized, most_of_stacks / 4 + 5000000);
}
CHECK("blocks of 16 to 300 KB") {
  static const size_t sizes[] = {16384, 20000, 32768, 50000, 100000, 131000, 131072, 300000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i)
    use_in_part(2000, sizes[i], 5000, get, (size_t)2000 * 4 * page + 6000000);
}
