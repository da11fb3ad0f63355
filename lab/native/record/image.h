// The current program image: its place in the ring, and when it begins.
//
// One process may be many images (each exec begins one, each fork another), and nobody tells a
// forked child that it is one. An image that finds no ring, no place in it or no room to map it is
// silently not recorded.
#pragma once

#include <atomic>
#include <cstdint>

#include "record/ring.h"

namespace ts::record {

// One page that the kernel clears in every forked child, however it was forked: so a child finds
// itself not begun, whatever its parent was.
struct OwnPage {
  std::atomic<ImagePlace*> image;   // null: not begun, or not recorded
  std::atomic<std::uint32_t> step;  // of the beginning
};

// release when stored; relaxed when read: the page is all zeros, whichever thread made it.
[[gnu::visibility("hidden")]] extern constinit std::atomic<OwnPage*> own_page;
// release when stored, acquire when read: the ring is mapped.
[[gnu::visibility("hidden")]] extern constinit std::atomic<Ring*> own_ring;

// What the program has forbidden itself, so that doing it would kill it; see image.cpp.
// relaxed: it is forbidden in the thread that asks.
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> may_read_clock;
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> may_call_system;

// Null: not recorded.
ImagePlace* begin_image();

// Call first at every event. acquire: pairs with the release that ends the beginning; the place and
// the ring are seen.
inline ImagePlace* own_image() {
  ImagePlace* const image =
      own_page.load(std::memory_order_relaxed)->image.load(std::memory_order_acquire);
  return image != nullptr ? image : begin_image();
}

// In the child after a fork. fork_number: 0 if the parent has not announced it.
void begin_child(std::uint32_t fork_number);

// This process and its children record no more: the collector is gone.
void stop_recording();

std::uint64_t read_clock_slow();

// The time of events. The processor's counter costs a third of the system's clock.
inline std::uint64_t read_clock() {
#ifdef __x86_64__
  const Ring* const ring = own_ring.load(std::memory_order_acquire);
  if (ring->clock == RingClock::cycles && may_read_clock.load(std::memory_order_relaxed)) {
    return __builtin_ia32_rdtsc();
  }
#endif
  return read_clock_slow();
}

}  // namespace ts::record
