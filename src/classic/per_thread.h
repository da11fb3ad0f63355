// Strategy `nolock`: one heap per thread, and a lock only where the segment grows (reports A, B and
// C: ts_malloc_nolock). A block that another thread frees joins the freeing thread's heap. That
// takes no lock, but memory moves from producers to consumers, and the segment grows. Blocks carry
// the number of the heap that owns them, and neighbours of another heap are never merged
// (sharing.h, Shared).
//
// A thread that ends leaves its heap to the next thread that starts. Threads that are already
// ending, and threads without memory for a heap, share one heap behind a mutex.
//
// With a fixed share (lecture D, "solution 1") each thread's heap gets that many bytes when it is
// created and never more. Once they are used up, the thread's requests fail, even if other threads
// have free blocks. A thread that frees blocks of others takes over a piece of their share.
#pragma once

#include <new>

#include "base/busy_mark.h"
#include "base/event_counts.h"
#include "classic/config.h"
#include "classic/tagged_heap.h"
#include "classic/thread_slots.h"

namespace ts::classic {

template <FitPolicy Fit>
class PerThread : public TaggedPayloads {
 public:
  constexpr explicit PerThread(const HeapConfig& config = by_sbrk) noexcept
      : source_{config.source},
        config_{config},
        slots_{this, retire},
        common_{source_, 0, config.trim_threshold_bytes} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    ThreadHeap* const mine = this_thread();
    return allocate_or_make_room([&] {
      if (mine != nullptr) {
        const BusyMark mark{mine->busy};
        return mine->heap.allocate(request);
      }
      const Guard guard{common_lock_};
      return common_.allocate(request);
    });
  }

  void release(void* payload) noexcept {
    const GivesBack gives_back;
    if (ThreadHeap* mine = this_thread()) {
      const BusyMark mark{mine->busy};
      if constexpr (counting) {
        if (Block::of_payload(payload)->tag().owner() != mine->heap.owner())
          if constexpr (counting) count_event(Event::foreign_frees);
      }
      return mine->heap.release(payload);
    }
    const Guard guard{common_lock_};
    common_.release(payload);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    if (ThreadHeap* mine = this_thread()) {
      const BusyMark mark{mine->busy};
      return mine->heap.resize(payload, bytes);
    }
    const Guard guard{common_lock_};
    return common_.resize(payload, bytes);
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures;
    const Guard guard{lock_};
    const Guard common_guard{common_lock_};
    source_.measure(measures);
    common_.measure(measures);
    for (ThreadHeap* h = all_; h != nullptr; h = h->next) {
      h->heap.measure(measures);
      ++measures.heaps;
    }
    return measures.bounded();
  }

  bool walk(BlockVisitor visit, void* argument) noexcept { return source_.walk(visit, argument); }

  // Trims the caller's heap and the abandoned ones.
  bool trim(std::size_t keep_bytes) noexcept {
    ThreadHeap* const mine = this_thread();
    bool gave = mine != nullptr && trim(*mine, keep_bytes);
    // Meanwhile, abandoned heaps belong to this thread.
    ThreadHeap* adopted = nullptr;
    while (ThreadHeap* const h = adopt()) {
      gave = trim(*h, keep_bytes) || gave;
      h->next_abandoned = adopted;
      adopted = h;
    }
    const Guard guard{lock_};
    while (ThreadHeap* const h = adopted) {
      adopted = h->next_abandoned;
      push_abandoned(h);
    }
    return gave;
  }

  // No other thread may be inside.
  bool is_valid() noexcept {
    const Guard guard{lock_};
    const Guard common_guard{common_lock_};
    for (ThreadHeap* h = all_; h != nullptr; h = h->next) {
      if (!h->heap.is_valid()) return false;
    }
    return common_.is_valid() && source_.tags_are_valid();
  }

  // Sets SourceConfig::growth_bytes.
  void set_growth(std::size_t bytes) noexcept { source_.set_growth(bytes); }

  // No thread may be inside, so nothing is locked.
  void destroy() noexcept TS_NO_ANALYSIS {
    slots_.close();
    source_.release_all();
    for (ThreadHeap* h = all_; h != nullptr;) {
      ThreadHeap* const next = h->next;
      os::unmap_unused(h, ThreadHeap::mapped_bytes());
      h = next;
    }
  }

  void fork_prepare() noexcept TS_NO_ANALYSIS {
    ThreadSlots::fork_prepare();
    lock_.lock();
    common_lock_.lock();
    source_.fork_prepare();
  }

