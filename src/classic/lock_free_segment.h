// The memory of a lock-free heap: mapped regions, or a break (sbrk or a caller's buffer). It grows
// when no free block is large enough; a region that is one free block is returned to the system.
// `free`, the heap's VersionedFreeBlocks, knows which blocks are free.
//
//   grow -> grow_mapping -> free.release         when the system refuses: unmap_free_regions, again
//        -> Source::grow -> free.release
//   unmap_if_region -> unmap_if_free -> free.take_whole -> MappedRegions::unmap
//
// Only the thread whose swap took a region's whole extent out of the free blocks unmaps the region.
// Regions are mapped and unmapped without a lock of this heap (mapped_regions.h); a break is moved
// under its source's lock.
#pragma once

#include "classic/mapped_regions.h"
#include "classic/source.h"
#include "classic/versioned_free_blocks.h"

namespace ts::classic {

template <FitPolicy Fit>
class LockFreeSegment {
 public:
  using FreeBlocks = VersionedFreeBlocks<Fit>;
  using Stash = NodePool::Stash;

  constexpr explicit LockFreeSegment(const SourceConfig& config) noexcept
      : config_{config}, source_{config} {}

  // Adds memory for a block to the free blocks; false if the system refuses.
  bool grow(FreeBlocks& free, Stash& stash, std::size_t block_bytes) noexcept {
    // Without nodes, more memory would only join the waiting blocks.
    if (free.any_waits()) return false;
    if (config_.kind == SourceKind::mmap) return grow_mapping(free, stash, block_bytes);
    const Source::Growth growth = source_.grow(block_bytes, block_bytes, nullptr);
    if (growth.chunk == nullptr) return false;
    growth.chunk->fence()->set_tag(Tag{0, 0, Tag::used_flag});
    free.release(stash, extent_of(*growth.chunk));
    return true;
  }

  // Unmaps a free block, if it is still free and fills its region: with this much free memory, an
  // empty region is not kept. A block within a region, or in a break, hardly ever begins and ends
  // as a region does; the list of regions decides.
  void unmap_if_region(FreeBlocks& free, Stash& stash, const Extent& block) noexcept {
    const MappedRegions::Region region = region_of(block);
    const std::size_t page = os::page_bytes();
    const bool is_likely = address_of(region.begin) % page == 0 && region.bytes % page == 0;
    if (block.bytes != 0 && is_likely && regions_.has(free.pool(), region))
      unmap_if_free(free, stash, region);
  }

  // True if any region was free.
  bool unmap_free_regions(FreeBlocks& free, Stash& stash) noexcept {
    bool unmapped = false;
    regions_.for_each(free.pool(), [&](const MappedRegions::Region& region) {
      unmapped = unmap_if_free(free, stash, region) || unmapped;
      return true;
    });
    return unmapped;
  }

  // Calls visit(Extent) for the range of blocks in each chunk and region, until a call returns
  // false; then returns false. No other thread may be inside.
  template <class Visit>
  bool for_each_extent(FreeBlocks& free, Visit visit) noexcept {
    return source_.for_each_chunk([&](Chunk& chunk) { return visit(extent_of(chunk)); }) &&
           regions_.for_each(free.pool(), [&](const MappedRegions::Region& region) {
             return visit(extent_of(region));
           });
  }

  void measure(FreeBlocks& free, HeapMeasures& measures) noexcept {
    source_.measure(measures);
    measures.segment_bytes += regions_.bytes();
    measures.grow_calls += regions_.maps();
    regions_.for_each(free.pool(), [&](const MappedRegions::Region&) {
      ++measures.chunks;
      return true;
    });
  }

  // Returns all memory to the system; no thread may be inside.
  void destroy(FreeBlocks& free) noexcept {
    source_.release_all();
    regions_.for_each(free.pool(), [](const MappedRegions::Region& region) {
      return os::unmap(region.begin, region.bytes);
    });
  }

  void fork_prepare() noexcept { source_.fork_prepare(); }
  void fork_parent() noexcept { source_.fork_parent(); }
  void fork_child() noexcept { source_.fork_child(); }

 private:
  // If the system refuses, perhaps because of unused memory of this heap, returns that and retries.
  bool grow_mapping(FreeBlocks& free, Stash& stash, std::size_t block_bytes) noexcept {
    const std::size_t needed = block_bytes + Chunk::overhead_bytes;
    const std::size_t least = config_.growth_bytes;
    const std::size_t bytes = align_up(needed > least ? needed : least, os::page_bytes());
    MappedRegions::Region region = regions_.map(free.pool(), stash, bytes);
    if (region.begin == nullptr && unmap_free_regions(free, stash))
      region = regions_.map(free.pool(), stash, bytes);
    if (region.begin == nullptr) return false;
    free.release(stash, extent_of(region));
    return true;
  }

  bool unmap_if_free(FreeBlocks& free, Stash& stash, const MappedRegions::Region& region) noexcept {
    const Extent all = extent_of(region);
    if (!free.take_whole(stash, all)) return false;
    if (regions_.unmap(free.pool(), region)) return true;
    free.release(stash, all);
    return false;
  }

  static Extent extent_of(Chunk& chunk) noexcept {
    return {chunk.first_block()->address(), chunk.bytes() - Chunk::overhead_bytes};
  }

  // The largest block of a region, as large as in a chunk of the same size (source.h). The unused
  // bytes at either end put blocks at 8 mod 16, and separate them from those of adjacent regions.
  static Extent extent_of(const MappedRegions::Region& region) noexcept {
    return {address_of(region.begin) + sizeof(Chunk), region.bytes - Chunk::overhead_bytes};
  }

  static MappedRegions::Region region_of(const Extent& all) noexcept {
    return {reinterpret_cast<std::byte*>(all.address - sizeof(Chunk)),
            all.bytes + Chunk::overhead_bytes};
  }

  const SourceConfig config_;
  Source source_;  // for a break; mappings are regions_
  MappedRegions regions_;
};

}  // namespace ts::classic
