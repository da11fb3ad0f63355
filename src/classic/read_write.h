// Strategy `rwlock`: one heap behind a writer-preferring reader-writer lock (report E). Threads
// search at the same time, under the shared lock; splitting, merging and growing happen under the
// exclusive one.
//
// Two threads that search at once must not find the same block. So a search claims its block by a
// compare-and-swap on the tag from free to used, and skips claimed ones. A claimed block stays in
// the tree, links and all, until its claimer removes it under the exclusive lock and returns it to
// the program. In between, frees of its neighbours see a used block and do not merge with it. The
// claimer merges its remainder with them when it cuts the block.
//
// So the fit is exact among the unclaimed blocks, at the moment of the search.
#pragma once

#include "classic/config.h"
#include "classic/tagged_heap.h"

namespace ts::classic {

template <FitPolicy Fit>
class ReadWrite : public TaggedPayloads {
 public:
  constexpr explicit ReadWrite(const HeapConfig& config = by_sbrk) noexcept
      : source_{config.source}, heap_{source_, 0, config.trim_threshold_bytes} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    if (request.search_bytes == 0) return nullptr;
    return allocate_or_make_room([&] { return allocate(request); });
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
    const SharedGuard guard{lock_};
    source_.measure(measures);
    heap_.measure(measures);
    return measures;
  }

  bool walk(BlockVisitor visit, void* argument) noexcept {
    const SharedGuard guard{lock_};
    return source_.walk(visit, argument);
  }

  bool trim(std::size_t keep_bytes) noexcept {
    return trim_heap(keep_bytes, [this](auto change) {
      const Guard guard{lock_};
      change(heap_);
    });
  }

  bool is_valid() noexcept {
    const SharedGuard guard{lock_};
    return heap_.is_valid() && source_.tags_are_valid();
  }

  // Sets SourceConfig::growth_bytes.
  void set_growth(std::size_t bytes) noexcept { source_.set_growth(bytes); }

  void destroy() noexcept { source_.release_all(); }

  void fork_prepare() noexcept TS_NO_ANALYSIS {
    lock_.lock();
    source_.fork_prepare();
  }
  void fork_parent() noexcept TS_NO_ANALYSIS {
    source_.fork_parent();
    lock_.unlock();
  }
  // The threads that had claimed blocks are gone, and the program never received the blocks, so
  // they are free.
  void fork_child() noexcept TS_NO_ANALYSIS {
    source_.fork_child();
    if (claims_ != 0) heap_.free_claimed();
    claims_ = 0;
    lock_.reset_after_fork();
  }

 private:
  void* allocate(const Request& request) noexcept {
    for (;;) {
      Block* const claimed = search_and_claim(request);
      const Guard guard{lock_};
      if (claimed != nullptr) {
        --claims_;
        return heap_.take(claimed, request);
      }
      if (void* payload = heap_.allocate_from_free(request)) return payload;
      if (!others_hold_claims()) return heap_.allocate(request);
    }
  }

  // Relaxed suffices: claims of one block conflict in one word, and the lock orders everything
  // else.
  static bool claim(Block* block) noexcept {
    Tag tag = block->tag();
    return !tag.used() && block->replace_tag(tag, tag.with(Tag::used_flag));
  }

  Block* search_and_claim(const Request& request) noexcept {
    const SharedGuard guard{lock_};
    Block* const claimed = heap_.find(request, claim);
    if (claimed != nullptr) ++claims_;
    return claimed;
  }

  // Remainders of claimed blocks are about to be free, so growth may be unnecessary.
  bool others_hold_claims() const noexcept { return claims_ != 0; }

  Source source_;
  SharedMutex lock_;
  std::atomic<unsigned> claims_{
      0};  // claimed and not yet taken; up under the shared lock, down under the exclusive one
  TaggedHeap<Fit> heap_ TS_GUARDED_BY(lock_);
};

}  // namespace ts::classic
