// The functions from the source reports: ts_malloc_lock and ts_malloc_nolock (best fit over sbrk)
// and their two statistics.
#include "api/registry.h"
#include "classic/lock.h"
#include "classic/per_thread.h"

namespace ts {
namespace {

// As in the reports, these heaps grow with sbrk by exactly the missing bytes and never return
// memory.
constexpr classic::HeapConfig as_reported{
    .source = {.kind = classic::SourceKind::sbrk, .growth_bytes = 0},
    .trim_threshold_bytes = classic::never_trim};

using LockHeap = classic::Lock<classic::BestFit>;
using NoLockHeap = classic::PerThread<classic::BestFit>;

constinit LibcRules<LockHeap> lock_heap{as_reported};
constinit LibcRules<NoLockHeap> nolock_heap{as_reported};
constinit ts_heap lock_handle{&api::operations_of<LockHeap>, &lock_heap, 0};
constinit ts_heap nolock_handle{&api::operations_of<NoLockHeap>, &nolock_heap, 0};

[[gnu::constructor]] void register_heaps() noexcept {
  api::add(lock_handle);
  api::add(nolock_handle);
}

}  // namespace
}  // namespace ts

extern "C" {

void* ts_malloc_lock(size_t size) { return ts::lock_heap.malloc(size); }
void ts_free_lock(void* block) { ts::lock_heap.free(block); }

void* ts_malloc_nolock(size_t size) { return ts::nolock_heap.malloc(size); }
void ts_free_nolock(void* block) { ts::nolock_heap.free(block); }

size_t ts_data_segment_size(void) {
  return ts::lock_heap.heap().measures().segment_bytes +
         ts::nolock_heap.heap().measures().segment_bytes;
}

size_t ts_data_segment_free_space_size(void) {
  return ts::lock_heap.heap().measures().free_bytes + ts::nolock_heap.heap().measures().free_bytes;
}

}  // extern "C"
