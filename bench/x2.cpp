// Experiment X2 of the source reports on one heap of any strategy and fit, set up as theirs: the
// segment grows by sbrk, by exactly what is missing, and never shrinks. Prints the time and the counts
// that explain it, one a line; dev/x2 runs it often and compares.
#include <cstdio>
#include <cstring>

#include "programs/allocator.h"
#include "programs/measurement.h"
#include "tsmalloc/tsmalloc.h"

namespace {

template <class Enum>
bool parse(const char* text, const char* (*name_of)(Enum), Enum count, Enum& value) {
  for (int i = 0; i < count; ++i) {
    value = static_cast<Enum>(i);
    if (text != nullptr && std::strcmp(text, name_of(value)) == 0) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "Experiment X2: time and data segment of threads that allocate."};
  const MeasurementOptions options = MeasurementOptions::from(arguments);
  const std::uint64_t growth =
      arguments.number("growth", 0, "bytes that the segment grows by at least");
  const char* const strategy = arguments.word("STRATEGY [FIT]");
  const char* const fit = arguments.word("STRATEGY [FIT]");
  arguments.finish();

  ts_heap_options heap_options{};
  heap_options.source = TS_SOURCE_SBRK;
  heap_options.growth_size = growth;
  if (!parse(strategy, ts_strategy_name, TS_STRATEGY_COUNT, heap_options.strategy))
    arguments.fail("give a strategy (lock rwlock nolock arenas cached lockfree), not",
                   strategy != nullptr ? strategy : "");
  if (!parse(fit != nullptr ? fit : "best", ts_fit_name, TS_FIT_COUNT, heap_options.fit))
    arguments.fail("no such fit (first best worst)", fit);

  settle_libc_break();
  struct Heap {
    ts_heap* heap;
    void* allocate(std::size_t bytes) const { return ts_heap_malloc(heap, bytes); }
    void release(void* block) const { ts_heap_free(heap, block); }
  };
  ts_heap* const heap = ts_heap_create(&heap_options);
  if (heap == nullptr) {
    std::perror("ts_heap_create");
    return 1;
  }
  char name[64];
  std::snprintf(name, sizeof name, "%s-%s", ts_strategy_name(heap_options.strategy),
                ts_fit_name(heap_options.fit));
  run_measurement(options, Heap{heap}, [&](const MeasurementFigures& figures) {
    ts_heap_measures measures{};
    ts_heap_measure(heap, &measures);
    print_measurement(name, options, figures, measures.segment_size, measures.free_size,
                      measures.sbrk_calls);
    std::printf("chunks: %zu\nfree_blocks: %zu\n", measures.chunks, measures.free_blocks);
  });
  ts_heap_destroy(heap);
  return 0;
}
