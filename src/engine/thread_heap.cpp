#include "engine/thread_heap.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/event_counts.h"
#include "engine/bins.h"
#include "engine/guarded.h"
#include "engine/large_blocks.h"
#include "engine/misuse.h"
#include "engine/page_heap.h"
#include "engine/remote_frees.h"
#include "engine/slabs.h"
#include "engine/sweep.h"
#include "os/mutex.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// ---- heaps of threads that have ended ----

constinit Mutex orphans_lock;
constinit ThreadHeap* orphans TS_GUARDED_BY(orphans_lock) = nullptr;
constinit ThreadHeap* last_orphan TS_GUARDED_BY(orphans_lock) = nullptr;
constinit std::size_t all_stocked_granules TS_GUARDED_BY(orphans_lock) = 0;

// Whether there are any, for who would rather not take the lock; relaxed, since nothing hangs on
// it.
constinit std::atomic<bool> any_orphans{false};

// The heap of an ended thread keeps what is in its bins, for the thread that adopts it, unless the
// slabs of all such heaps would be more than this: few blocks keep many slabs.
constexpr std::size_t max_stocked_granules = (std::size_t{16} << 20) / granule_bytes;

std::uint32_t granules_of_slabs(const ThreadHeap& heap) noexcept {
  std::uint32_t granules = 0;
  for (unsigned c = 1; c < class_count; ++c)
    granules += heap.slabs[c] * size_classes[c].slab_granules;
  return granules;
}

void push_orphan(ThreadHeap& heap) noexcept TS_REQUIRES(orphans_lock) {
  any_orphans.store(true, std::memory_order_relaxed);
  heap.is_orphan = true;
  if (heap.is_stocked) all_stocked_granules += heap.stocked_granules;
  heap.next_orphan = orphans;
  if (orphans == nullptr) last_orphan = &heap;
  orphans = &heap;
}

// Its bins are emptied, or somebody's.
void unstock(ThreadHeap& heap) noexcept TS_REQUIRES(orphans_lock) {
  if (heap.is_stocked) all_stocked_granules -= heap.stocked_granules;
  heap.is_stocked = false;
}

// Null if there is none.
ThreadHeap* pop_orphan() noexcept TS_REQUIRES(orphans_lock) {
  ThreadHeap* const heap = orphans;
  if (heap == nullptr) return nullptr;
  orphans = heap->next_orphan;
  if (orphans == nullptr) {
    last_orphan = nullptr;
    any_orphans.store(false, std::memory_order_relaxed);
  }
  heap->is_orphan = false;
  unstock(*heap);
  return heap;
}

// Puts the first one last.
void rotate_orphans() noexcept TS_REQUIRES(orphans_lock) {
  if (orphans == last_orphan) return;
  ThreadHeap* const first = orphans;
  orphans = first->next_orphan;
  first->next_orphan = nullptr;
  last_orphan->next_orphan = first;
  last_orphan = first;
}

// ---- threads ----

// Whether the heap of the thread that ends may keep what is in its bins. (Of several that end at a
// time each may be told so; then they keep that much more.)
bool may_be_stocked(std::uint32_t granules) noexcept {
  const Guard guard{orphans_lock};
  return all_stocked_granules + granules <= max_stocked_granules;
}

void thread_ends(void* argument) {
  auto& heap = *static_cast<ThreadHeap*>(argument);
  // What follows in this thread (other destructors, the C library's own end) does without: if it
  // got another, its end might be over before that is taken back.
  if (current_heap == &heap) current_heap = ended_heap;
  const std::uint32_t granules = [&heap] {
    const HeapHold hold{heap};
    return granules_of_slabs(heap);
  }();
  const bool is_stocked = may_be_stocked(granules);
  {
    const HeapHold hold{heap};
    if (is_stocked) {
      send_batches(heap);
    } else {
      empty(heap);
    }
  }
  const Guard guard{orphans_lock};
  heap.is_stocked = is_stocked;
  heap.stocked_granules = granules;
  push_orphan(heap);
}

