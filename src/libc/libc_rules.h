// The rules of the C library's malloc family, for any heap: overflowing sizes and products, errno,
// null pointers, realloc to zero, valid alignments. They follow the glibc manual and the man pages
// (glibc 2.38 and later, where those leave a choice), independently of how a heap finds memory. The
// names are in c_symbols.inc.
//
//   malloc, memalign, ... -> allocate (errno) -> try_allocate (limits) -> heap.allocate
//   operator new                              -> try_allocate
//   realloc -> heap.surely_stays, a short check, if the heap has one
//           -> heap.resize, in place
//           -> heap.move, the pages themselves, if the heap can
//           -> allocate, copy, heap.release
//   free    -> heap.release, preserving errno
#pragma once

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bits.h"
#include "base/check.h"
#include "base/event_counts.h"
#include "base/heap_like.h"
#include "base/heap_map.h"
#include "os/os.h"

namespace ts {

// The largest object, so that the difference of two pointers into it fits ptrdiff_t.
inline constexpr std::size_t max_object_bytes = PTRDIFF_MAX;

// A heap that implements these rules itself, so that nothing is added to its fast path. It rejects
// impossible sizes and sets errno to ENOMEM whenever it returns null. release() accepts null and
// preserves errno. The heap knows which memory is zero and how much a growing block should get, can
// move a block without copying, and recognises its own blocks.
template <class Heap>
concept ImplementsLibcRules = HeapLike<Heap> && Heap::implements_libc_rules;

// A heap that checks the sizes of sized frees in every build.
template <class Heap>
concept ChecksSizes = ImplementsLibcRules<Heap> && requires { requires Heap::checks_sizes; };

template <HeapLike Heap>
class LibcRules {
 public:
  constexpr LibcRules() = default;
  constexpr explicit LibcRules(const auto& heap_config) noexcept : heap_{heap_config} {}
  LibcRules(const LibcRules&) = delete;
  LibcRules& operator=(const LibcRules&) = delete;

  Heap& heap() noexcept { return heap_; }

  // Null if refused; errno is unspecified then. `alignment` is a power of two >= min_alignment.
  void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if constexpr (!ImplementsLibcRules<Heap>) {
      if (!may_exist(bytes, alignment)) [[unlikely]]
        return nullptr;
    }
    return counted(heap_.allocate(bytes, alignment));
  }

  void* malloc(std::size_t bytes) noexcept { return allocate(bytes, min_alignment); }

