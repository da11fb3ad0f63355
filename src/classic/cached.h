// Strategy `cached`: a central heap behind a mutex, and in front of it a cache per thread (lecture
// D's "solution 3", the scheme of tcmalloc). Small blocks that a thread frees stay with the thread,
// in one stack per exact block size, until the cache is out of balance. Then they move back in
// batches. A cache without a block gets a batch from the central heap under one lock.
//
// Policy: the fit applies only in the central heap. A request gets the newest cached block of
// exactly its block size. Failing that, the fit takes a batch of blocks from the central heap, one
// by one. The first satisfies the request; later requests use the others in the order in which they
// were taken. Cached blocks are neither searched nor merged: to the central heap they are in use.
//
//   allocate -> this_thread -> attach_slow -> idle_or_new     on the first call of a thread
//            -> ThreadCache::pop                              thread_cache.h
//            -> refill_slow -> TaggedHeap::allocate           a batch, under the lock
//            -> allocate_central                              large or aligned
//   release  -> ThreadCache::push
//            -> give_back_slow, halve_slow -> give_back       by the rules of thread_cache.h
//
// Only its own thread uses a cache. `lock_` guards the central heap and the lists of caches; a
// cache changes hands under it.
#pragma once

#include <new>

#include "base/busy_mark.h"
#include "base/event_counts.h"
#include "classic/config.h"
#include "classic/tagged_heap.h"
#include "classic/thread_cache.h"
#include "classic/thread_slots.h"

namespace ts::classic {

template <FitPolicy Fit>
class Cached : public TaggedPayloads {
 public:
  constexpr explicit Cached(const HeapConfig& config = by_mmap) noexcept
      : source_{config.source},
        slots_{this, retire},
        central_{source_, 0, config.trim_threshold_bytes} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    if (alignment <= min_alignment && is_cached_size(request.block_bytes)) {
      if (Cache* mine = this_thread()) {
        const BusyMark mark{mine->busy};
        if (Block* block = mine->pop(request.block_bytes)) {
          if constexpr (counting) count_event(Event::cache_hits);
          return block->payload();
        }
        return refill_slow(*mine, request);
      }
    }
    return allocate_central(request);
  }

  void release(void* payload) noexcept {
    Block* const block = Block::of_payload(payload);
    const Tag tag = block->tag();
    require(tag.used(), not_in_use, payload);
    const std::size_t block_bytes = tag.block_bytes();
    if (is_cached_size(block_bytes)) {
      if (Cache* mine = this_thread()) {
        const BusyMark mark{mine->busy};
        require(!mine->is_newest(block, block_bytes), not_in_use, payload);
        mine->push(block, block_bytes);
        if (mine->size_is_out_of_balance(block_bytes))
          give_back_slow(*mine, bin_of(block_bytes), batch_blocks(block_bytes));
        if (mine->is_out_of_balance()) halve_slow(*mine);
        return;
      }
    }
    const GivesBack gives_back;
    const Guard guard{lock_};
    central_.release(payload);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    const Guard guard{lock_};
    return central_.resize(payload, bytes);
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures{.heaps = 1};
    const Guard guard{lock_};
    source_.measure(measures);
    central_.measure(measures);
    for (Cache* cache = all_; cache != nullptr; cache = cache->next) {
      measures.cached_bytes += cache->bytes;
      measures.free_bytes += cache->bytes;
      measures.free_blocks += cache->blocks;
    }
    return measures.bounded();
  }

  // Marks cached blocks in their tags during the walk, so no other thread may be inside.
  bool walk(BlockVisitor visit, void* argument) noexcept {
    const Guard guard{lock_};
    mark_cached([](Tag tag) { return tag.with(Tag::cached_flag); });
    const bool finished = source_.walk(visit, argument);
    mark_cached([](Tag tag) { return tag.without(Tag::cached_flag); });
    return finished;
  }

  // Empties the caller's cache first.
  bool trim(std::size_t keep_bytes) noexcept {
    empty_this_cache();
    return trim_heap(keep_bytes, [this](auto change) {
      const Guard guard{lock_};
      change(central_);
    });
  }

  bool is_valid() noexcept {
    const Guard guard{lock_};
    return central_.is_valid() && source_.tags_are_valid();
  }

  // No thread may be inside, so nothing is locked.
  void destroy() noexcept TS_NO_ANALYSIS {
    slots_.close();
    source_.release_all();
    for (Cache* cache = all_; cache != nullptr;) {
      Cache* const next = cache->next;
      os::unmap_unused(cache, Cache::mapped_bytes());
      cache = next;
    }
  }

  void fork_prepare() noexcept TS_NO_ANALYSIS {
    ThreadSlots::fork_prepare();
    lock_.lock();
    source_.fork_prepare();
  }
  void fork_parent() noexcept TS_NO_ANALYSIS {
    source_.fork_parent();
    lock_.unlock();
    ThreadSlots::fork_parent();
  }
  // The other threads are gone. The blocks of their caches return to the central heap, except those
  // of caches caught in mid-call, which are lost.
  void fork_child() noexcept TS_NO_ANALYSIS {
    source_.fork_child();
    lock_.reset_after_fork();
    const void* const mine = slots_.get();
    idle_ = nullptr;
    for (Cache* cache = all_; cache != nullptr; cache = cache->next) {
      if (cache == mine) continue;
      if (cache->busy.load(std::memory_order_relaxed)) cache->forget_all();
      put_aside(cache);
    }
    ThreadSlots::fork_child();
  }

