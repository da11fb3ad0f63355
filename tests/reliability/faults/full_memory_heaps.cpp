// Full memory, in the heaps of the public interface: every strategy over each source, with the
// heap's own check after each failure. (full_memory.cpp tests the drop-in libraries.)
//
//    full_memory_heaps          best fit, and some calls of each place
//    full_memory_heaps --long   every fit and every call
#include <tsmalloc/classic.h>

#include <cerrno>
#include <cstdio>

#include "reliability/faults/drill.h"

namespace ts::faults {
namespace {

ts_heap_options options;
ts_heap* heap = nullptr;

// A heap in a buffer runs out of buffer, not of system memory, and returns nothing.
constexpr std::size_t buffer_bytes = std::size_t{160} << 20;
alignas(4096) char buffer[buffer_bytes];

bool open_heap() {
  const int kept = errno;
  heap = ts_heap_create(&options);
  errno = kept;
  return heap != nullptr;
}
std::size_t bytes_in_use() {
  std::size_t bytes = 0;
  ts_heap_walk(
      heap,
      [](const ts_block* block, void* sum) {
        if (block->state == TS_BLOCK_USED) *static_cast<std::size_t*>(sum) += block->size;
        return 0;
      },
      &bytes);
  return bytes;
}

int try_heap(ts_strategy strategy, ts_fit fit, ts_source source, bool all) {
  static constexpr const char* source_names[] = {"mmap", "sbrk", "buffer"};
  static constexpr World worlds[] = {{"the system as it is", false, false, 0},
                                     {"a break that does not move", true, false, 0}};
  static char name[100];
  std::snprintf(name, sizeof name, "%s-%s by %s", ts_strategy_name(strategy), ts_fit_name(fit),
                source_names[source]);
  options = {};
  options.strategy = strategy;
  options.fit = fit;
  options.source = source;
  options.growth_size = source == TS_SOURCE_SBRK ? 128 << 10 : 1 << 20;
  options.trim_threshold = 32 << 20;
  if (source == TS_SOURCE_BUFFER) {
    options.buffer = buffer;
    options.buffer_size = buffer_bytes;
    options.growth_size = 0;
  }
  const Target target{
      .name = name,
      .keeps_errno = true,
      .open = open_heap,
      .allocate = [](std::size_t bytes) { return ts_heap_malloc(heap, bytes); },
      .allocate_zeroed = [](std::size_t bytes) { return ts_heap_calloc(heap, 1, bytes); },
      .allocate_aligned = [](std::size_t a,
                             std::size_t bytes) { return ts_heap_aligned_alloc(heap, a, bytes); },
      .resize = [](void* block, std::size_t bytes) { return ts_heap_realloc(heap, block, bytes); },
      .release = [](void* block) { ts_heap_free(heap, block); },
      .trim = [] { ts_heap_trim(heap, 0); },
      .bytes_in_use = bytes_in_use,
      .is_sound = [] { return ts_heap_check(heap) == 1; },
  };
  return run_drill(target, worlds, sizeof worlds / sizeof *worlds,
                   {source != TS_SOURCE_BUFFER, all ? SIZE_MAX : 1});
}

}  // namespace
}  // namespace ts::faults

int main(int argc, char** argv) {
  using namespace ts::faults;
  const bool all = is_long(argc, argv);
  int status = 0;
  for (int strategy = 0; strategy < TS_STRATEGY_COUNT; ++strategy) {
    for (int fit = 0; fit < TS_FIT_COUNT; ++fit) {
      if (fit != TS_FIT_BEST && !all) continue;
      for (int source = 0; source < TS_SOURCE_COUNT; ++source) {
        // A lock-free heap's pieces can come from anywhere, or from mappings.
        if (strategy == TS_STRATEGY_LOCKFREE && source != TS_SOURCE_MMAP) continue;
        status |= try_heap(static_cast<ts_strategy>(strategy), static_cast<ts_fit>(fit),
                           static_cast<ts_source>(source), all);
      }
    }
  }
  return status;
}
