// Strategy `arenas`: several heaps, each with its own mutex (lecture D's "solution 2", the scheme
// of ptmalloc). A thread takes the first arena whose mutex is free, beginning with the one that it
// used last. If none is free, it creates a new one. A block carries the number of its arena, and
// every free returns it there.
#pragma once

#include <new>

#include "base/event_counts.h"
#include "classic/config.h"
#include "classic/tagged_heap.h"
#include "classic/thread_slots.h"

namespace ts::classic {

// More arenas than this per processor do not reduce waiting and only fragment the memory (ptmalloc
// has the same limit).
inline constexpr unsigned arenas_per_processor = 8;
inline constexpr unsigned max_arenas = 256;

template <FitPolicy Fit>
class Arenas : public TaggedPayloads {
 public:
  constexpr explicit Arenas(const HeapConfig& config = by_mmap) noexcept
      : source_{config.source},
        config_{config},
        slots_{this, retire},
        first_{source_, 0, config.trim_threshold_bytes} {}

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const Request request = Request::of(bytes, alignment);
    auto* const last_used = static_cast<Arena*>(slots_.get());
    Arena* const arena = lock_an_arena(last_used != nullptr ? last_used : &first_);
    void* const payload = allocate_in(arena, request);
    if (arena != last_used && slots_.make_ready()) slots_.set(arena);
    return payload != nullptr ? payload : allocate_elsewhere_slow(arena, request);
  }

  void release(void* payload) noexcept {
    const GivesBack gives_back;
    Arena& home = home_of(payload);
    const Guard guard{home.lock};
    home.heap.release(payload);
  }

  bool resize(void* payload, std::size_t bytes) noexcept {
    Arena& home = home_of(payload);
    const Guard guard{home.lock};
    return home.heap.resize(payload, bytes);
  }

  HeapMeasures measures() noexcept {
    HeapMeasures measures;
    source_.measure(measures);
    for_each([&](Arena& arena) {
      const Guard guard{arena.lock};
      arena.heap.measure(measures);
      ++measures.heaps;
      return true;
    });
    return measures.bounded();
  }

  // Holds every arena, so that nothing moves.
  bool walk(BlockVisitor visit, void* argument) noexcept TS_NO_ANALYSIS {
    lock_all();
    const bool finished = source_.walk(visit, argument);
    unlock_all();
    return finished;
  }

  bool trim(std::size_t keep_bytes) noexcept {
    bool gave = false;
    for_each([&](Arena& arena) {
      const auto with_heap = [&arena](auto change) {
        const Guard guard{arena.lock};
        change(arena.heap);
      };
      gave = trim_heap(keep_bytes, with_heap) || gave;
      return true;
    });
    return gave;
  }

  bool is_valid() noexcept TS_NO_ANALYSIS {
    lock_all();
    const bool valid =
        for_each([](Arena& arena) TS_NO_ANALYSIS { return arena.heap.is_valid(); }) &&
        source_.tags_are_valid();
    unlock_all();
    return valid;
  }

  void destroy() noexcept {
    slots_.close();
    source_.release_all();
    const unsigned count = count_.load(std::memory_order_relaxed);
    for (unsigned i = 1; i < count; ++i) os::unmap_unused(arena_at(i), Arena::mapped_bytes());
  }

  void fork_prepare() noexcept TS_NO_ANALYSIS {
    ThreadSlots::fork_prepare();
    lock_all();
    source_.fork_prepare();
  }
  void fork_parent() noexcept TS_NO_ANALYSIS {
    source_.fork_parent();
    unlock_all();
    ThreadSlots::fork_parent();
  }
  void fork_child() noexcept TS_NO_ANALYSIS {
    source_.fork_child();
    for_each([](Arena& arena) {
      arena.lock.reset_after_fork();
      return true;
    });
    creation_lock_.reset_after_fork();
    ThreadSlots::fork_child();
  }

 private:
  struct Arena {
    constexpr Arena(Source& source, std::uint32_t number, std::size_t trim_threshold_bytes) noexcept
        : heap{source, number, trim_threshold_bytes} {}
    static std::size_t mapped_bytes() noexcept { return align_up(sizeof(Arena), os::page_bytes()); }

