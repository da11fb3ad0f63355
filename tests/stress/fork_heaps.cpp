// The fork drill (fork_drill.h) of heaps as objects: all strategies, fits and sources at once in
// one process, since a fork must hold all of them together, and in an order that cannot deadlock.
#include <cstdio>
#include <cstdlib>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/mapped_array.h"
#include "stress/fork_drill.h"
#include "tsmalloc/classic.h"

namespace ts::stress {
namespace {

constexpr std::size_t heaps_count = std::size_t{TS_STRATEGY_COUNT} * TS_FIT_COUNT * TS_SOURCE_COUNT;
constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

ts_heap* heaps[heaps_count];

ts_source source_of(std::size_t heap) { return static_cast<ts_source>(heap % TS_SOURCE_COUNT); }

// Growth by what is missing, and giving back soon: the locks around the sources are busy.
void create_heaps(test::MappedArray<std::byte>& buffers) {
  for (std::size_t i = 0; i < heaps_count; ++i) {
    const std::size_t cell = i / TS_SOURCE_COUNT;
    ts_heap_options options{};
    options.strategy = static_cast<ts_strategy>(cell / TS_FIT_COUNT);
    options.fit = static_cast<ts_fit>(cell % TS_FIT_COUNT);
    options.source = source_of(i);
    if (options.source == TS_SOURCE_BUFFER) {
      options.buffer = &buffers[i * buffer_bytes];
      options.buffer_size = buffer_bytes;
    }
    options.trim_threshold = 4096;
    heaps[i] = ts_heap_create(&options);
    if (heaps[i] == nullptr) {
      std::perror("FAILED: ts_heap_create");
      std::exit(1);
    }
  }
}

Block make_block(test::Random& random) {
  const std::size_t heap = random.below(heaps_count);
  const std::size_t bytes = random.one_in(50) ? random.below(100'000) : random.below(2'000);
  void* address = random.one_in(4) ? ts_heap_aligned_alloc(heaps[heap], 64, bytes)
                                   : ts_heap_malloc(heaps[heap], bytes);
  if (address != nullptr && random.one_in(4)) {
    if (void* moved = ts_heap_realloc(heaps[heap], address, bytes + 64)) address = moved;
  }
  if (address == nullptr && source_of(heap) != TS_SOURCE_BUFFER) {
    std::fputs("FAILED: ts_heap_malloc returned null\n", stderr);
    std::_Exit(1);
  }
  return {.address = static_cast<char*>(address), .bytes = bytes, .key = 0, .heap = heap};
}

void release_block(const Block& block) { ts_heap_free(heaps[block.heap], block.address); }

int is_used(const ts_block* block, void*) { return block->state == TS_BLOCK_USED ? 1 : 0; }

// After everything is freed every heap must be sound, and have no lost block.
bool heaps_are_whole() {
  bool whole = true;
  for (std::size_t i = 0; i < heaps_count; ++i) {
    if (ts_heap_check(heaps[i]) == 1 && ts_heap_walk(heaps[i], is_used, nullptr) == 0) continue;
    const std::size_t cell = i / TS_SOURCE_COUNT;
    std::fprintf(stderr, "FAILED: heap %s-%s, source %d: not whole after everything was freed\n",
                 ts_strategy_name(static_cast<ts_strategy>(cell / TS_FIT_COUNT)),
                 ts_fit_name(static_cast<ts_fit>(cell % TS_FIT_COUNT)), source_of(i));
    whole = false;
  }
  return whole;
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  using namespace ts::stress;
  ts::test::Arguments arguments{argc, argv, "Forks from a program full of threads and heaps."};
  const Drill drill{.forks = arguments.number("forks", 100, "children"),
                    .threads = arguments.number("threads", 8, "threads that work meanwhile"),
                    .seed = arguments.number("seed", 1, "of what the threads do")};
  arguments.finish();

  ts::test::settle_libc_break();
  ts::test::MappedArray<std::byte> buffers{heaps_count * buffer_bytes};
  create_heaps(buffers);
  const int status = run_drill({"heaps as objects", make_block, release_block}, drill);
  if (status != 0 || !heaps_are_whole()) return 1;
  for (ts_heap* heap : heaps) ts_heap_destroy(heap);
  return 0;
}
