// Strategy `lock`: one heap, one mutex, held for the whole call. The simplest thread-safe malloc,
// and the baseline for the others. (Reports A, B and C: ts_malloc_lock.)
#pragma once

#include "classic/config.h"
#include "classic/tagged_heap.h"

namespace ts::classic {

template <FitPolicy Fit>
class Lock : public TaggedPayloads {
 public:
  constexpr explicit Lock(const HeapConfig& config = by_sbrk) noexcept
      : source_{config.source}, heap_{source_, 0, config.trim_threshold_bytes} {}

  // Not inline: one copy for all functions of malloc's family.
  [[gnu::noinline]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    return allocate_or_make_room([&] {
      const Guard guard{lock_};
      return heap_.allocate(request);
    });
  }

  void release(void* payload) noexcept {
    const GivesBack gives_back;
    const Guard guard{lock_};
    heap_.release(payload);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    const Guard guard{lock_};
    return heap_.resize(payload, bytes);
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures{.heaps = 1};
    const Guard guard{lock_};
    source_.measure(measures);
    heap_.measure(measures);
    return measures;
  }

  bool walk(BlockVisitor visit, void* argument) noexcept {
    const Guard guard{lock_};
    return source_.walk(visit, argument);
  }

  bool trim(std::size_t keep_bytes) noexcept {
    return trim_heap(keep_bytes, [this](auto change) {
      const Guard guard{lock_};
      change(heap_);
    });
  }

  bool is_valid() noexcept {
    const Guard guard{lock_};
    return heap_.is_valid() && source_.tags_are_valid();
  }

  // Sets SourceConfig::growth_bytes.
  void set_growth(std::size_t bytes) noexcept { source_.set_growth(bytes); }

  // Returns all memory to the system; no block may be in use, and no thread inside.
  void destroy() noexcept { source_.release_all(); }

  void fork_prepare() noexcept TS_NO_ANALYSIS {
    lock_.lock();
    source_.fork_prepare();
  }
  void fork_parent() noexcept TS_NO_ANALYSIS {
    source_.fork_parent();
    lock_.unlock();
  }
  void fork_child() noexcept {
    source_.fork_child();
    lock_.reset_after_fork();
  }

 private:
  Source source_;
  Mutex lock_;
  TaggedHeap<Fit> heap_ TS_GUARDED_BY(lock_);
};

}  // namespace ts::classic
