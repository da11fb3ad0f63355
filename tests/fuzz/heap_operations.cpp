// Interprets any bytes as a program under a classic heap (play.h); the first two choose one of the
// 18 heaps and one of the stress test's settings. Each input gets a new heap.
#include <cstdio>
#include <memory>

#include "any_heap.h"
#include "fuzz/play.h"
#include "fuzz/target.h"
#include "stress/settings.h"

namespace ts::fuzz {
namespace {

using testing::AnyHeap;

// The input's heap, as one type.
class HeapInUse {
 public:
  static inline AnyHeap* heap;

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    return heap->allocate(bytes, alignment);
  }
  void release(void* payload) noexcept { heap->release(payload); }
  bool resize(void* payload, std::size_t bytes) noexcept { return heap->resize(payload, bytes); }
  static std::size_t usable_size(const void* payload) noexcept {
    return heap->usable_size(payload);
  }
  static std::size_t good_size(std::size_t bytes) noexcept { return heap->good_size(bytes); }
  HeapMeasures measures() noexcept { return heap->measures(); }
  bool walk(BlockVisitor visit, void* argument) noexcept { return heap->walk(visit, argument); }
  bool trim(std::size_t keep_bytes) noexcept { return heap->trim(keep_bytes); }
  bool is_valid() noexcept { return heap->is_valid(); }
  void fork_prepare() noexcept {}
  void fork_parent() noexcept {}
  void fork_child() noexcept {}
};
static_assert(HeapLike<HeapInUse>);

// The statistics are the sums of the walk, to the byte.
struct Checks {
  bool may_refuse;
  std::size_t max_bytes;

  static bool is_apart(const void*) { return false; }
  static void measures(const HeapMeasures& told, const Walked& walked) {
    const auto with_tags = [](std::size_t bytes, std::size_t blocks) {
      return bytes + blocks * classic::tag_bytes;
    };
    require(told.free_blocks == walked.free_blocks, "another number of free blocks");
    require(told.free_bytes == with_tags(walked.free_bytes, walked.free_blocks),
            "another size of the free blocks");
    require(told.cached_bytes == with_tags(walked.cached_bytes, walked.cached_blocks),
            "another size of the caches");
    require(told.segment_bytes == with_tags(walked.bytes, walked.blocks) +
                                      told.chunks * classic::Chunk::overhead_bytes,
            "the segment is not the sum of its blocks");
  }
  static void end(const HeapMeasures&, const Walked& walked) {
    require(walked.free_blocks == walked.blocks, "not all memory is free in the end");
  }
};

// At an odd address.
alignas(64) std::byte buffer[stress::buffer_bytes + 1];

classic::HeapConfig with_buffer(classic::HeapConfig config) {
  if (config.source.kind == classic::SourceKind::buffer) {
    config.source.buffer = &buffer[1];
    config.source.buffer_bytes = stress::buffer_bytes;
  }
  return config;
}

// A heap that returns nothing keeps each mapping or piece of the break that a growing block ever
// occupied: large blocks would take all memory.
bool gives_back(const testing::Cell& cell, const classic::HeapConfig& config) {
  return config.trim_threshold_bytes != classic::never_trim &&
         (cell.strategy != "lockfree" || config.source.kind == classic::SourceKind::mmap);
}

std::size_t inputs_of[testing::cells.size()];

}  // namespace

bool report_totals() {
  std::size_t least = inputs_of[0];
  for (const std::size_t inputs : inputs_of) least = inputs < least ? inputs : least;
  print_totals();
  std::printf("; each heap %zu inputs or more\n", least);
  return least != 0 && totals_are_complete();
}

}  // namespace ts::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace ts;
  fuzz::catch_system_calls();
  // This makes the key by which heaps learn about thread exits.
  for (const testing::Cell& cell : testing::cells) {
    const std::unique_ptr<testing::AnyHeap> heap = cell.make(classic::by_mmap);
    heap->release(heap->allocate(1, min_alignment));
  }
  fuzz::Seats::make_key();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts;
  fuzz::Input input{data, size};
  const std::size_t number = input.byte() % testing::cells.size();
  const testing::Cell& cell = testing::cells[number];
  const stress::Setting& setting = stress::settings[input.byte() % stress::settings.size()];
  if (setting.nolock_only && cell.strategy != "nolock") return 0;
  ++fuzz::inputs_of[number];
  const std::unique_ptr<testing::AnyHeap> heap = cell.make(fuzz::with_buffer(setting.config));
  fuzz::HeapInUse::heap = heap.get();
  LibcRules<fuzz::HeapInUse> allocator;
  const bool is_bounded = setting.may_refuse || !fuzz::gives_back(cell, setting.config);
  const std::size_t most_bytes = is_bounded ? setting.max_bytes : SIZE_MAX;
  const fuzz::Checks checks{.may_refuse = setting.may_refuse, .max_bytes = most_bytes};
  fuzz::Play<fuzz::HeapInUse, fuzz::Checks>{allocator, checks, input}.run();
  return 0;
}
