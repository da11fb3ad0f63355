#include "secure/secure.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "os/entropy.h"
#include "os/mutex.h"
#include "os/os.h"
#include "secure/checks.h"
#include "secure/findings.h"
#include "secure/size_classes.h"
#include "secure/state.h"
#include "secure/zero.h"

namespace ts::secure {
namespace {

// Held while reserving addresses, once per process.
constinit Mutex opening;

// Relaxed: it only decides how strictly sizes are checked.
constinit std::atomic<bool> sizes_may_be_less{false};

bool ensure_open() noexcept {
  if (is_open()) [[likely]]
    return true;
  os::find_entropy();
  const Guard guard{opening};
  return is_open() || open_space();
}

// ---- arenas ----

// Threads take arenas round-robin and keep them. Relaxed: any distribution will do.
unsigned own_arena() noexcept {
  static constinit std::atomic<unsigned> threads{0};
  static constinit thread_local unsigned arena_plus_one = 0;
  if (arena_plus_one == 0) [[unlikely]]
    arena_plus_one = threads.fetch_add(1, std::memory_order_relaxed) % roots.arenas + 1;
  return arena_plus_one - 1;
}

// ---- findings ----

struct Seen {
  Finding finding;
  std::size_t bytes;       // as requested; 0 if no block in use begins there
  std::size_t most_bytes;  // capacity of a block there; 0: unknown
};
Seen look_at(const void* p) noexcept {
  if (!is_open()) return {Finding::foreign, 0, 0};
  if (const Home home = home_of(p); home.heap != nullptr) {
    const ClassHeap::Seen seen = home.heap->look_at(p);
    return {seen.finding, seen.bytes, size_class_of(home.size_class).block_bytes};
  }
  std::size_t bytes = 0;
  const Finding finding = roots.state->large.look_at(p, bytes);
  return {finding, bytes, bytes};
}

// Prefetches the lines that freeing a short block reads or clears, which may be in another CPU's
// cache, before taking the lock, so that no thread waits for them.
void fetch_lines(const void* p, const SizeClass& c) noexcept {
  constexpr std::size_t most = 512;
  const auto* const begin = static_cast<const std::byte*>(p);
  __builtin_prefetch(begin - canary_bytes, 0);
  if (c.slot_bytes > most) {
    __builtin_prefetch(begin + c.slot_bytes - canary_bytes, 0);
    return;
  }
  for (std::size_t at = 0; at < c.slot_bytes; at += cache_line_bytes)
    __builtin_prefetch(begin + at, 1);
  __builtin_prefetch(begin + c.slot_bytes - canary_bytes, 1);
}

Finding take_back(const void* p, bool ignores_damage) noexcept {
  if (!is_open()) return Finding::foreign;
  const Home home = home_of(p);
  if (home.heap != nullptr) fetch_lines(p, size_class_of(home.size_class));
  return home.heap != nullptr ? home.heap->release(p, ignores_damage)
                              : roots.state->large.release(p, ignores_damage);
}

[[gnu::cold]] void release_misused(void* p, Finding finding) noexcept {
  report(finding, FoundBy::free, p, look_at(p).most_bytes);
  if (is_damage(finding)) take_back(p, true);
}

// ---- allocating ----

[[gnu::cold]] void* out_of_memory() noexcept {
  os::explain_refusal();
  errno = ENOMEM;
  return nullptr;
}

// Returns all unused memory and addresses, before a request is refused.
void make_room() noexcept {
  for_each_heap([](ClassHeap& heap, unsigned) { heap.give_back_empty_slabs(); });
  roots.state->large.end_quarantine();
  roots.state->large.give_back_stuck();
}

// Allocates from the thread's arena, or from others if its region for the class is full.
ClassHeap::Allocation allocate_from_any(unsigned size_class, std::size_t bytes) noexcept {
  const unsigned own = own_arena();
  for (unsigned arena = own;;) {
    const auto found = roots.state->heaps[arena][size_class].allocate(
        arena * regions_per_arena + size_class, bytes);
    arena = arena + 1 == roots.arenas ? 0 : arena + 1;
    if (found.refusal != ClassHeap::Refusal::region_is_full || arena == own) return found;
  }
}

// Reports a write to free memory; the program still gets zeros.
[[gnu::cold]] void clean(std::byte* block, const SizeClass& c, std::size_t bytes) noexcept {
  report(Finding::write_after_free, FoundBy::a_later_call, block, c.block_bytes);
  // Everything but the tail's own bytes.
  std::size_t begin = bytes;
  std::size_t end = bytes + canary_bytes;
  if (!c.is_long()) {
    begin = has_mark(c, bytes) ? bytes + 1 : c.block_bytes;
    end = has_mark(c, bytes) ? bytes + 2 : c.block_bytes;
  }
  std::memset(block, 0, begin);
  std::memset(block + end, 0, tail_words(c, bytes).last - end);
}

// Null if `refusal` is set.
std::byte* allocate_small(unsigned size_class, std::size_t bytes,
                          ClassHeap::Refusal& refusal) noexcept {
  const ClassHeap::Allocation found = allocate_from_any(size_class, bytes);
  refusal = found.refusal;
  if (found.block == nullptr) [[unlikely]]
    return nullptr;
  const SizeClass& c = size_class_of(size_class);
  if (found.is_written || !is_zero_around(found.block, tail_words(c, bytes))) [[unlikely]]
    clean(found.block, c, bytes);
  return found.block;
}

std::byte* try_allocate(unsigned size_class, std::size_t bytes, std::size_t alignment) noexcept {
  auto refusal = ClassHeap::Refusal::region_is_full;
  std::byte* const block =
      size_class != no_class ? allocate_small(size_class, bytes, refusal) : nullptr;
  return refusal == ClassHeap::Refusal::region_is_full
             ? roots.state->large.allocate(bytes, alignment)
             : block;
}

// Whether a request with this size and alignment could have produced this block.
bool may_be(const void* p, const Seen& seen, std::size_t bytes, std::size_t alignment) noexcept {
  if (sizes_may_be_less.load(std::memory_order_relaxed)) return bytes <= seen.bytes;
  const Home home = home_of(p);
  return bytes == seen.bytes &&
         (home.heap == nullptr || class_for(bytes, alignment) == home.size_class);
}

}  // namespace

void* Secure::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const int kept = errno;
  // Far larger than any possible range, and far from overflowing.
  if (bytes > address_limit || alignment > address_limit || !ensure_open()) [[unlikely]]
    return out_of_memory();
  const unsigned size_class = class_for(bytes, alignment);
  std::byte* block = try_allocate(size_class, bytes, alignment);
  if (block == nullptr) [[unlikely]] {
    make_room();
    block = try_allocate(size_class, bytes, alignment);
    // The program may have mapped something where the next slab belongs.
    if (block == nullptr && size_class != no_class)
      block = roots.state->large.allocate(bytes, alignment);
    if (block == nullptr) return out_of_memory();
  }
  errno = kept;
  if constexpr (debug_level >= 2) check_now_and_then();
  return block;
}

