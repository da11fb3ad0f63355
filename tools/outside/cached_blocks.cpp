// See cached_blocks.h. Damaged memory may have any numbers.
#include "outside/cached_blocks.h"

namespace ts {
namespace {

std::size_t bytes_in_bins(const engine::CacheBin* bins, const std::uint16_t* capacities) {
  std::size_t bytes = 0;
  for (unsigned c = 1; c < engine::class_count; ++c) {
    const std::int64_t blocks = std::int64_t{capacities[c]} - bins[c].capacity_left;
    if (blocks > 0 && blocks <= std::int64_t{engine::max_in_bin})
      bytes += static_cast<std::size_t>(blocks) * engine::size_classes[c].block_bytes;
  }
  return bytes;
}

std::size_t bytes_in_batch(const Process& process, const EngineImage& image,
                           const engine::RemoteBatch& batch) {
  const engine::Span* const slab = batch.slab;
  if (batch.count == 0 || slab == nullptr) return 0;
  const std::size_t page =
      (address_in(slab) - address_in(image.map().spans)) / sizeof(engine::Span);
  std::uint32_t entry = 0;
  if (page >= image.page_count() || !process.read(address_in(image.map().pages, page), entry))
    return 0;
  const unsigned size_class = engine::class_of(entry);
  return size_class < engine::class_count
             ? batch.count * std::size_t{engine::size_classes[size_class].block_bytes}
             : 0;
}

}  // namespace

std::size_t cached_bytes(const Process& process, const EngineImage& image,
                         const engine::ThreadHeap& heap) {
  std::size_t bytes = bytes_in_bins(heap.bins, heap.capacities);
  if (is_set(&heap.has_sampling_bins))
    bytes += bytes_in_bins(heap.sampling_bins, heap.sampling_capacities);
  for (const engine::RemoteBatch& batch : heap.batches)
    bytes += bytes_in_batch(process, image, batch);
  return bytes;
}

}  // namespace ts
