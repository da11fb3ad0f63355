// tsmalloc/memory_resource.hpp: std::pmr over tsmalloc, and scopes as C++ objects. C++17; links
// nothing but what arena.h needs.
//
//     ts::arena_resource arena;
//     std::pmr::vector<std::pmr::string> words{&arena};   // containers that take a resource
//     {
//       const ts::scope inside{arena};
//       document = parse(text);                           // and code that knows nothing of it
//     }
//     // the end of `arena` frees everything, whether or not it was deallocated
//
// Without the engine (see arena.h), an arena_resource is a pool of the standard library, which also
// frees all its blocks when destroyed, and a scope has no effect.
//
// With TSMALLOC_PREFIXED, which prefixed.h requires, everything uses the archive. Needs exceptions
// but not RTTI; without RTTI, the resource() of two libraries may compare unequal.
#ifndef TSMALLOC_MEMORY_RESOURCE_HPP
#define TSMALLOC_MEMORY_RESOURCE_HPP

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <optional>
#include <system_error>

#include "arena.h"
#include "tsmalloc.h"
#ifdef TSMALLOC_PREFIXED
#include "prefixed.h"
#endif

namespace ts {
namespace detail {

#ifdef TSMALLOC_PREFIXED
inline void* allocate_block(std::size_t size) noexcept { return ts_malloc(size); }
inline void* allocate_block(std::size_t alignment, std::size_t size) noexcept {
  return ts_aligned_alloc(alignment, size);
}
inline void release_block(void* block, std::size_t size) noexcept { ts_free_sized(block, size); }
inline void release_block(void* block, std::size_t alignment, std::size_t size) noexcept {
  ts_free_aligned_sized(block, alignment, size);
}
#else
inline void* allocate_block(std::size_t size) noexcept { return std::malloc(size); }
inline void* allocate_block(std::size_t alignment, std::size_t size) noexcept {
  return ::aligned_alloc(alignment, size);
}

// C23's, which not every C library has. Even if another malloc comes first, these may be
// tsmalloc's, so they are only called for blocks of tsmalloc.
#pragma GCC visibility push(default)
extern "C" {
extern void ts_free_sized_of_process(void* block, std::size_t size) noexcept __asm__("free_sized")
    __attribute__((weak));
extern void ts_free_aligned_sized_of_process(void* block, std::size_t alignment,
                                             std::size_t size) noexcept
    __asm__("free_aligned_sized") __attribute__((weak));
}
#pragma GCC visibility pop

inline void release_block(void* block, std::size_t size) noexcept {
  if (ts_free_sized_of_process != nullptr && ts_owns(block))
    return ts_free_sized_of_process(block, size);
  std::free(block);
}
inline void release_block(void* block, std::size_t alignment, std::size_t size) noexcept {
  if (ts_free_aligned_sized_of_process != nullptr && ts_owns(block))
    return ts_free_aligned_sized_of_process(block, alignment, size);
  std::free(block);
}
#endif

inline constexpr bool is_mallocs(std::size_t alignment) noexcept {
  return alignment <= TSMALLOC_MIN_ALIGNMENT;
}

inline void release_aligned(void* block, std::size_t alignment, std::size_t size) noexcept {
  is_mallocs(alignment) ? release_block(block, size) : release_block(block, alignment, size);
}

class malloc_resource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    void* const block =
        is_mallocs(alignment) ? allocate_block(size) : allocate_block(alignment, size);
    if (block == nullptr) throw std::bad_alloc{};
    return block;
  }
  void do_deallocate(void* block, std::size_t size, std::size_t alignment) override {
    release_aligned(block, alignment, size);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
#ifdef __cpp_rtti
    return dynamic_cast<const malloc_resource*>(&other) != nullptr;
#else
    return this == &other;
#endif
  }
};

}  // namespace detail

// The malloc family as a resource: blocks come from the thread's heap, or from the arena whose
// scope it is in, and are freed with their size. Lives until the process ends. Throws bad_alloc.
inline std::pmr::memory_resource* resource() noexcept {
  // No destructor: blocks may be freed until the very end.
  static union Immortal {
    Immortal() noexcept : of_malloc{} {}
    ~Immortal() {}
    detail::malloc_resource of_malloc;
  } immortal;
  return &immortal.of_malloc;
}

// A resource that owns an arena. One thread at a time may allocate, any may deallocate. Neither
// copyable nor movable, since containers point to it.
class arena_resource final : public std::pmr::memory_resource {
 public:
  // Throws bad_alloc if memory runs out.
  arena_resource() : arena_{ts_arena_create()} {
    if (arena_ != nullptr) return;
    if (errno != ENOTSUP) throw std::bad_alloc{};
    pool_.emplace();
  }
  // No thread may be in the arena's scope any more.
  ~arena_resource() override {
    if (arena_ == nullptr) return;
    [[maybe_unused]] const int error = ts_arena_destroy(arena_);
    assert(error == 0 && "an arena_resource ends while a thread is in its scope");
  }
  arena_resource(const arena_resource&) = delete;
  arena_resource& operator=(const arena_resource&) = delete;

  // Frees all blocks. Throws system_error (EBUSY) while a thread is in the arena's scope.
  void release() {
    if (arena_ == nullptr) return pool_->release();
    if (const int error = ts_arena_reset(arena_); error != 0)
      throw std::system_error{error, std::generic_category(), "ts_arena_reset"};
  }

  // Null without the engine.
  ts_arena* arena() const noexcept { return arena_; }

 private:
  // Throws bad_alloc, also if another thread is using the arena.
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    if (arena_ == nullptr) return pool_->allocate(size, alignment);
    void* const block = detail::is_mallocs(alignment)
                            ? ts_arena_malloc(arena_, size)
                            : ts_arena_aligned_alloc(arena_, alignment, size);
    if (block == nullptr) throw std::bad_alloc{};
    return block;
  }
  void do_deallocate(void* block, std::size_t size, std::size_t alignment) override {
    if (arena_ == nullptr) return pool_->deallocate(block, size, alignment);
    detail::release_aligned(block, alignment, size);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  ts_arena* arena_;
  std::optional<std::pmr::synchronized_pool_resource> pool_;
};

// Puts the thread that creates it into a scope (arena.h) for its lifetime. Must be destroyed in the
// same thread, before scopes entered earlier. Throws system_error for errors of ts_scope_enter, but
// not if there is no engine.
class [[nodiscard]] scope {
 public:
  explicit scope(const arena_resource& resource) : scope{resource.arena()} {}
  // Leaves all scopes: allocates in the thread's own heap.
  explicit scope(std::nullptr_t) : is_open_{enter(nullptr)} {}
  explicit scope(ts_arena* arena) : is_open_{arena != nullptr && enter(arena)} {}
  ~scope() {
    if (is_open_) ts_scope_leave();
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  // False if it has no effect.
  bool is_open() const noexcept { return is_open_; }

 private:
  static bool enter(ts_arena* arena) {
    const int error = ts_scope_enter(arena);
    if (error != 0 && error != ENOTSUP)
      throw std::system_error{error, std::generic_category(), "ts_scope_enter"};
    return error == 0;
  }

  bool is_open_;
};

}  // namespace ts

#endif