void Secure::release(void* p) noexcept {
  if (p == nullptr) return;
  const int kept = errno;
  const Finding finding = take_back(p, false);
  if (finding != Finding::sound) [[unlikely]]
    release_misused(p, finding);
  errno = kept;
  if constexpr (debug_level >= 2) check_now_and_then();
}

bool Secure::resize(void* p, std::size_t bytes) noexcept {
  if (!is_open()) return false;
  if (const Home home = home_of(p); home.heap != nullptr)
    return class_for(bytes) == home.size_class && home.heap->resize(p, bytes);
  const int kept = errno;
  const bool fits = roots.state->large.resize(p, bytes);
  errno = kept;
  return fits;
}

void* Secure::move(void* p, std::size_t bytes) noexcept {
  if (home_of(p).heap != nullptr || bytes > address_limit) return nullptr;
  const int kept = errno;
  std::byte* const moved = roots.state->large.move(p, bytes);
  errno = kept;
  return moved;
}

bool Secure::owns(const void* p) noexcept {
  const Finding finding = look_at(p).finding;
  return finding == Finding::sound || is_damage(finding);
}

bool Secure::is_block(const void* p, FoundBy found_by) noexcept {
  const Seen seen = look_at(p);
  report(seen.finding, found_by, p, seen.most_bytes);
  return seen.finding == Finding::sound || is_damage(seen.finding);
}

void Secure::check_size(const void* p, std::size_t bytes, std::size_t alignment) noexcept {
  const Seen seen = look_at(p);
  if (seen.finding != Finding::sound) return;
  alignment = alignment <= min_alignment ? min_alignment : std::bit_ceil(alignment);
  if (address_of(p) % alignment != 0 || !may_be(p, seen, bytes, alignment))
    report(Finding::wrong_size, FoundBy::sized_free, p, seen.most_bytes);
}

void Secure::check_most(const void* p, std::size_t bytes) noexcept {
  const Seen seen = look_at(p);
  if (seen.finding == Finding::sound && bytes > seen.bytes)
    report(Finding::wrong_size, FoundBy::sized_free, p, seen.most_bytes);
}

void Secure::note_kept(const void*) noexcept {
  sizes_may_be_less.store(true, std::memory_order_relaxed);
}

std::size_t Secure::usable_size(const void* p) noexcept {
  return is_block(p, FoundBy::usable_size) ? bytes_of(p) : 0;
}

std::size_t Secure::bytes_of(const void* p) noexcept { return look_at(p).bytes; }

// ---- fork ----
//
// Locks in the order in which threads take them: opening, the class heaps' (no thread holds two),
// the large blocks'.

void Secure::fork_prepare() noexcept TS_NO_ANALYSIS {
  opening.lock_for_fork();
  if (!is_open()) return;
  for_each_heap([](ClassHeap& heap, unsigned) TS_NO_ANALYSIS { heap.fork_prepare(); });
  roots.state->large.fork_prepare();
}

void Secure::fork_parent() noexcept TS_NO_ANALYSIS {
  if (is_open()) {
    roots.state->large.fork_parent();
    for_each_heap([](ClassHeap& heap, unsigned) TS_NO_ANALYSIS { heap.fork_parent(); });
  }
  opening.unlock_after_fork();
}

void Secure::fork_child() noexcept TS_NO_ANALYSIS {
  is_forked = true;
  Random::reset_after_fork();
  if (is_open()) {
    roots.state->large.fork_child();
    for_each_heap([](ClassHeap& heap, unsigned) TS_NO_ANALYSIS { heap.fork_child(); });
  }
  opening.reset_after_fork();
}

}  // namespace ts::secure
