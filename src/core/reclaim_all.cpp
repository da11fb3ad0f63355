#include "core/reclaim_all.h"

#include "core/heap_hold.h"
#include "core/reclaim.h"
#include "core/spare_lists.h"

namespace ts::engine {
namespace {

// One list at a time, so that the owner never waits for long; then the slabs.
bool reclaim_from(ThreadHeap& heap, bool takes_all_lists) noexcept {
  std::uint32_t lists_left = max_spare_lists;
  SpareList list;
  Span* taken = nullptr;
  do {
    list = {};
    reclaim_lock.lock();
    if (try_hold(heap, Holder::reclaimer)) {
      list = take_old_spare_list(heap, takes_all_lists, lists_left);
      if (list.first == nullptr) taken = take_reclaimable(heap, true);
      end_hold(heap);
    }
    reclaim_lock.unlock();
    send(list);
  } while (list.first != nullptr);
  return retire_slabs(taken);
}

}  // namespace

bool reclaim_all() noexcept {
  bool found = false;
  for_each_heap([&](ThreadHeap& heap) { found |= reclaim_from(heap, true); });
  return found;
}

void reclaim_idle() noexcept {
  for_each_heap([](ThreadHeap& heap) { reclaim_from(heap, false); });
}

}  // namespace ts::engine