// One more heap; null without memory.
ThreadHeap* new_heap() noexcept {
  const std::uint32_t number = page_heap.new_heap();
  if (number == 0) return nullptr;
  ThreadHeap* const heap = heap_of(number << heap_shift);
  heap->has_wide_bins = number <= most_heaps_with_wide_bins;
  for (unsigned c = 1; c < class_count; ++c) empty_bin(*heap, c);
  heap->self = number << heap_shift;
  return heap;
}

// ---- threads without a heap of their own ----

// One heap serves those that are ending, whose own may have another thread by now, and those of
// whose end nobody would tell us: a call at a time.
constinit Mutex common_lock;
constinit ThreadHeap* common_heap TS_GUARDED_BY(common_lock) = nullptr;

Block* allocate_from_common(unsigned size_class) noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) common_heap = new_heap();
  if (common_heap == nullptr) return nullptr;
  Bin& bin = common_heap->bins[size_class];
  Block* const block = bin.head;
  if (block == nullptr) {
    const HeapHold hold{*common_heap};
    return refill(*common_heap, size_class);
  }
  bin.head = block->next;
  ++bin.room;
  return block;
}

void drain_common() noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) return;
  const HeapHold hold{*common_heap};
  empty(*common_heap);
}

void recount_if_inherited(ThreadHeap& heap) noexcept {
  if (heap.is_inherited) recount_bins(heap);
  heap.is_inherited = false;
}

// A heap for this thread: one that a thread left behind, or a new one; null if there is none to be
// had, or nobody would take it back.
ThreadHeap* adopt_heap() noexcept {
  ThreadHeap* heap = nullptr;
  {
    const Guard guard{orphans_lock};
    heap = pop_orphan();
  }
  const bool is_adopted = heap != nullptr;
  if (!is_adopted) heap = new_heap();
  if (heap == nullptr) return nullptr;
  if constexpr (counting) count_event(is_adopted ? Event::adopted_heaps : Event::heaps_created);
  recount_if_inherited(*heap);
  // Before the registration, which may allocate.
  current_heap = heap;
  if (os::call_at_thread_exit(thread_ends, heap)) return heap;
  thread_ends(heap);
  return nullptr;
}

// From a thread that has no heap yet, or no longer.
[[gnu::noinline]] void* allocate_without_heap(unsigned size_class) noexcept {
  // An adopted heap may have blocks in this bin.
  if (current_heap == no_heap && adopt_heap() != nullptr)
    return allocate_small(size_class * sizeof(Bin));
  Block* const block = allocate_from_common(size_class);
  return block != nullptr ? block : out_of_memory();
}

// Of no slab: a large block, or none of ours.
[[gnu::noinline]] void release_other(void* p, Entry entry) noexcept {
  const int kept = errno;
  if ((entry & large_entry) != 0) [[likely]] {
    release_large(p, entry);
  } else {
    report_stray(p, FoundBy::free);
  }
  errno = kept;
}

// Takes back what the heaps of ended threads hold, some of them in turn, and returns their empty
// slabs to the page heap; false if there is no such heap.
bool drain_orphans(std::size_t at_most) noexcept {
  if (!any_orphans.load(std::memory_order_relaxed)) return false;
  const Guard guard{orphans_lock};
  for (ThreadHeap* const last = last_orphan; orphans != nullptr && at_most != 0; --at_most) {
    ThreadHeap& heap = *orphans;
    {
      const HeapHold hold{heap};
      if (heap.is_stocked) {
        unstock(heap);
        recount_if_inherited(heap);
        empty(heap);
      } else if (drain(heap)) {
        release_empty_slabs(heap);
      }
    }
    rotate_orphans();
    if (&heap == last) break;
  }
  return true;
}

