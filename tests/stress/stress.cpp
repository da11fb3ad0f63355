// The stress test: random work of many threads on one cell of the matrix, every block's contents
// checked (run.h). Repeatable up to the interleaving of the threads: the seed decides what each of
// them does.
//
//   stress STRATEGY FIT SETTING [--seed N] [--seconds N] [--seats N] [--rounds N] [--operations N]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "stress/run.h"

namespace ts::stress {
namespace {

using testing::Cell;
using testing::cells;

const Cell* find_cell(const char* strategy, const char* fit) {
  for (const Cell& cell : cells) {
    if (cell.strategy == strategy && cell.fit == fit) return &cell;
  }
  return nullptr;
}

const Setting* find_setting(const char* name) {
  for (const Setting& setting : settings) {
    if (std::strcmp(setting.name, name) == 0) return &setting;
  }
  return nullptr;
}

// The setting's configuration, with a buffer at an odd address where it lives in one.
classic::HeapConfig with_buffer(classic::HeapConfig config, test::MappedArray<std::byte>& buffer) {
  if (config.source.kind == classic::SourceKind::buffer) {
    config.source.buffer = &buffer[1];
    config.source.buffer_bytes = buffer.size() - 1;
  }
  return config;
}

// Adjacent free blocks must be merged, for example in a chunk that could not be returned. Where
// blocks change owner, some stay apart for good.
void require_merged(const char* name, AnyHeap& heap) {
  std::size_t blocks = 0;
  heap.walk(
      [](const BlockView&, void* count) {
        ++*static_cast<std::size_t*>(count);
        return true;
      },
      &blocks);
  if (blocks == heap.measures().chunks) return;
  std::fprintf(stderr, "FAILED: %s: %zu free blocks are left in %zu chunks\n", name, blocks,
               heap.measures().chunks);
  std::abort();
}

void run_once(const Cell& cell, const Setting& setting, const Plan& plan) {
  char name[128];
  std::snprintf(name, sizeof name, "%s %s --seed %llu", cell.name(' ').c_str(), setting.name,
                static_cast<unsigned long long>(plan.seed));
  std::printf("%s: ", name);
  std::fflush(stdout);
  test::MappedArray<std::byte> buffer{buffer_bytes};
  const std::unique_ptr<AnyHeap> heap = cell.make(with_buffer(setting.config, buffer));
  const Run::Totals totals = Run{name, *heap, setting, plan}.run();
  if (cell.strategy != "nolock") require_merged(name, *heap);
  const HeapMeasures measures = heap->measures();
  std::printf(
      "%zu allocations, %zu freed by others, %zu refused, %zu threads, grown %zu times: sound\n",
      totals.allocations, totals.foreign_frees, totals.refusals, totals.threads,
      measures.grow_calls);
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  using namespace ts::stress;
  using Clock = std::chrono::steady_clock;
  ts::test::Arguments arguments{argc, argv,
                                "Random work of many threads on one heap, everything checked."};
  Plan plan{
      .seed = arguments.number("seed", 1, "of what the threads do"),
      .seats = arguments.number("seats", 4, "threads at a time"),
      .rounds = arguments.number("rounds", 12, "rounds, with a check of everything after each"),
      .operations = arguments.number("operations", 1'000, "per seat and round"),
      .places = arguments.number("places", 128, "blocks that a seat holds at most")};
  const std::chrono::seconds time{
      arguments.number("seconds", 0, "go on with the next seeds for so long")};
  const char* const strategy = arguments.word("STRATEGY FIT SETTING");
  const char* const fit = arguments.word("STRATEGY FIT SETTING");
  const char* const setting_name = arguments.word("STRATEGY FIT SETTING");
  arguments.finish();
  if (strategy == nullptr || fit == nullptr || setting_name == nullptr)
    arguments.fail("give strategy, fit and setting; missing", "one");
  const Cell* const cell = find_cell(strategy, fit);
  if (cell == nullptr)
    arguments.fail("no such heap (lock rwlock nolock arenas cached lockfree; first best worst)",
                   strategy);
  const Setting* const setting = find_setting(setting_name);
  if (setting == nullptr)
    arguments.fail("no such setting (sbrk mmap small exact eager chunks buffer share)",
                   setting_name);
  if (setting->nolock_only && std::strcmp(strategy, "nolock") != 0)
    arguments.fail("only nolock has a fixed share, not", strategy);

  ts::test::settle_libc_break();
  const Clock::time_point end = Clock::now() + time;
  do {
    run_once(*cell, *setting, plan);
    ++plan.seed;
  } while (Clock::now() < end);
  return 0;
}
