#include "inspect/batches.h"

#include <algorithm>

namespace ts {

void Batches::add(const EngineImage& image, const engine::ThreadHeap& heap, bool is_ended) {
  for (const engine::RemoteBatch& batch : heap.batches) {
    const engine::Span* const slab = batch.slab;
    if (batch.count == 0 || slab == nullptr) continue;
    const std::size_t page =
        (address_in(slab) - address_in(image.map().spans)) / sizeof(engine::Span);
    if (page < image.page_count()) batches_.add({page, batch.count, is_ended});
  }
}

void Batches::sort() {
  std::sort(batches_.begin(), batches_.end(),
            [](const Batch& a, const Batch& b) { return a.page < b.page; });
}

Batches::Blocks Batches::take(std::size_t page) {
  Blocks blocks;
  for (; next_ < batches_.count() && batches_[next_].page <= page; ++next_) {
    const Batch& batch = batches_[next_];
    if (batch.page == page)
      (batch.is_ended ? blocks.of_ended_threads : blocks.of_threads) += batch.count;
  }
  return blocks;
}

}  // namespace ts
