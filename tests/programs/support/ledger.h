// The blocks that a test program believes it has, and two checks of that: no two live blocks
// overlap, and every live block still holds what was written into it. A failed check ends the
// program with status 1 and a line that names the blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "programs/support/content.h"
#include "programs/support/mapped_array.h"

namespace ts::test {

// A block as its holder sees it; all zero if there is none.
struct Holding {
  std::byte* address;
  std::size_t bytes;
  std::uint32_t thread;  // that allocated it
  std::uint32_t number;  // of the allocation, among the thread's

  bool live() const { return address != nullptr; }
  std::uint64_t key() const { return (std::uint64_t{thread} << 8 ^ number) & 0xffff; }
  void write() const { Content{address, bytes, key()}.write(address, bytes); }
};

[[noreturn]] inline void fail_with(const char* what, const Holding& holding) {
  std::fprintf(stderr, "FAILED: %s: [%p, %p), %zu bytes, allocation %u of thread %u\n", what,
               static_cast<void*>(holding.address),
               static_cast<void*>(holding.address + holding.bytes), holding.bytes, holding.number,
               holding.thread);
  std::_Exit(1);
}

// Allocates through `allocator`, fills the block, and fails if it is null or misaligned.
template <class Allocate>
Holding hold(Allocate allocate, std::size_t bytes, std::uint32_t thread, std::uint32_t number) {
  const Holding holding{static_cast<std::byte*>(allocate(bytes)), bytes, thread, number};
  if (!holding.live()) fail_with("the allocator returned null", holding);
  if (reinterpret_cast<std::uintptr_t>(holding.address) % 16 != 0)
    fail_with("the block is not aligned to 16", holding);
  holding.write();
  return holding;
}

inline void require_intact(const Holding& holding) {
  const std::size_t damage = Content{holding.address, holding.bytes, holding.key()}.first_damage(
      holding.address, holding.bytes);
  if (damage == intact) return;
  std::fprintf(stderr, "damage at offset %zu: ", damage);
  fail_with("the contents of a live block changed", holding);
}

// Checks the block one last time and frees it.
template <class Release>
void let_go(Release release, Holding& holding) {
  require_intact(holding);
  release(holding.address);
  holding = Holding{};
}

// Fails if any two live blocks of the ledger overlap; returns the number of live blocks. No thread
// may be working.
inline std::size_t require_disjoint(const MappedArray<Holding>& ledger) {
  MappedArray<Holding> live{ledger.size()};
  Holding* const end = std::copy_if(ledger.begin(), ledger.end(), live.begin(),
                                    [](const Holding& h) { return h.live(); });
  std::sort(live.begin(), end,
            [](const Holding& a, const Holding& b) { return a.address < b.address; });
  for (Holding* h = live.begin(); h != end && h + 1 != end; ++h) {
    // Even a block of 0 bytes has an address of its own.
    if (h->address + std::max(h->bytes, std::size_t{1}) <= h[1].address) continue;
    std::fprintf(stderr,
                 "with [%p, %p), allocation %u of thread %u: ", static_cast<void*>(h[1].address),
                 static_cast<void*>(h[1].address + h[1].bytes), h[1].number, h[1].thread);
    fail_with("two live blocks overlap", *h);
  }
  return static_cast<std::size_t>(end - live.begin());
}

// The same, and every live block must be intact.
inline std::size_t require_sound(const MappedArray<Holding>& ledger) {
  const std::size_t live = require_disjoint(ledger);
  for (const Holding& holding : ledger) {
    if (holding.live()) require_intact(holding);
  }
  return live;
}

}  // namespace ts::test
