// The malloc family as a shim defines it: preloaded before an allocator, each function passes its
// calls on to the allocator's, and reports them to the shim's class Call.
//
// It changes no request, and needs nothing but libc. malloc_usable_size and the statistics
// functions are not defined here; the program reaches the allocator's own.
//
//   program -> malloc (here) -> Call -> Next<malloc>: the allocator's
//           -> operator new (operators.cpp) -> Call -> Next<operator new>: the allocator's
//              own, or libstdc++'s -> malloc (here), a nested Call -> Next<malloc>
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "interpose/pass_on.h"

namespace ts {

// --- dlsym, and the arena for its allocations; see next.h ---

namespace {

// A dlsym error text takes about 100 bytes, and there are 30 symbols.
constexpr std::size_t arena_bytes = 16'384;
constexpr std::size_t arena_unit =
    16;  // one for the size before each block; keeps every block aligned

alignas(arena_unit) constinit unsigned char arena[arena_bytes]{};
constinit std::atomic<std::size_t> arena_used{0};
constinit thread_local bool looking_up = false;

}  // namespace

bool is_looking_up() { return looking_up; }

void* lookup_allocate(std::size_t size) {
  if (size > arena_bytes) return nullptr;
  const std::size_t total = arena_unit + (size + arena_unit - 1) / arena_unit * arena_unit;
  const std::size_t offset = arena_used.fetch_add(total, std::memory_order_relaxed);
  if (offset + total > arena_bytes) return nullptr;
  *reinterpret_cast<std::size_t*>(arena + offset) = size;
  return arena + offset + arena_unit;
}

bool is_lookup_block(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(arena) <
         arena_bytes;
}

std::size_t lookup_block_size(const void* pointer) {
  return *reinterpret_cast<const std::size_t*>(static_cast<const unsigned char*>(pointer) -
                                               arena_unit);
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

// --- the functions ---

namespace {

constexpr std::size_t page_bytes = 4096;  // of valloc: at least this

void free_sized_by_free(void* pointer, std::size_t) { free(pointer); }
void free_aligned_sized_by_free(void* pointer, std::size_t, std::size_t) { free(pointer); }

constinit Next<void*(std::size_t)> next_malloc{"malloc"};
constinit Next<void*(std::size_t, std::size_t)> next_calloc{"calloc"};
constinit Next<void*(void*, std::size_t)> next_realloc{"realloc"};
constinit Next<void(void*)> next_free{"free"};
constinit Next<void*(std::size_t, std::size_t)> next_memalign{"memalign"};
constinit Next<void*(std::size_t, std::size_t)> next_aligned_alloc{"aligned_alloc"};
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign{"posix_memalign"};
constinit Next<void*(std::size_t)> next_valloc{"valloc"};
constinit Next<void*(std::size_t)> next_pvalloc{"pvalloc"};
// C23, in glibc since 2.43.
constinit Next<void(void*, std::size_t)> next_free_sized{"free_sized", free_sized_by_free};
constinit Next<void(void*, std::size_t, std::size_t)> next_free_aligned_sized{
    "free_aligned_sized", free_aligned_sized_by_free};

void* move_lookup_block(void* pointer, std::size_t size) {
  void* const moved = is_looking_up() ? lookup_allocate(size) : malloc(size);
  if (moved != nullptr) std::memcpy(moved, pointer, std::min(size, lookup_block_size(pointer)));
  return moved;
}

}  // namespace

// A forked child must not ask the loader, since another thread may have held its lock at the fork.
// So the first look-up looks up everything that libc is sure to have.
void* address_of_next_malloc() {
  next_calloc.get();
  next_realloc.get();
  next_free.get();
  next_memalign.get();
  next_aligned_alloc.get();
  next_posix_memalign.get();
  next_valloc.get();
  next_pvalloc.get();
  return reinterpret_cast<void*>(next_malloc.get());
}

}  // namespace ts

using ts::Entry;
using ts::pass_on;
using ts::pass_on_release;

extern "C" {

void* malloc(std::size_t size) noexcept {
  if (ts::is_looking_up()) return ts::lookup_allocate(size);
  return pass_on(Entry::malloc, nullptr, size, ts::next_malloc, size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;  // which no allocator grants
  if (ts::is_looking_up()) return ts::lookup_allocate(bytes);
  return pass_on(Entry::calloc, nullptr, bytes, ts::next_calloc, count, size);
}

void* realloc(void* pointer, std::size_t size) noexcept {
  if (ts::is_lookup_block(pointer)) return ts::move_lookup_block(pointer, size);
  if (ts::is_looking_up() && pointer == nullptr) return ts::lookup_allocate(size);
  return pass_on(Entry::realloc, pointer, size, ts::next_realloc, pointer, size);
}

// glibc's would call realloc, an allocator's own might not. To count both the same way, the product
// is computed here.
void* reallocarray(void* pointer, std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, size, &bytes)) return realloc(pointer, bytes);
  errno = ENOMEM;
  return nullptr;
}

void free(void* pointer) noexcept {
  if (!ts::is_lookup_block(pointer)) pass_on_release(Entry::free, ts::next_free, pointer);
}

void free_sized(void* pointer, std::size_t size) noexcept {
  pass_on_release(Entry::free, ts::next_free_sized, pointer, size);
}

void free_aligned_sized(void* pointer, std::size_t alignment, std::size_t size) noexcept {
  pass_on_release(Entry::free, ts::next_free_aligned_sized, pointer, alignment, size);
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return pass_on(Entry::aligned, nullptr, {size, alignment}, ts::next_memalign, alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return pass_on(Entry::aligned, nullptr, {size, alignment}, ts::next_aligned_alloc, alignment,
                 size);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
  ts::Call call{Entry::aligned, nullptr, size, alignment};
  const int error_number = ts::next_posix_memalign.get()(result, alignment, size);
  call.finish(error_number == 0 ? *result : nullptr, size);
  return error_number;
}

void* valloc(std::size_t size) noexcept {
  return pass_on(Entry::aligned, nullptr, {size, ts::page_bytes}, ts::next_valloc, size);
}

void* pvalloc(std::size_t size) noexcept {
  return pass_on(Entry::aligned, nullptr, {size, ts::page_bytes}, ts::next_pvalloc, size);
}

}  // extern "C"