    Mutex lock;
    TaggedHeap<Fit> heap TS_GUARDED_BY(lock);
  };

  // acquire: pairs with the release that published the arena in make_arena_slow()
  Arena* arena_at(unsigned number) noexcept {
    return number == 0 ? &first_ : others_[number - 1].load(std::memory_order_acquire);
  }

  Arena& home_of(void* payload) noexcept {
    const std::uint32_t number = Block::of_payload(payload)->tag().owner();
    require(number < count_.load(std::memory_order_acquire),
            "free of a pointer that no arena handed out", payload);
    return *arena_at(number);
  }

  template <class Visit>
  bool for_each(Visit visit) noexcept {
    const unsigned count = count_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < count; ++i) {
      if (!visit(*arena_at(i))) return false;
    }
    return true;
  }

  void lock_all() noexcept TS_NO_ANALYSIS {
    creation_lock_.lock();
    for_each([](Arena& arena) TS_NO_ANALYSIS {
      arena.lock.lock();
      return true;
    });
  }
  void unlock_all() noexcept TS_NO_ANALYSIS {
    for_each([](Arena& arena) TS_NO_ANALYSIS {
      arena.lock.unlock();
      return true;
    });
    creation_lock_.unlock();
  }

  // Locks an arena, preferably this one.
  Arena* lock_an_arena(Arena* preferred) noexcept TS_NO_ANALYSIS {
    return preferred->lock.try_lock() ? preferred : lock_another_slow(preferred);
  }

  [[gnu::noinline]] Arena* lock_another_slow(Arena* preferred) noexcept TS_NO_ANALYSIS {
    if constexpr (counting) count_event(Event::arena_switches);
    const unsigned count = count_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < count; ++i) {
      Arena* const arena = arena_at(i);
      if (arena != preferred && arena->lock.try_lock()) return arena;
    }
    if (Arena* made = make_arena_slow()) return made;
    preferred->lock.lock();
    return preferred;
  }

  // A new arena, locked; null if there are enough, or if there is no memory for one.
  Arena* make_arena_slow() noexcept TS_NO_ANALYSIS {
    const Guard guard{creation_lock_};
    const unsigned count = count_.load(std::memory_order_relaxed);
    const unsigned limit = arenas_per_processor * os::processor_count();
    if (count >= limit || count >= max_arenas) return nullptr;
    void* const memory = os::map(Arena::mapped_bytes());
    if (memory == nullptr) return nullptr;
    auto* const arena = new (memory) Arena{source_, count, config_.trim_threshold_bytes};
    arena->lock.lock();
    // release, twice: a thread that sees the count sees the pointer, and with the pointer the arena
    others_[count - 1].store(arena, std::memory_order_release);
    count_.store(count + 1, std::memory_order_release);
    if constexpr (counting) count_event(Event::arenas_created);
    return arena;
  }

  // Allocates in an arena that this thread has locked, and unlocks it.
  void* allocate_in(Arena* arena, const Request& request) noexcept TS_NO_ANALYSIS {
    for (;;) {
      void* const payload = arena->heap.allocate(request);
      arena->lock.unlock();
      if (payload != nullptr || !send_leaving()) return payload;
      arena->lock.lock();
    }
  }

  // The system refuses memory, but another arena may have a free block.
  [[gnu::noinline]] void* allocate_elsewhere_slow(const Arena* tried,
                                                  const Request& request) noexcept {
    void* payload = nullptr;
    for_each([&](Arena& arena) TS_NO_ANALYSIS {
      if (&arena != tried) {
        arena.lock.lock();
        payload = allocate_in(&arena, request);
      }
      return payload == nullptr;
    });
    return payload;
  }

  static void retire(void*, void*) noexcept {}  // an arena outlives its threads

  Source source_;
  const HeapConfig config_;
  ThreadSlots slots_;  // the arena that a thread used last
  Mutex creation_lock_;
  Arena first_;
  std::atomic<Arena*> others_[max_arenas - 1]{};  // any
  std::atomic<unsigned> count_{1};                // any
};

}  // namespace ts::classic