  void* calloc(std::size_t count, std::size_t each_bytes) noexcept {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, each_bytes, &bytes)) [[unlikely]]
      return fail(ENOMEM);
    if constexpr (ImplementsLibcRules<Heap>) {
      return counted(heap_.allocate_zeroed(bytes));
    } else {
      void* block = allocate(bytes, min_alignment);
      // The heap may return used memory, and programs use all that malloc_usable_size reports.
      if (block != nullptr) [[likely]]
        std::memset(block, 0, Heap::usable_size(block));
      return block;
    }
  }

  // A null `old` allocates; zero `bytes` frees and returns null; on failure the old block is
  // untouched and still in use.
  void* realloc(void* old, std::size_t bytes) noexcept {
    if constexpr (requires { Heap::surely_stays(old, bytes); }) {
      if (Heap::surely_stays(old, bytes)) return old;
    }
    return resize_or_move(old, bytes);
  }

  // The same, aligned to a power of two. Heaps with this function either state the alignment that
  // all blocks of a size have, or check sizes and satisfy each request exactly.
  void* realloc_aligned(void* old, std::size_t alignment, std::size_t bytes) noexcept {
    if (old == nullptr) return memalign(alignment, bytes);
    if (bytes == 0) return realloc(old, bytes);
    if (!may_exist(bytes, alignment)) [[unlikely]]
      return fail(ENOMEM);
    if constexpr (!ChecksSizes<Heap>) {
      if (reinterpret_cast<std::uintptr_t>(old) % alignment == 0) {
        if (alignment <= Heap::alignment_of_all(bytes)) return realloc(old, bytes);
        if (heap_.resize(old, bytes)) return old;
      }
    }
    if (!Heap::is_block(old, FoundBy::realloc)) [[unlikely]]
      return fail(ENOMEM);
    void* const moved = memalign(alignment, bytes);
    if (moved == nullptr) return nullptr;
    const std::size_t old_bytes = bytes_of(old);
    std::memcpy(moved, old, bytes < old_bytes ? bytes : old_bytes);
    free(old);
    return moved;
  }

  // Preserves errno: cleaning up after an error must not hide it (glibc manual, "Freeing Memory
  // Allocated with malloc").
  [[gnu::always_inline]] void free(void* block) noexcept {
    count_free(block);
    if constexpr (ImplementsLibcRules<Heap>) {
      heap_.release(block);
    } else if (block != nullptr) {
      release_keeping_errno(block);
    }
  }

  // C23: size and alignment must be those of the request. Errors that the heap does not check for
  // have no effect, as in glibc.
  void free_sized(void* block, std::size_t bytes, std::size_t alignment = min_alignment) noexcept {
    check_size(block, bytes, alignment);
    free(block);
  }

  // Reports a size passed to a sized free or delete that is larger than the block; classic heaps do
  // this in debug builds. (A smaller one may be right: realloc may leave a block larger than
  // requested.)
  static void check_size(const void* block, std::size_t bytes,
                         [[maybe_unused]] std::size_t alignment = min_alignment) noexcept {
    if constexpr (debug_level < 1 && !ImplementsLibcRules<Heap>) return;
    if (block == nullptr) return;
    if constexpr (ChecksSizes<Heap>) {
      Heap::check_size(block, bytes, alignment);
    } else if constexpr (ImplementsLibcRules<Heap>) {
      Heap::check_size(block, bytes);
    } else {
      check(bytes <= usable_size(block), "a sized free names more bytes than the block has", block);
    }
  }

  // mallopt's M_TOP_PAD; no effect on a heap that does not grow by the break.
  void set_growth(std::size_t bytes) noexcept {
    if constexpr (requires { heap_.set_growth(bytes); }) heap_.set_growth(bytes);
  }

  // Alignments above malloc's that are not a power of two are rounded up to the next one (as in
  // glibc).
  void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
    if (alignment > max_alignment) [[unlikely]]
      return fail(EINVAL);
    return allocate(bytes, alignment <= min_alignment ? min_alignment : std::bit_ceil(alignment));
  }

  // Accepts only powers of two (like glibc 2.38 and later).
  void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    if (!is_power_of_two(alignment)) [[unlikely]]
      return fail(EINVAL);
    return allocate(bytes, alignment < min_alignment ? min_alignment : alignment);
  }

  // The only aligned function that returns its error, and sets `*result` only on success (POSIX).
  int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
    if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
    void* block = try_allocate(bytes, alignment < min_alignment ? min_alignment : alignment);
    if (block == nullptr) [[unlikely]]
      return ENOMEM;
    *result = block;
    return 0;
  }

  void* valloc(std::size_t bytes) noexcept { return allocate(bytes, os::page_bytes()); }

  // Whole pages: at least one, and enough for `bytes`.
  void* pvalloc(std::size_t bytes) noexcept {
    if (bytes > max_object_bytes) [[unlikely]]
      return fail(ENOMEM);
    return allocate(align_up(bytes == 0 ? 1 : bytes, os::page_bytes()), os::page_bytes());
  }

  static std::size_t usable_size(const void* block) noexcept {
    return block == nullptr ? 0 : Heap::usable_size(block);
  }

  // The largest size that costs no more memory than `bytes`; 0 if no block can be that large.
  static std::size_t good_size(std::size_t bytes, std::size_t alignment = min_alignment) noexcept {
    if (!may_exist(bytes, alignment)) return 0;
    std::size_t good = 0;
    if constexpr (requires { Heap::good_size(bytes, alignment); }) {
      good = Heap::good_size(bytes, alignment);
    } else {
      good = Heap::good_size(bytes);
    }
    return may_exist(good, alignment) ? good : 0;
  }

 private:
  static_assert(std::is_trivially_destructible_v<Heap>,
                "the program frees blocks until its very last instruction: heaps have no end");

  // The largest power of two in size_t.
  static constexpr std::size_t max_alignment = ~(SIZE_MAX >> 1);

  // Whether an object of this size and alignment can exist. Heaps rely on bytes + alignment + any
  // header not overflowing.
  static constexpr bool may_exist(std::size_t bytes, std::size_t alignment) noexcept {
    return alignment <= max_object_bytes && bytes <= max_object_bytes - alignment;
  }

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if constexpr (ImplementsLibcRules<Heap>) {
      return counted(heap_.allocate(bytes, alignment));
    } else {
      void* block = try_allocate(bytes, alignment);
      return block != nullptr ? block : fail(ENOMEM);
    }
  }

  // Count allocations and frees. A realloc that moves the block counts as both, one that does not
  // as neither.
  static void* counted(void* block) noexcept {
    if constexpr (counting) {
      if (block != nullptr) count_event(Event::allocations);
    }
    return block;
  }
  static void count_free(const void* block) noexcept {
    if constexpr (counting) {
      if (block != nullptr) count_event(Event::frees);
    }
  }

  static std::size_t bytes_of(const void* block) noexcept {
    if constexpr (ImplementsLibcRules<Heap>) {
      return Heap::bytes_of(block);
    } else {
      return Heap::usable_size(block);
    }
  }

  // Out of line, since every form of free and delete calls it.
  [[gnu::noinline]] void release_keeping_errno(void* block) noexcept {
    const int saved_errno = errno;
    heap_.release(block);
    errno = saved_errno;
  }

  [[gnu::noinline]] void* resize_or_move(void* old, std::size_t bytes) noexcept {
    if (old == nullptr) return malloc(bytes);
    if (bytes == 0) {
      free(old);
      return nullptr;
    }
    if (!may_exist(bytes, min_alignment)) [[unlikely]]
      return fail(ENOMEM);
    return heap_.resize(old, bytes) ? old : move(old, bytes);
  }

  // Moves the contents to another block.
  [[gnu::noinline]] void* move(void* old, std::size_t bytes) noexcept {
    if constexpr (ImplementsLibcRules<Heap>) {
      if (!Heap::is_block(old, FoundBy::realloc)) [[unlikely]]
        return fail(ENOMEM);
      if (void* const moved = heap_.move(old, bytes); moved != nullptr) {
        if constexpr (counting) count_free(counted(old));
        return moved;
      }
    }
    const std::size_t old_bytes = bytes_of(old);
    std::size_t wanted = bytes;
    if constexpr (ImplementsLibcRules<Heap>) wanted = Heap::size_to_grow_into(old_bytes, bytes);
    const int kept = errno;
    void* moved = counted(heap_.allocate(wanted, min_alignment));
    if (moved == nullptr) [[unlikely]] {
      if (bytes > old_bytes) return fail(ENOMEM);
      errno = kept;  // the old block is large enough, so shrinking cannot fail
      if constexpr (ChecksSizes<Heap>) Heap::note_kept(old);
      return old;
    }
    std::memcpy(moved, old, bytes < old_bytes ? bytes : old_bytes);
    free(old);
    return moved;
  }

  [[gnu::cold]] static void* fail(int error) noexcept {
    if (error == ENOMEM) os::explain_refusal();
    errno = error;
    return nullptr;
  }

  Heap heap_;
};

}  // namespace ts