  void fork_parent() noexcept TS_NO_ANALYSIS {
    source_.fork_parent();
    common_lock_.unlock();
    lock_.unlock();
    ThreadSlots::fork_parent();
  }

  // The other threads are gone: their heaps are abandoned, except those that were caught in
  // mid-call.
  void fork_child() noexcept TS_NO_ANALYSIS {
    source_.fork_child();
    common_lock_.reset_after_fork();
    lock_.reset_after_fork();
    const void* const mine = slots_.get();
    abandoned_ = nullptr;
    for (ThreadHeap* h = all_; h != nullptr; h = h->next) {
      if (h != mine && !h->busy.load(std::memory_order_relaxed)) push_abandoned(h);
    }
    ThreadSlots::fork_child();
  }

 private:
  using Heap = TaggedHeap<Fit, Shared>;

  struct ThreadHeap {
    ThreadHeap(Source& source, std::uint32_t owner, std::size_t trim_threshold_bytes) noexcept
        : heap{source, owner, trim_threshold_bytes} {}
    static std::size_t mapped_bytes() noexcept {
      return align_up(sizeof(ThreadHeap), os::page_bytes());
    }

    Heap heap;                             // own
    std::atomic<bool> busy{false};         // own; read in the child of a fork
    ThreadHeap* next = nullptr;            // const: the list of all
    ThreadHeap* next_abandoned = nullptr;  // lock_
  };

  ThreadHeap* this_thread() noexcept {
    void* const mine = slots_.get();
    return mine != nullptr ? static_cast<ThreadHeap*>(mine) : attach_slow();
  }

  [[gnu::noinline]] ThreadHeap* attach_slow() noexcept {
    if (!slots_.make_ready()) return nullptr;
    if (void* mine = slots_.get()) return static_cast<ThreadHeap*>(mine);
    ThreadHeap* const heap = adopt_or_make();
    if (heap != nullptr) slots_.set(heap);
    return heap;
  }

  static bool trim(ThreadHeap& h, std::size_t keep_bytes) noexcept {
    return trim_heap(keep_bytes, [&h](auto change) {
      const BusyMark mark{h.busy};
      change(h.heap);
    });
  }

  // Takes over an abandoned heap; null if there is none.
  ThreadHeap* adopt() noexcept {
    const Guard guard{lock_};
    ThreadHeap* const abandoned = abandoned_;
    if (abandoned != nullptr) abandoned_ = abandoned->next_abandoned;
    return abandoned;
  }

  ThreadHeap* adopt_or_make() noexcept {
    if (ThreadHeap* const abandoned = adopt()) {
      if constexpr (counting) count_event(Event::adopted_heaps);
      return abandoned;
    }
    const Guard guard{lock_};
    if (made_ == max_owner) return nullptr;
    void* const memory = os::map(ThreadHeap::mapped_bytes());
    if (memory == nullptr) return nullptr;
    auto* const heap = new (memory) ThreadHeap{source_, ++made_, config_.trim_threshold_bytes};
    if (config_.thread_share_bytes != 0) {
      heap->heap.grow(config_.thread_share_bytes);
      heap->heap.forbid_growth();
    }
    heap->next = all_;
    all_ = heap;
    if constexpr (counting) count_event(Event::heaps_created);
    return heap;
  }

  void push_abandoned(ThreadHeap* heap) noexcept TS_REQUIRES(lock_) {
    heap->next_abandoned = abandoned_;
    abandoned_ = heap;
  }

  // A thread ends. Through the mutex, the thread that adopts the heap sees all that this one did to
  // it.
  static void retire(void* self, void* state) noexcept {
    auto* const strategy = static_cast<PerThread*>(self);
    const Guard guard{strategy->lock_};
    strategy->push_abandoned(static_cast<ThreadHeap*>(state));
  }

  Source source_;
  const HeapConfig config_;
  ThreadSlots slots_;
  Mutex common_lock_;
  Heap common_ TS_GUARDED_BY(common_lock_);  // owner 0: for threads without a heap of their own
  Mutex lock_;  // births, deaths and adoptions; taken after the lock of the thread tables
  ThreadHeap* all_ TS_GUARDED_BY(lock_) = nullptr;
  ThreadHeap* abandoned_ TS_GUARDED_BY(lock_) = nullptr;
  std::uint32_t made_ TS_GUARDED_BY(lock_) = 0;
};

}  // namespace ts::classic
