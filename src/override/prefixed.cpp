// The engine under names of its own, for programs and libraries that have another malloc as well
// (libtsmalloc-prefixed.a, tsmalloc/prefixed.h). All names are hidden: each executable or library
// that links the archive has an engine of its own.
#include <unistd.h>

#include "engine/engine.h"
#include "override/semantics.h"
#include "tsmalloc/prefixed.h"

namespace ts {
namespace {

constinit Semantics<engine::Engine> allocator;

// A shared library may have no .preinit_array, so this is one of the first constructors. A block
// may be allocated before it.
void begin_process(int, char**, char** environment) noexcept;
[[gnu::constructor(101)]] void begin_with_constructors() noexcept {
  begin_process(0, nullptr, ::environ);
}

bool is_legal(std::size_t alignment) noexcept {
  if (is_power_of_two(alignment)) return true;
  errno = EINVAL;
  return false;
}

}  // namespace
}  // namespace ts

#include "override/begin_process.inc"

extern "C" {

void* ts_malloc(std::size_t size) noexcept { return ts::allocator.malloc(size); }
void* ts_calloc(std::size_t count, std::size_t size) noexcept {
  return ts::allocator.calloc(count, size);
}
void* ts_realloc(void* block, std::size_t size) noexcept {
  return ts::allocator.realloc(block, size);
}
void* ts_aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return ts::is_legal(alignment) ? ts::allocator.memalign(alignment, size) : nullptr;
}
void* ts_realloc_aligned(void* block, std::size_t alignment, std::size_t size) noexcept {
  return ts::is_legal(alignment) ? ts::allocator.realloc_aligned(block, alignment, size) : nullptr;
}
void ts_free(void* block) noexcept { ts::allocator.free(block); }
void ts_free_sized(void* block, std::size_t size) noexcept {
  ts::allocator.free_sized(block, size);
}
void ts_free_aligned_sized(void* block, std::size_t alignment, std::size_t size) noexcept {
  ts::allocator.free_sized(block, size, alignment);
}

int ts_version() noexcept { return TSMALLOC_VERSION; }
std::size_t ts_usable_size(const void* block) noexcept { return ts::allocator.usable_size(block); }
std::size_t ts_good_size(std::size_t size, std::size_t alignment) noexcept {
  if ((alignment & (alignment - 1)) != 0) return 0;
  return ts::allocator.good_size(size, alignment == 0 ? ts::min_alignment : alignment);
}
int ts_trim(std::size_t keep_bytes) noexcept {
  return ts::allocator.heap().trim(keep_bytes) ? 1 : 0;
}

}  // extern "C"
