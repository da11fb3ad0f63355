// The workload of experiment X2 (the reports' thread_test_measurement), over any allocator: threads
// allocate blocks of varying sizes, and even-numbered ones also free other threads' blocks. It
// counts what explains the time, without a clock or a shared counter inside: frees by other
// threads, and memory that is allocated a second time.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <optional>

#include "programs/support/arguments.h"
#include "programs/support/heap_snapshot.h"
#include "programs/support/ledger.h"
#include "programs/support/team.h"

namespace ts::test {

// Sizes are the multiples of 32 up to 1024: four times 20,000 of them are 42 MB, as much as the
// data segments in reports A and C (the reports do not state their sizes).
inline constexpr std::size_t size_step_bytes = 32;
inline constexpr std::size_t size_steps = 32;

struct MeasurementOptions {
  std::size_t threads;
  std::size_t allocations;    // per thread
  std::size_t foreign_every;  // a thread with an even number frees a block of another one after so
                              // many allocations of its own; 0: never
  std::uint64_t seed;

  static MeasurementOptions from(Arguments& arguments) {
    return {
        arguments.number("threads", 4, "threads"),
        arguments.number("allocations", 20'000, "per thread"),
        arguments.number("foreign-every", 4,
                         "even threads free a foreign block after so many allocations; 0 never"),
        arguments.number("seed", 1, "of sizes and order")};
  }
};

struct MeasurementFigures {
  double seconds;
  std::size_t requested_bytes;
  std::size_t foreign_frees;
  std::size_t freed_bytes;   // by those
  std::size_t reused_bytes;  // allocated a second time
  double kernel_seconds;     // processor time of all threads there
  long page_faults;
  long waits;  // voluntary context switches: threads that slept on a lock
};

namespace detail {

struct Span {
  std::byte* begin;
  std::size_t bytes;
};

// Bytes of the spans that another span also covers: all bytes, minus those of the union.
// Overlapping blocks cannot have been live together, so this memory was allocated again.
inline std::size_t covered_again_bytes(MappedArray<Span>& spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::size_t again = 0;
  std::byte* covered_to = nullptr;
  for (const Span& span : spans) {
    std::byte* const end = span.begin + span.bytes;
    if (span.begin < covered_to)
      again += static_cast<std::size_t>((end < covered_to ? end : covered_to) - span.begin);
    if (end > covered_to) covered_to = end;
  }
  return again;
}

// The kernel's counts for this process so far.
struct Kernel {
  double seconds;
  long page_faults;
  long waits;

  static Kernel now() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return {static_cast<double>(usage.ru_stime.tv_sec) +
                static_cast<double>(usage.ru_stime.tv_usec) * 1e-6,
            usage.ru_minflt, usage.ru_nvcsw};
  }
};

// What one thread freed, on separate cache lines.
struct alignas(128) Frees {
  std::size_t count;
  std::size_t bytes;
};

// A block that any thread may free. Only the marks at its ends are written, so that the allocator
// takes the time.
using Slot = std::atomic<std::byte*>;

inline std::uint64_t mark_of(const std::byte* block) {
  return Random{reinterpret_cast<std::uintptr_t>(block)}.next();
}

inline void mark(std::byte* block, std::size_t bytes) {
  const std::uint64_t word = mark_of(block);
  std::memcpy(block, &word, sizeof word);
  std::memcpy(block + bytes - sizeof word, &word, sizeof word);
}

inline void require_marked(std::byte* block, std::size_t bytes, std::uint32_t thread,
                           std::uint32_t number) {
  const std::uint64_t word = mark_of(block);
  if (std::memcmp(block, &word, sizeof word) != 0 ||
      std::memcmp(block + bytes - sizeof word, &word, sizeof word) != 0)
    fail_with("the contents of a live block changed", {block, bytes, thread, number});
}

inline void print_told(const char* name, std::optional<std::size_t> value) {
  if (value) {
    std::printf("%s: %zu\n", name, *value);
  } else {
    std::printf("%s: not told by this allocator\n", name);
  }
}

}  // namespace detail

// One run. `Heap` has void* allocate(std::size_t) and void release(void*).
template <class Heap, class WhileAllLive>
class Measurement {
 public:
  Measurement(const MeasurementOptions& options, Heap heap, WhileAllLive while_all_live)
      : options_{options},
        heap_{heap},
        while_all_live_{while_all_live},
        slots_{options.threads * options.allocations},
        spans_{slots_.size()},
        ledger_{slots_.size()},
        frees_{options.threads} {
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      Random random{seed_of(options.seed, i)};
      spans_[i].bytes = random.between(1, size_steps) * size_step_bytes;
    }
  }

