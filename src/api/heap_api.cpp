// Heaps as objects (classic.h): creates a heap with a strategy, fit and source chosen at run time,
// and forwards calls to it. Contradictory options are rejected.
#include <new>

#include "api/registry.h"
#include "classic/variants.h"

namespace ts::api {
namespace {

using classic::HeapConfig;
using classic::SourceKind;

// A heap and its handle, in one mapping.
template <HeapLike Heap>
struct HeapObject {
  explicit HeapObject(const HeapConfig& config, std::size_t mapped_bytes) noexcept
      : heap{config}, handle{&operations_of<Heap>, &heap, mapped_bytes} {}

  LibcRules<Heap> heap;
  ts_heap handle;
};

template <HeapLike Heap>
ts_heap* make(const HeapConfig& config) noexcept {
  const std::size_t bytes = align_up(sizeof(HeapObject<Heap>), os::page_bytes());
  void* const memory = os::map(bytes);
  if (memory == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const object = new (memory) HeapObject<Heap>{config, bytes};
  add(object->handle);
  return &object->handle;
}

using Make = ts_heap* (*)(const HeapConfig&);

// By strategy and fit, in the order of the public enumerations.
constexpr Make makers[TS_STRATEGY_COUNT][TS_FIT_COUNT] = {
    {make<classic::Lock<classic::FirstFit>>, make<classic::Lock<classic::BestFit>>,
     make<classic::Lock<classic::WorstFit>>},
    {make<classic::ReadWrite<classic::FirstFit>>, make<classic::ReadWrite<classic::BestFit>>,
     make<classic::ReadWrite<classic::WorstFit>>},
    {make<classic::PerThread<classic::FirstFit>>, make<classic::PerThread<classic::BestFit>>,
     make<classic::PerThread<classic::WorstFit>>},
    {make<classic::Arenas<classic::FirstFit>>, make<classic::Arenas<classic::BestFit>>,
     make<classic::Arenas<classic::WorstFit>>},
    {make<classic::Cached<classic::FirstFit>>, make<classic::Cached<classic::BestFit>>,
     make<classic::Cached<classic::WorstFit>>},
    {make<classic::LockFree<classic::FirstFit>>, make<classic::LockFree<classic::BestFit>>,
     make<classic::LockFree<classic::WorstFit>>},
};

constexpr const char* strategy_names[TS_STRATEGY_COUNT] = {"lock",   "rwlock", "nolock",
                                                           "arenas", "cached", "lockfree"};
constexpr const char* fit_names[TS_FIT_COUNT] = {"first", "best", "worst"};

template <class Enum>
constexpr bool in_range(Enum value, Enum count) noexcept {
  return static_cast<unsigned>(value) < static_cast<unsigned>(count);
}

bool make_sense(const ts_heap_options& options) noexcept {
  if (!in_range(options.strategy, TS_STRATEGY_COUNT) || !in_range(options.fit, TS_FIT_COUNT) ||
      !in_range(options.source, TS_SOURCE_COUNT))
    return false;
  const bool has_buffer = options.buffer != nullptr && options.buffer_size >= TS_BUFFER_MIN;
  const bool wants_buffer = options.source == TS_SOURCE_BUFFER;
  if (wants_buffer ? !has_buffer : (options.buffer != nullptr || options.buffer_size != 0))
    return false;
  if (options.thread_share != 0 && options.strategy != TS_STRATEGY_NOLOCK) return false;
  // A segment that grows by more would exceed the largest block.
  return options.growth_size <= classic::max_block_bytes / 2 &&
         options.thread_share <= classic::max_block_bytes / 2;
}

HeapConfig config_of(const ts_heap_options& options) noexcept {
  constexpr SourceKind kinds[TS_SOURCE_COUNT] = {SourceKind::mmap, SourceKind::sbrk,
                                                 SourceKind::buffer};
  return {.source = {.kind = kinds[options.source],
                     .growth_bytes = options.growth_size,
                     .buffer = static_cast<std::byte*>(options.buffer),
                     .buffer_bytes = options.buffer_size},
          .trim_threshold_bytes =
              options.trim_threshold == 0 ? classic::never_trim : options.trim_threshold,
          .thread_share_bytes = options.thread_share};
}

// Adapts a heap's walk to the public interface.
struct PublicVisit {
  int (*visit)(const ts_block*, void*);
  void* argument;
  int result;
};

bool visit_publicly(const BlockView& view, void* argument) {
  constexpr ts_block_state states[] = {TS_BLOCK_USED, TS_BLOCK_FREE, TS_BLOCK_CACHED};
  auto& visit = *static_cast<PublicVisit*>(argument);
  const ts_block block{view.payload, view.bytes, states[static_cast<unsigned>(view.state)],
                       view.owner};
  visit.result = visit.visit(&block, visit.argument);
  return visit.result == 0;
}

}  // namespace
}  // namespace ts::api

extern "C" {

ts_heap* ts_heap_create(const ts_heap_options* options) {
  if (options == nullptr || !ts::api::make_sense(*options)) {
    errno = EINVAL;
    return nullptr;
  }
  return ts::api::makers[options->strategy][options->fit](ts::api::config_of(*options));
}

void ts_heap_destroy(ts_heap* heap) {
  if (heap == nullptr) return;
  ts::api::remove_and_destroy(*heap);
  // The handle is in the mapping that is about to be unmapped.
  const std::size_t mapped_bytes = heap->mapped_bytes;
  void* const begin = heap->self;
  ts::os::unmap_unused(begin, mapped_bytes);
}

void* ts_heap_malloc(ts_heap* heap, size_t size) {
  return heap->operations->malloc(heap->self, size);
}

void* ts_heap_aligned_alloc(ts_heap* heap, size_t alignment, size_t size) {
  if (!ts::is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return heap->operations->memalign(heap->self, alignment, size);
}

void* ts_heap_calloc(ts_heap* heap, size_t count, size_t size) {
  return heap->operations->calloc(heap->self, count, size);
}

void* ts_heap_realloc(ts_heap* heap, void* block, size_t size) {
  // realloc would free the block; here a block of size 0 is a block.
  return heap->operations->realloc(heap->self, block, size == 0 ? 1 : size);
}

void ts_heap_free(ts_heap* heap, void* block) { heap->operations->free(heap->self, block); }

size_t ts_heap_usable_size(const ts_heap* heap, const void* block) {
  return heap->operations->usable_size(block);
}

void ts_heap_measure(ts_heap* heap, ts_heap_measures* measures) {
  const ts::HeapMeasures m = heap->operations->measures(heap->self);
  *measures = {m.segment_bytes, m.free_bytes, m.free_blocks, m.cached_bytes,
               m.grow_calls,    m.sbrk_calls, m.chunks,      m.heaps};
}

int ts_heap_walk(ts_heap* heap, int (*visit)(const ts_block*, void*), void* argument) {
  ts::api::PublicVisit public_visit{visit, argument, 0};
  heap->operations->walk(heap->self, ts::api::visit_publicly, &public_visit);
  return public_visit.result;
}

int ts_heap_trim(ts_heap* heap, size_t keep) {
  return heap->operations->trim(heap->self, keep) ? 1 : 0;
}

int ts_heap_check(ts_heap* heap) { return heap->operations->is_valid(heap->self) ? 1 : 0; }

const char* ts_strategy_name(ts_strategy strategy) {
  return ts::api::in_range(strategy, TS_STRATEGY_COUNT) ? ts::api::strategy_names[strategy]
                                                        : nullptr;
}

const char* ts_fit_name(ts_fit fit) {
  return ts::api::in_range(fit, TS_FIT_COUNT) ? ts::api::fit_names[fit] : nullptr;
}

}  // extern "C"
