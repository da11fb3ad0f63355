// Detection and reports of misuse; cold code. What is detected, how, and by which call:
//
//   a block in a cache bin is freed      its key (block_list.h)            this free
//   a block in its slab is freed         its key or its bit (SlabUse)      this free
//   the owner's block is freed twice     the bit of its batch or slab      the later free, or when
//   by other threads                     (remote_frees.h)                  the owner collects it
//   a large block is freed twice         its page's map entry              this free
//   no block begins at the pointer       map entry, is_multiple()          this free
//   a block that was never handed out    its bit                           when its bin is flushed
//   a free block was overwritten         its key, the ends of lists        a later malloc or flush
//
// docs/misuse.md has the complete list, with the features' part.
#pragma once

#include "base/check.h"
#include "core/page_map.h"

namespace ts::engine {

// Whether the block, in a slab with keyless_bit, is free.
[[gnu::noinline]] bool is_free_without_key(const void* p) noexcept;

// Whether a block of a slab may begin there, and has no key of a free one. `entry` is its page's.
inline bool may_be_in_use(const void* p, std::size_t page, PageMapEntry entry) noexcept {
  return is_multiple(offset_in_slab(p, page_map.pages[page]), size_class_of(entry).reciprocal) &&
         !has_key(p);
}
// Whether the block that may begin there is in use.
inline bool is_small_block(const void* p, PageMapEntry entry) noexcept {
  return may_be_in_use(p, page_of(p), entry) &&
         ((entry & keyless_bit) == 0 || !is_free_without_key(p));
}
// Whether it surely is, without a call; false if that needs the slab's bits.
inline bool is_surely_small_block(const void* p, std::size_t page, PageMapEntry entry) noexcept {
  return (entry & keyless_bit) == 0 && may_be_in_use(p, page, entry);
}

// Classifies the free of a block that is already free: no_beginning if the block was never handed
// out.
inline Misuse kind_of_free(const Span& slab, const BlockPlace& place) noexcept {
  return place.is_beginning && place.number < slab.carved ? Misuse::double_free
                                                          : Misuse::no_beginning;
}

// Whether a block in use, large or small, begins there.
bool is_in_use(const void* p) noexcept;

// To be called for a pointer at which no block in use begins. If it is a sampled block
// (sampled_guard.h), returns true, and frees it if `found_by` is free. Otherwise reports the misuse
// and returns false. The caller holds no lock.
[[gnu::cold, gnu::noinline]] bool report_invalid_pointer(const void* p, FoundBy found_by) noexcept;

}  // namespace ts::engine