// What to do about a slab that got a block back, after which so many are used, but for the usual
// nothing.
[[gnu::noinline]] void settle_and_unpin(ThreadHeap& heap, Span& slab,
                                        std::uint32_t used_now) noexcept {
  const int kept = errno;
  const HeapHold hold{heap};
  set_used(slab, used_now);
  if (settle(heap, slab)) unpin(heap, slab);
  errno = kept;
}

}  // namespace

void* out_of_memory() noexcept {
  os::explain_refusal();
  errno = ENOMEM;
  return nullptr;
}

void drain_all() noexcept {
  // Twice: what lay in one heap's bins may belong to another that was drained before.
  for (int round = 0; round < 2; ++round) {
    if (has_heap()) {
      const HeapHold hold{own_heap()};
      empty(own_heap());
    }
    drain_common();
    drain_orphans(SIZE_MAX);
  }
  sweep_all();
}

Span* allocate_span(std::size_t granules, std::size_t alignment_granules,
                    unsigned size_class) noexcept {
  using From = PageHeap::From;
  const auto allocate = [=](From from) {
    return page_heap.allocate(granules, alignment_granules, size_class, from);
  };
  Span* span = allocate(From::dirty);
  if (span != nullptr) return span;
  if (has_heap()) {
    const HeapHold hold{own_heap()};
    send_batches(own_heap());
    if (drain(own_heap())) span = allocate(From::dirty);
  }
  if (span != nullptr) return span;
  constexpr std::size_t orphans_at_a_time = 4;
  if (drain_orphans(orphans_at_a_time)) span = allocate(From::dirty);
  if (span == nullptr) span = allocate(From::anywhere);
  if (span != nullptr) return span;
  const bool has_drained = drain_orphans(SIZE_MAX);
  return sweep_all() || has_drained ? allocate(From::anywhere) : nullptr;
}

void* allocate_slow(const Bin& bin) noexcept {
  const auto size_class = static_cast<unsigned>(&bin - current_heap->bins);
  if (!has_heap()) [[unlikely]]
    return allocate_without_heap(size_class);
  if (current_options.guard_sample != 0) [[unlikely]] {
    if (void* const p = allocate_guarded(size_classes[size_class]); p != nullptr) return p;
  }
  ThreadHeap& heap = own_heap();
  const HeapHold hold{heap};
  Block* const block = refill(heap, size_class);
  return block != nullptr ? block : out_of_memory();
}

// Classes with long slabs have no more blocks in their bins.
constexpr std::int32_t most_used_to_unpin = 8;
static_assert(std::ranges::all_of(size_classes, [](const SizeClass& c) {
  return c.slab_granules == 1 || c.wide_bin_blocks <= std::uint32_t{most_used_to_unpin};
}));

void release_overflow(void* p, std::size_t bin_offset, HeapFront* heap) noexcept {
  if constexpr (counting) count_event(Event::bin_overflows);
  ++bin_at(heap, bin_offset).room;
  // Without a mark of being busy: a child of a fork that sees only a part of this, from the first
  // store on, sees a list that is longer than `free_blocks` says, or a block that still counts as
  // used; it can live with either.
  Span& slab = *slab_of(p);
  // What is home cannot come home.
  Block* const first = slab.blocks;
  if (first == p) [[unlikely]]
    return report_double_free(p);
  const auto others = static_cast<std::int32_t>(used(slab)) - 1;
  put_before(slab.blocks, static_cast<Block*>(p), first);
  std::atomic_thread_fence(std::memory_order_release);
  ++slab.free_blocks;
  // release: without a hold, the slab may be swept from here on (pairs with is_sweepable)
  if (slab.listed && others > (slab.granules == 1 ? 0 : most_used_to_unpin))
    return slab.used.store(static_cast<std::uint32_t>(others), std::memory_order_release);
  if (others >= 0) [[likely]]
    return settle_and_unpin(static_cast<ThreadHeap&>(*heap), slab,
                            static_cast<std::uint32_t>(others));
  slab.blocks = first;
  --slab.free_blocks;
  report_double_free(p);
}

