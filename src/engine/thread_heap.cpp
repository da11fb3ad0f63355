#include "engine/thread_heap.h"

#include <bit>
#include <cerrno>

#include "base/check.h"
#include "engine/page_heap.h"
#include "os/mutex.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr const char* not_in_use = "free of a block that is not in use";

[[gnu::cold]] void* out_of_memory() noexcept {
  errno = ENOMEM;
  return nullptr;
}

// ---- heaps of threads that have ended ----

constinit Mutex orphans_lock;
constinit ThreadHeap* orphans TS_GUARDED_BY(orphans_lock) = nullptr;
constinit ThreadHeap* last_orphan TS_GUARDED_BY(orphans_lock) = nullptr;

void push_orphan(ThreadHeap& heap) noexcept TS_REQUIRES(orphans_lock) {
  heap.is_orphan = true;
  heap.next_orphan = orphans;
  if (orphans == nullptr) last_orphan = &heap;
  orphans = &heap;
}

// Null if there is none.
ThreadHeap* pop_orphan() noexcept TS_REQUIRES(orphans_lock) {
  ThreadHeap* const heap = orphans;
  if (heap == nullptr) return nullptr;
  orphans = heap->next_orphan;
  if (orphans == nullptr) last_orphan = nullptr;
  heap->is_orphan = false;
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

// Marks a heap as being changed, for a fork in another thread (see BusyMark in the classic heaps'
// thread_slots.h for why the child sees the mark whenever it sees the change).
class Busy {
 public:
  explicit Busy(ThreadHeap& heap) noexcept
      : heap_{heap}, before_{heap.busy.load(std::memory_order_relaxed)} {
    heap_.busy.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~Busy() { heap_.busy.store(before_, std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  ThreadHeap& heap_;
  bool before_;  // a slow path within another: the C library allocates while it registers our end
};

// ---- lists of partial slabs ----

void list(ThreadHeap& heap, Span& slab) noexcept {
  Span*& head = heap.partial[slab.size_class];
  slab.previous = nullptr;
  slab.next = head;
  if (head != nullptr) head->previous = &slab;
  head = &slab;
  slab.listed = true;
}

void unlist(ThreadHeap& heap, Span& slab) noexcept {
  if (slab.next != nullptr) slab.next->previous = slab.previous;
  (slab.previous != nullptr ? slab.previous->next : heap.partial[slab.size_class]) = slab.next;
  slab.listed = false;
}

std::uint32_t used(const Span& slab) noexcept { return slab.used.load(std::memory_order_relaxed); }
void set_used(Span& slab, std::uint32_t blocks) noexcept {
  slab.used.store(blocks, std::memory_order_relaxed);
}

void release_slab(ThreadHeap& heap, Span& slab) noexcept {
  unlist(heap, slab);
  std::atomic<Entry>* const entries = layout.map + (&slab - layout.spans);
  for (std::size_t i = 0; i < slab.granules; ++i) entries[i].store(0, std::memory_order_relaxed);
  page_heap.release(&slab);
}

// A slab may have got blocks back. One empty slab of a class stays, so that a program that takes and
// frees a single block does not go to the page heap each time.
void settle(ThreadHeap& heap, Span& slab) noexcept {
  // A count may come without a block, if an earlier drain found the bit before it was counted.
  if (!slab.listed && slab.blocks != nullptr) list(heap, slab);
  if (used(slab) == 0 && (slab.next != nullptr || slab.previous != nullptr))
    release_slab(heap, slab);
}

void push(Span& slab, Block* block) noexcept {
  block->next = slab.blocks;
  slab.blocks = block;
  ++slab.free_blocks;
}

Span* new_slab(ThreadHeap& heap, unsigned size_class) noexcept {
  Span* const slab = page_heap.allocate(size_classes[size_class].slab_granules, 1, SpanState::slab);
  if (slab == nullptr) return nullptr;
  slab->blocks = nullptr;
  slab->carved = 0;
  slab->free_blocks = 0;
  slab->size_class = static_cast<std::uint8_t>(size_class);
  set_used(*slab, 0);
  slab->pending.store(0, std::memory_order_relaxed);
  std::atomic<Entry>* const entries = layout.map + (slab - layout.spans);
  for (std::uint32_t i = 0; i < slab->granules; ++i)
    entries[i].store(heap.self | i << back_shift | size_class, std::memory_order_relaxed);
  list(heap, *slab);
  return slab;
}

// ---- remote frees ----
//
// A thread that frees another heap's block does not write to the block. It sets the block's bit (one
// per 16 bytes of the heap), then adds one to the slab's `pending`; whoever makes it positive pushes
// the slab onto the owner's stack `ready`. The owner, when a bin is dry, takes the stack, and for
// each slab takes the count, then the bits, and puts the blocks on the slab's list.
//
// - No block is lost: a bit that the owner does not see yet belongs to a free whose addition comes
//   after the owner took the count; that addition finds 0 and pushes the slab again. (The bit is set
//   before the addition, release; the owner takes the count, acquire, before it looks at the bits.)
// - No slab is returned under a free in progress: the owner's `used` falls by the count, not by the
//   bits found, so it reaches 0 only when every freeing thread has made its addition; and the one
//   that still has to push comes before the owner can take the count, since the owner takes counts
//   of slabs that it found on the stack only. Between adding to a positive count and returning,
//   a thread touches nothing of the slab.
// - `next_ready` has one writer at a time: who made the count positive, until the owner takes it.
// - The stack is emptied by an exchange, never popped, so it knows no ABA.

// Takes what other threads gave back to this heap; true if there was anything.
bool drain(ThreadHeap& heap) noexcept {
  if (heap.ready.load(std::memory_order_relaxed) == nullptr) return false;
  // acquire: pairs with the push in release_remote; sees next_ready
  Span* slab = heap.ready.exchange(nullptr, std::memory_order_acquire);
  while (slab != nullptr) {
    Span* const next = slab->next_ready;  // before the count: then others may write it again
    // acquire: pairs with the addition in release_remote; sees the bits of all that are counted.
    // release: pairs with the next addition to 0, whose thread writes next_ready, which we have read
    const std::uint32_t counted = slab->pending.exchange(0, std::memory_order_acq_rel);
    const std::size_t first_word =
        static_cast<std::size_t>(slab - layout.spans) * remote_words_per_granule;
    for (std::size_t i = 0; i < slab->granules * remote_words_per_granule; ++i) {
      std::atomic<std::uint64_t>& word = layout.remote_bits[first_word + i];
      if (word.load(std::memory_order_relaxed) == 0) continue;
      // acquire: pairs with the setting of the bit; what the freeing thread did to the block is over
      for (std::uint64_t bits = word.exchange(0, std::memory_order_acquire); bits != 0;
           bits &= bits - 1) {
        const std::size_t offset = i * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        push(*slab, reinterpret_cast<Block*>(memory_of(slab) + offset * min_alignment));
      }
    }
    set_used(*slab, used(*slab) - counted);
    settle(heap, *slab);
    slab = next;
  }
  return true;
}

void release_remote(void* p, Entry entry) noexcept {
  Span& slab = *slab_of(p, entry);
  const auto offset = static_cast<std::uint32_t>(static_cast<std::byte*>(p) - memory_of(&slab));
  require(offset % size_classes[entry & class_mask].block_bytes == 0, not_in_use, p);
  const std::size_t bit = (address_of(p) - layout.base) / min_alignment;
  const std::uint64_t mask = std::uint64_t{1} << bit % 64;
  const std::uint64_t before =
      layout.remote_bits[bit / 64].fetch_or(mask, std::memory_order_release);
  require((before & mask) == 0, not_in_use, p);
  // release: the bit is set before it is counted. acquire: pairs with the owner's exchange, after
  // which next_ready is ours to write.
  if (slab.pending.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  std::atomic<Span*>& ready = heap_of(entry)->ready;
  Span* head = ready.load(std::memory_order_relaxed);
  do {
    slab.next_ready = head;
  } while (!ready.compare_exchange_weak(head, &slab, std::memory_order_release,
                                        std::memory_order_relaxed));
}

// ---- bins ----

void empty_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  Bin& bin = heap.bins[size_class];
  Block* block = bin.head;
  bin = {};
  while (block != nullptr) {
    Block* const next = block->next;
    Span& slab = *slab_of(block, entry_of(block));
    push(slab, block);
    set_used(slab, used(slab) - 1);
    settle(heap, slab);
    block = next;
  }
}

// Puts everything that the heap holds aside back into slabs, and what is empty into the page heap.
void empty_bins(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) empty_bin(heap, c);
  drain(heap);
}

void release_empty_slabs(ThreadHeap& heap) noexcept {
  for (Span* head : heap.partial) {
    for (Span* slab = head; slab != nullptr;) {
      Span* const next = slab->next;
      if (used(*slab) == 0) release_slab(heap, *slab);
      slab = next;
    }
  }
}

// A thread that needs a slab first sees whether others have freed what ended threads left behind.
constexpr std::size_t orphans_at_a_time = 4;

// Fills an empty bin from a slab and returns one block more.
Block* refill(ThreadHeap& heap, unsigned size_class) noexcept {
  const SizeClass& c = size_classes[size_class];
  drain(heap);
  Span* slab = heap.partial[size_class];
  if (slab == nullptr) {
    drain_orphans(orphans_at_a_time);
    slab = new_slab(heap, size_class);
    if (slab == nullptr) {
      drain_orphans(SIZE_MAX);
      slab = new_slab(heap, size_class);
    }
    if (slab == nullptr) return nullptr;
  } else if (slab->blocks == nullptr && slab->next != nullptr) {
    // Of a class, only the latest slab still has fresh blocks; what others have is dirty already.
    slab = slab->next;
  }
  Block* head = nullptr;
  std::uint32_t taken = 0;
  if (slab->blocks != nullptr) {
    head = slab->blocks;
    taken = slab->free_blocks;
    Block* rest = nullptr;
    if (taken > c.bin_blocks) {
      taken = c.bin_blocks / 2 + 1;
      Block* last = head;
      for (std::uint32_t i = 1; i < taken; ++i) last = last->next;
      rest = last->next;
      last->next = nullptr;
    }
    slab->blocks = rest;
    slab->free_blocks -= taken;
  } else {
    const std::uint32_t left = c.slab_blocks - slab->carved;
    taken = c.carve_blocks < left ? c.carve_blocks : left;
    std::byte* at = memory_of(slab) + std::size_t{slab->carved} * c.block_bytes;
    head = reinterpret_cast<Block*>(at);
    for (std::uint32_t i = 1; i < taken; ++i, at += c.block_bytes)
      reinterpret_cast<Block*>(at)->next = reinterpret_cast<Block*>(at + c.block_bytes);
    reinterpret_cast<Block*>(at)->next = nullptr;
    slab->carved += taken;
  }
  set_used(*slab, used(*slab) + taken);
  if (slab->blocks == nullptr && slab->carved == c.slab_blocks) unlist(heap, *slab);
  heap.bins[size_class] = {head->next, c.bin_blocks - (taken - 1)};
  return head;
}

// ---- threads ----

void thread_ends(void* argument) {
  auto& heap = *static_cast<ThreadHeap*>(argument);
  // What follows in this thread (other destructors) has no heap, or gets one again.
  if (current_heap == &heap) current_heap = &no_heap;
  {
    const Busy busy{heap};
    empty_bins(heap);
    release_empty_slabs(heap);
  }
  const Guard guard{orphans_lock};
  push_orphan(heap);
}

void open_bins(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) heap.bins[c].room = size_classes[c].bin_blocks;
}

// A heap for this thread: one that a thread left behind, or a new one.
ThreadHeap* adopt_heap() noexcept {
  ThreadHeap* heap = nullptr;
  {
    const Guard guard{orphans_lock};
    heap = pop_orphan();
  }
  if (heap == nullptr) {
    const std::uint32_t number = page_heap.new_heap();
    if (number == 0) return nullptr;
    heap = heap_of(number << heap_shift);
    heap->self = number << heap_shift;
  }
  open_bins(*heap);
  // Before the registration, which may allocate.
  current_heap = heap;
  // If it fails, the heap is lost with the thread, and nothing else.
  os::call_at_thread_exit(thread_ends, heap);
  return heap;
}

ThreadHeap* own_heap() noexcept { return current_heap != &no_heap ? current_heap : adopt_heap(); }

void release_unusual(void* p, Entry entry) noexcept {
  if ((entry & large_entry) != 0) {
    require(address_of(p) % granule_bytes == 0, not_in_use, p);
    Span& span = layout.spans[granule_of(p)];
    // An exchange, so that of two threads that free the same block one is told.
    require(layout.map[granule_of(p)].exchange(0, std::memory_order_relaxed) == entry, not_in_use,
            p);
    page_heap.release(&span);
    return;
  }
  require(entry != 0, not_in_use, p);
  ThreadHeap& heap = *current_heap;
  if ((entry ^ heap.self) >= heap_unit) return release_remote(p, entry);
  // The bin is full.
  const Busy busy{heap};
  Span& slab = *slab_of(p, entry);
  push(slab, static_cast<Block*>(p));
  set_used(slab, used(slab) - 1);
  settle(heap, slab);
}

}  // namespace

void drain_own() noexcept {
  if (current_heap == &no_heap) return;
  ThreadHeap& heap = *current_heap;
  const Busy busy{heap};
  empty_bins(heap);
  release_empty_slabs(heap);
  open_bins(heap);
}

void drain_orphans(std::size_t at_most) noexcept {
  const Guard guard{orphans_lock};
  for (ThreadHeap* const last = last_orphan; orphans != nullptr && at_most != 0; --at_most) {
    ThreadHeap& heap = *orphans;
    {
      const Busy busy{heap};
      if (drain(heap)) release_empty_slabs(heap);
    }
    rotate_orphans();
    if (&heap == last) return;
  }
}

void* allocate_slow(unsigned size_class) noexcept {
  ThreadHeap* const heap = own_heap();
  if (heap == nullptr) return out_of_memory();
  const Busy busy{*heap};
  Block* const block = refill(*heap, size_class);
  return block != nullptr ? block : out_of_memory();
}

void release_slow(void* p, Entry entry) noexcept {
  const int kept = errno;
  release_unusual(p, entry);
  errno = kept;
}

void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept {
  // Far beyond any reservation, and far from overflowing.
  constexpr std::size_t limit = address_limit;
  if (bytes > limit || alignment > limit) return out_of_memory();
  const std::size_t granules = (bytes + granule_bytes - 1) / granule_bytes;
  const std::size_t alignment_granules = alignment <= granule_bytes ? 1 : alignment / granule_bytes;
  Span* span =
      page_heap.allocate(granules == 0 ? 1 : granules, alignment_granules, SpanState::large);
  if (span == nullptr) {
    drain_orphans(SIZE_MAX);
    span = page_heap.allocate(granules == 0 ? 1 : granules, alignment_granules, SpanState::large);
    if (span == nullptr) return out_of_memory();
  }
  if (zeroed != nullptr) *zeroed = span->zeroed;
  layout.map[span - layout.spans].store(large_entry, std::memory_order_relaxed);
  return memory_of(span);
}

// ---- fork ----
//
// Locks in the order in which threads take them: orphans, then pages. In the child, the heaps of the
// threads that are gone become orphans, but for those that were in the middle of a change.

void fork_prepare() noexcept TS_NO_ANALYSIS {
  orphans_lock.lock();
  page_heap.fork_prepare();
}

void fork_parent() noexcept TS_NO_ANALYSIS {
  page_heap.fork_parent();
  orphans_lock.unlock();
}

void fork_child() noexcept TS_NO_ANALYSIS {
  page_heap.fork_child();
  orphans_lock.reset_after_fork();
  const std::uint32_t count = page_heap.heap_count();
  for (std::uint32_t number = 1; number <= count; ++number) {
    ThreadHeap& heap = *heap_of(number << heap_shift);
    if (&heap == current_heap || heap.is_orphan || heap.busy.load(std::memory_order_relaxed) ||
        heap.self == 0)
      continue;
    thread_ends(&heap);
  }
}

}  // namespace ts::engine
