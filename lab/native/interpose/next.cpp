// dlsym, and the arena for its allocations; see next.h.
#include "interpose/next.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdint>

namespace ts {
namespace {

// A dlsym error text takes about 100 bytes, and there are 30 symbols.
constexpr std::size_t arena_bytes = 16'384;
constexpr std::size_t unit_bytes =
    16;  // one for the size before each block; keeps every block aligned

alignas(unit_bytes) constinit unsigned char arena[arena_bytes]{};
constinit std::atomic<std::size_t> arena_used{0};
constinit thread_local bool looking_up = false;

}  // namespace

bool is_looking_up() { return looking_up; }

void* lookup_allocate(std::size_t size) {
  if (size > arena_bytes) return nullptr;
  const std::size_t total = unit_bytes + (size + unit_bytes - 1) / unit_bytes * unit_bytes;
  const std::size_t offset = arena_used.fetch_add(total, std::memory_order_relaxed);
  if (offset + total > arena_bytes) return nullptr;
  *reinterpret_cast<std::size_t*>(arena + offset) = size;
  return arena + offset + unit_bytes;
}

bool is_lookup_block(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(arena) <
         arena_bytes;
}

std::size_t lookup_block_size(const void* pointer) {
  return *reinterpret_cast<const std::size_t*>(static_cast<const unsigned char*>(pointer) -
                                               unit_bytes);
}

void* look_up(void* library, const char* symbol) {
  const int saved_errno = errno;
  const bool was_looking_up =
      looking_up;  // freeing an earlier error text may need a look-up of `free`
  looking_up = true;
  void* found = dlsym(library, symbol);
  if (found == nullptr) {
    // For a C program that loaded a C++ plug-in: its C++ runtime is there, but outside the order
    // that RTLD_NEXT follows.
    if (void* const runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
        runtime != nullptr) {
      found = dlsym(runtime, symbol);
    }
  }
  if (found == nullptr) dlerror();  // the program must not find our error in place of its own
  looking_up = was_looking_up;
  errno = saved_errno;
  return found;
}

void* look_up_next(const char* symbol) { return look_up(RTLD_NEXT, symbol); }

}  // namespace ts
