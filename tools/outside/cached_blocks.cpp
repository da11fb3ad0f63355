// See cached_blocks.h. Damaged memory may have any numbers.
#include "outside/cached_blocks.h"

#include "engine/glance.h"

namespace ts {
namespace {

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
  std::size_t bytes = engine::bytes_in_bins(heap.bins, heap.capacities);
  if (is_set(&heap.has_sampling_bins))
    bytes += engine::bytes_in_bins(heap.sampling_bins, heap.sampling_capacities);
  for (const engine::RemoteBatch& batch : heap.batches)
    bytes += bytes_in_batch(process, image, batch);
  return bytes;
}

}  // namespace ts