  void run() {
    // What the last thread to arrive does while all the others wait.
    std::barrier begin{threads(), [this]() noexcept {
                         before_ = detail::Kernel::now();
                         began_ = Clock::now();
                       }};
    std::barrier look{threads(), [this]() noexcept { look_at_the_heap(); }};
    run_team(options_.threads, [&](std::uint32_t thread) {
      begin.arrive_and_wait();
      work(thread);
      look.arrive_and_wait();
      free_the_rest(thread);
    });
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::ptrdiff_t threads() const { return static_cast<std::ptrdiff_t>(options_.threads); }
  std::size_t first_of(std::size_t thread) const { return thread * options_.allocations; }
  std::uint32_t number_of(std::size_t i) const {
    return static_cast<std::uint32_t>(i % options_.allocations);
  }

  void work(std::uint32_t thread) {
    Random random{seed_of(~options_.seed, thread)};
    const bool frees_too = thread % 2 == 0 && options_.threads > 1 && options_.foreign_every != 0;
    for (std::size_t i = first_of(thread); i < first_of(thread + 1); ++i) {
      auto* const block = static_cast<std::byte*>(heap_.allocate(spans_[i].bytes));
      if (block == nullptr)
        fail_with("the allocator returned null", {block, spans_[i].bytes, thread, number_of(i)});
      detail::mark(block, spans_[i].bytes);
      spans_[i].begin = block;
      slots_[i].store(block, std::memory_order_release);
      const std::size_t position = i - first_of(thread) + 1;
      if (frees_too && position % options_.foreign_every == 0)
        free_a_foreign_block(thread, position, random);
    }
  }

  // One of the first `position` blocks of another thread, which has probably got that far too.
  void free_a_foreign_block(std::uint32_t thread, std::size_t position, Random& random) {
    const std::size_t giver = (thread + 1 + random.below(options_.threads - 1)) % options_.threads;
    const std::size_t i = first_of(giver) + random.below(position);
    // acquire: pairs with the release in work(); the block's marks are seen
    std::byte* const block = slots_[i].exchange(nullptr, std::memory_order_acquire);
    if (block == nullptr) return;  // not allocated yet, or already freed
    detail::require_marked(block, spans_[i].bytes, static_cast<std::uint32_t>(giver), number_of(i));
    heap_.release(block);
    ++frees_[thread].count;
    frees_[thread].bytes += spans_[i].bytes;
  }

  void look_at_the_heap() {
    const std::chrono::duration<double> seconds = Clock::now() - began_;
    const detail::Kernel after = detail::Kernel::now();
    MeasurementFigures figures{};
    figures.seconds = seconds.count();
    figures.kernel_seconds = after.seconds - before_.seconds;
    figures.page_faults = after.page_faults - before_.page_faults;
    figures.waits = after.waits - before_.waits;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      figures.requested_bytes += spans_[i].bytes;
      std::byte* const block = slots_[i].load(std::memory_order_relaxed);
      if (block == nullptr) continue;
      const auto thread = static_cast<std::uint32_t>(i / options_.allocations);
      detail::require_marked(block, spans_[i].bytes, thread, number_of(i));
      ledger_[i] = {block, spans_[i].bytes, thread, number_of(i)};
    }
    require_disjoint(ledger_);
    for (const detail::Frees& mine : frees_) {
      figures.foreign_frees += mine.count;
      figures.freed_bytes += mine.bytes;
    }
    figures.reused_bytes = detail::covered_again_bytes(spans_);
    heap_snapshot("before the remaining blocks are freed");
    while_all_live_(figures);
  }

  // Each thread frees its own, so that no other block counts as freed by another thread.
  void free_the_rest(std::uint32_t thread) {
    for (std::size_t i = first_of(thread); i < first_of(thread + 1); ++i) {
      if (ledger_[i].live()) heap_.release(ledger_[i].address);
    }
  }

  const MeasurementOptions options_;
  Heap heap_;
  WhileAllLive while_all_live_;
  MappedArray<detail::Slot> slots_;  // blocks not freed yet
  MappedArray<detail::Span> spans_;  // all blocks ever allocated
  MappedArray<Holding> ledger_;      // those live at the end
  MappedArray<detail::Frees> frees_;
  detail::Kernel before_{};
  Clock::time_point began_;
};

// Calls `while_all_live(figures)` before the remaining blocks are freed, the moment at which the
// reports measure the segment. All threads still exist then, and wait.
template <class Heap, class WhileAllLive>
void run_measurement(const MeasurementOptions& options, Heap heap, WhileAllLive while_all_live) {
  Measurement<Heap, WhileAllLive>{options, heap, while_all_live}.run();
}

// One figure per line, for people and for `tsmalloc experiment`.
inline void print_measurement(const char* name, const MeasurementOptions& options,
                              const MeasurementFigures& figures,
                              std::optional<std::size_t> segment_bytes,
                              std::optional<std::size_t> free_bytes,
                              std::optional<std::size_t> sbrk_calls) {
  std::printf("allocator: %s\nthreads: %zu\nallocations: %zu\nseed: %llu\n", name, options.threads,
              options.threads * options.allocations, static_cast<unsigned long long>(options.seed));
  std::printf("seconds: %.6f\nkernel_seconds: %.6f\npage_faults: %ld\nwaits: %ld\n",
              figures.seconds, figures.kernel_seconds, figures.page_faults, figures.waits);
  detail::print_told("data_segment_bytes", segment_bytes);
  detail::print_told("free_space_bytes", free_bytes);
  detail::print_told("sbrk_calls", sbrk_calls);
  std::printf("requested_bytes: %zu\nforeign_frees: %zu\nfreed_bytes: %zu\nreused_bytes: %zu\n",
              figures.requested_bytes, figures.foreign_frees, figures.freed_bytes,
              figures.reused_bytes);
}

}  // namespace ts::test