 private:
  using Cache = ThreadCache;

  Cache* this_thread() noexcept {
    void* const mine = slots_.get();
    return mine != nullptr ? static_cast<Cache*>(mine) : attach_slow();
  }

  [[gnu::noinline]] Cache* attach_slow() noexcept {
    if (!slots_.make_ready()) return nullptr;
    if (void* mine = slots_.get()) return static_cast<Cache*>(mine);
    Cache* const cache = idle_or_new();
    if (cache != nullptr) slots_.set(cache);
    return cache;
  }

  Cache* idle_or_new() noexcept {
    const Guard guard{lock_};
    if (Cache* idle = idle_) {
      idle_ = idle->next_idle;
      return idle;
    }
    void* const memory = os::map(Cache::mapped_bytes());
    if (memory == nullptr) return nullptr;
    auto* const cache = new (memory) Cache{};
    cache->next = all_;
    all_ = cache;
    return cache;
  }

  [[gnu::noinline]] void* refill_slow(Cache& cache, const Request& request) noexcept {
    Block* taken[max_batch_blocks];
    unsigned count = 0;
    {
      const Guard guard{lock_};
      for (unsigned wanted = batch_blocks(request.block_bytes); count < wanted; ++count) {
        void* const payload = central_.allocate(request);
        if (payload == nullptr) break;
        taken[count] = Block::of_payload(payload);
      }
    }
    if (count == 0) return allocate_central(request);
    if constexpr (counting) count_event(Event::cache_refills);
    if constexpr (counting) count_event(Event::cache_refilled_blocks, count);
    // The fit may return a block one granule longer than requested, which goes to the stack of its
    // own size.
    while (count > 1) {
      Block* const block = taken[--count];
      if (is_cached_size(block->block_bytes())) {
        cache.push(block, block->block_bytes());
      } else {
        const GivesBack gives_back;
        const Guard guard{lock_};
        central_.release(block->payload());
      }
    }
    return taken[0]->payload();
  }

  // Allocates from the central heap. If that cannot grow, blocks of the caller's own cache may
  // merge into a large enough free one.
  void* allocate_central(const Request& request) noexcept {
    for (bool emptied = false;; emptied = true) {
      void* const payload = allocate_or_make_room([&] {
        const Guard guard{lock_};
        return central_.allocate(request);
      });
      if (payload != nullptr || emptied) return payload;
      empty_this_cache();
    }
  }

  void empty_this_cache() noexcept {
    auto* const mine = static_cast<Cache*>(slots_.get());
    if (mine == nullptr) return;
    const GivesBack gives_back;
    const Guard guard{lock_};
    for (unsigned bin = 0; bin < cache_bins; ++bin) give_back(*mine, bin, 0);
  }

  // Moves all but the newest `keep` blocks of one size back to the central heap.
  [[gnu::noinline]] void give_back_slow(Cache& cache, unsigned bin, unsigned keep) noexcept {
    const GivesBack gives_back;
    const Guard guard{lock_};
    give_back(cache, bin, keep);
  }

  [[gnu::noinline]] void halve_slow(Cache& cache) noexcept {
    const GivesBack gives_back;
    const Guard guard{lock_};
    for (unsigned bin = 0; bin < cache_bins; ++bin)
      give_back(cache, bin, cache.stacks[bin].blocks / 2);
  }

  void give_back(Cache& cache, unsigned bin, unsigned keep) noexcept TS_REQUIRES(lock_) {
    Block* block = cache.cut(bin, keep);
    if constexpr (counting) count_event(Event::cache_returns, block != nullptr ? 1 : 0);
    while (block != nullptr) {
      if constexpr (counting) count_event(Event::cache_returned_blocks);
      Block* const older = Cache::older(block);
      central_.release(block->payload());
      block = older;
    }
  }

  // Returns the blocks of an ended thread's cache, and keeps the cache for a new thread.
  void put_aside(Cache* cache) noexcept TS_REQUIRES(lock_) {
    for (unsigned bin = 0; bin < cache_bins; ++bin) give_back(*cache, bin, 0);
    cache->next_idle = idle_;
    idle_ = cache;
  }

  static void retire(void* self, void* state) noexcept {
    auto* const strategy = static_cast<Cached*>(self);
    const Guard guard{strategy->lock_};
    strategy->put_aside(static_cast<Cache*>(state));
  }

  template <class Change>
  void mark_cached(Change change) noexcept TS_REQUIRES(lock_) {
    for (Cache* cache = all_; cache != nullptr; cache = cache->next) {
      for (const auto& stack : cache->stacks) {
        for (Block* block = stack.newest; block != nullptr; block = Cache::older(block))
          block->set_tag(change(block->tag()));
      }
    }
  }

  Source source_;
  ThreadSlots slots_;
  Mutex lock_;
  TaggedHeap<Fit> central_ TS_GUARDED_BY(lock_);
  Cache* all_ TS_GUARDED_BY(lock_) = nullptr;
  Cache* idle_ TS_GUARDED_BY(lock_) = nullptr;
};

}  // namespace ts::classic