// Whether the entry is that of a granule of a slab.
bool is_of_slab(Entry entry) noexcept { return entry >= heap_unit && (entry & large_entry) == 0; }

// A block of a slab, from a thread without a heap.
[[gnu::noinline]] void release_without_heap(void* p, Entry entry) noexcept {
  if (current_heap == no_heap) {
    const int kept = errno;
    ThreadHeap* const heap = adopt_heap();
    errno = kept;
    if (heap != nullptr) return release(p);  // which may be its own now
  }
  if constexpr (counting) count_event(Event::remote_frees);
  // A thread that is ending gets no heap for this: nobody would take it back, if its end is over.
  release_remote_at_once(p, size_class_of(entry));
}

void release_slow(void* p, Entry kind) noexcept {
  const Entry entry = kind ^ current_heap->self;
  if (!is_of_slab(entry)) [[unlikely]]
    return p != nullptr ? release_other(p, entry) : void();
  if (!has_heap()) [[unlikely]]
    return release_without_heap(p, entry);
  if constexpr (counting) count_event(Event::remote_frees);
  ThreadHeap& heap = own_heap();
  const SizeClass& c = size_class_of(entry);
  // A block that shares no cache line with others may as well stay here, where its lines are.
  Bin& bin = bin_at(&heap, entry & class_mask);
  const BlockPlace place = place_of(p, c);
  if (c.block_bytes % cache_line_bytes == 0 && bin.room > 0 && place.is_beginning) {
    if (bin.head == p) [[unlikely]]
      return report_double_free(p);
    --bin.room;
    return put_before(bin.head, static_cast<Block*>(p));
  }
  release_remote(heap, p, place, c, FoundBy::free);
}

// ---- fork ----
//
// Locks in the order in which threads take them: common, orphans, sweep, pages, guarded. In the
// child, the heaps of the threads that are gone become orphans, but for those that were in the
// middle of a change.

namespace {
constinit bool forks_with_one_thread = false;  // the thread that has all the locks for it
}  // namespace

void fork_prepare() noexcept TS_NO_ANALYSIS {
  common_lock.lock_for_fork();
  orphans_lock.lock_for_fork();
  sweep_fork_prepare();
  page_heap.fork_prepare();
  guarded_fork_prepare();
  forks_with_one_thread = os::has_one_thread();
}

void fork_parent() noexcept TS_NO_ANALYSIS {
  guarded_fork_parent();
  page_heap.fork_parent();
  sweep_fork_parent();
  orphans_lock.unlock_after_fork();
  common_lock.unlock_after_fork();
}

void fork_child() noexcept TS_NO_ANALYSIS {
  guarded_fork_child();
  page_heap.fork_child();
  sweep_fork_child();
  orphans_lock.reset_after_fork();
  common_lock.reset_after_fork();
  if (forks_with_one_thread) return;  // it may be in the middle of a change, and will end that
  const std::uint32_t count = layout.heap_count.load(std::memory_order_relaxed);
  for (std::uint32_t number = 1; number <= count; ++number) {
    ThreadHeap& heap = *heap_of(number << heap_shift);
    const bool is_somebodys = &heap == current_heap || &heap == common_heap || heap.is_orphan;
    const bool is_in_change = heap.busy.load(std::memory_order_relaxed) ||
                              heap.holder.load(std::memory_order_relaxed) != Holder::none;
    if (is_somebodys || is_in_change || heap.self == 0) continue;
    // Touched as little as may be: what the child writes to is copied, and it may well end soon.
    heap.is_stocked = heap.is_inherited = true;
    heap.stocked_granules = granules_of_slabs(heap);
    push_orphan(heap);
  }
}

}  // namespace ts::engine
