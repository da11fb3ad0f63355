// The core with the interface of every heap (base/heap_like.h): small requests go to the thread's
// cache bins, large ones to the page heap. There is one per process; its state is page_map,
// page_heap and the thread's heap.
#pragma once

#include "base/check.h"
#include "core/colours.h"
#include "core/fork.h"
#include "core/hooks.h"
#include "core/invariants.h"
#include "core/large_blocks.h"
#include "core/misuse.h"
#include "core/thread_heap.h"
#include "core/view.h"
#include "os/os.h"

namespace ts::engine {

class CoreHeap {
 public:
  static constexpr bool implements_libc_rules = true;  // libc/libc_rules.h

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (alignment <= min_alignment) [[likely]] {
      if (bytes <= max_fine_bytes) [[likely]]
        return allocate_small(bytes, bin_offsets[bytes]);
      if (bytes <= max_small_bytes)
        return allocate_small(bytes, class_for(bytes) * sizeof(CacheBin));
      return allocate_large(bytes, alignment, nullptr);
    }
    return allocate_aligned(bytes, alignment);
  }

  // A block with malloc's alignment, if one is at hand; else `otherwise(bytes)`.
  [[gnu::always_inline]] void* allocate_or(std::size_t bytes, auto otherwise) {
    return bytes <= max_fine_bytes ? allocate_small_or(bytes, bin_offsets[bytes], otherwise)
                                   : otherwise(bytes);
  }

  // All usable bytes are zero; clean memory is not written to.
  void* allocate_zeroed(std::size_t bytes) noexcept;

  [[gnu::always_inline]] void release(void* p) noexcept { engine::release(p); }
  // Whether realloc leaves the block where it is; false if that needs a closer look (resize), for
  // null, and for 0 bytes.
  static bool surely_stays(const void* p, std::size_t bytes) noexcept {
    const std::size_t page = page_of(p);
    const PageMapEntry entry = entry_at(page);
    const std::size_t now = size_class_of(entry).block_bytes;  // 0 outside of slabs
    return bytes - 1 < now && is_well_used(now, bytes) && is_surely_small_block(p, page, entry);
  }
  // False also for a sampled block, and for an address that is not a block, which realloc reports.
  bool resize(void* p, std::size_t bytes) noexcept {
    const PageMapEntry entry = entry_of(p);
    if ((entry & large_entry) != 0) return bytes > max_shared_bytes && resize_large(p, bytes);
    const std::size_t now = size_class_of(entry).block_bytes;
    return bytes <= now && is_well_used(now, bytes) && entry != 0 && is_small_block(p, entry);
  }
  // Whether a block in use may begin there; reports misuse if not.
  static bool is_block(const void* p, FoundBy found_by) noexcept {
    return is_in_use(p) || report_invalid_pointer(p, found_by);
  }
  // Reports a size larger than the block. If `p` is not a block, free reports that.
  static void check_size(const void* p, std::size_t bytes) noexcept {
    if (!surely_has(p, bytes)) check_larger_size(p, bytes);
  }
  static constexpr std::size_t max_sized_bytes = max_fine_bytes;
  // Frees a block for which surely_has() is true; else calls `otherwise()`.
  [[gnu::always_inline]] void release_sized(void* p, std::size_t bytes, auto otherwise) noexcept {
    engine::release_sized(p, bytes, otherwise);
  }
  // Whether a block of at least this size surely begins there; false if that needs a closer look.
  static bool surely_has(const void* p, std::size_t bytes) noexcept {
    return bytes <= max_fine_bytes && has_class_for(entry_of(p), bytes);
  }
  // Moves the block's pages to a larger block, and releases `p`. Null, with nothing changed, if
  // copying is better.
  void* move(void* p, std::size_t bytes) noexcept {
    const PageMapEntry entry = entry_of(p);
    if (entry == 0) return bytes <= hooks::foreign_bytes(p) ? p : nullptr;  // where it is
    return (entry & large_entry) != 0 ? move_large(p, bytes) : nullptr;
  }
  // How many bytes to allocate for a block that outgrew its `old_bytes`. A block that grows once
  // tends to grow again: an eighth more spares many copies. Large blocks move their pages instead.
  static constexpr std::size_t size_to_grow_into(std::size_t old_bytes,
                                                 std::size_t bytes) noexcept {
    const std::size_t roomy = old_bytes + old_bytes / 8;
    return old_bytes < bytes && bytes < roomy && roomy <= max_shared_bytes ? roomy : bytes;
  }

  // The alignment of every block of this size: large ones begin at a cache line (colours.h).
  static constexpr std::size_t alignment_of_all(std::size_t bytes) noexcept {
    return bytes > max_small_bytes ? line_bytes : min_alignment;
  }

  // 0 if `p` is not a block, which is reported.
  static std::size_t usable_size(const void* p) noexcept {
    const std::size_t page = page_of(p);
    const PageMapEntry entry = entry_at(page);
    if (is_of_slab(entry) && is_surely_small_block(p, page, entry)) [[likely]]
      return size_class_of(entry).block_bytes;
    return is_block(p, FoundBy::usable_size) ? bytes_of(p) : 0;
  }
  // The size of a block in use.
  static std::size_t bytes_of(const void* p) noexcept;
  static std::size_t good_size(std::size_t bytes, std::size_t alignment = min_alignment) noexcept;
  HeapMeasures measures() noexcept { return measure(); }
  bool walk(BlockVisitor visit, void* argument) noexcept { return walk_blocks(visit, argument); }
  // Flushes the caches of the calling thread, abandoned heaps and the common heap. Then reclaims
  // from all other heaps, and purges free memory down to about `keep_bytes`; false if nothing was
  // purged.
  bool trim(std::size_t keep_bytes) noexcept;
  // Flushes only the caches of the calling thread.
  void flush_thread() noexcept;
  // Whether a block in use begins there.
  static bool owns(const void* p) noexcept {
    BlockView block{};
    MapExtent pages{};
    return find_block(p, block, pages) && block.payload == p && block.state == BlockState::used;
  }
  static bool find_block(const void* p, BlockView& block, MapExtent& pages) noexcept {
    return engine::find_block(p, block, pages);
  }
  static bool walk_pages(MapVisitor visit, void* argument) noexcept {
    return walk_spans(visit, argument);
  }
  // Whether the whole engine satisfies its invariants (invariants.h). No other thread may be in it.
  bool is_valid() noexcept {
    const Fault fault = find_engine_fault();
    check(!fault, fault.equation, fault.where);  // by name, where debug levels are on
    return !fault;
  }
  // Sets up what the clock and misuse reports need. Blocks may have been handed out before.
  void begin_process(const char*) noexcept {
    os::find_clock();
    os::find_memory_rule();
    os::find_stack_functions();
  }
  void fork_prepare() noexcept { engine::fork_prepare(); }
  void fork_parent() noexcept { engine::fork_parent(); }
  void fork_child() noexcept { engine::fork_child(); }

 private:
  // A small block that would be half empty moves to a slab of its size.
  static constexpr bool is_well_used(std::size_t block_bytes, std::size_t bytes) noexcept {
    return bytes > block_bytes / 2 || block_bytes <= 64;
  }
  static void* allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept;
  // The rest of check_size(), for a block that may be smaller than `bytes`.
  [[gnu::noinline]] static void check_larger_size(const void* p, std::size_t bytes) noexcept;
};

}  // namespace ts::engine
