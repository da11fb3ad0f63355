// One thread of a plan while it is replayed: where it is, and what it has counted.
//
// Why it exists: threads count for themselves, in lines of their own, so that counting makes nobody
// wait. What it refuses to do: share. But for the words that say so, only the thread itself writes;
// others read when they have waited for its end.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "replay/futex.h"
#include "replay/histogram.h"
#include "replay/plan.h"
#include "replay/result.h"

namespace ts::replay {

// What a thread needs as long as it lives, and the next one after it.
struct Berth {
  unsigned char* stack;
  Latency* latency;  // sums of all threads that had this berth; null: not asked for
  Histogram* late;   // the same
  Berth* next_free;
};

enum class Life : std::uint32_t { unborn, running, ended, joining, gone };

struct alignas(128) ThreadRun {
  const plan::Operation* next;
  const plan::Operation* end;
  const plan::Operation* first;
  std::uint32_t number;
  Berth* berth;
  pthread_t handle;
  class ImageRun* image;

  // relaxed: written by the thread alone; read by who has waited, and by samples, roughly.
  std::atomic<std::int64_t> live_bytes;  // allocated less freed
  std::uint64_t calls[plan::call_kinds];
  std::uint64_t bytes[plan::call_kinds];
  std::uint64_t null_results;
  std::uint64_t granted;
  std::uint64_t checksum;
  std::uint64_t corrupt;
  std::uint64_t misaligned;
  Fault fault;

  // `ended` and `gone` are released by the thread, and by who has joined it; who acquires them sees
  // what it has done. Sleepers wait on the word; each change to those two wakes them.
  std::atomic<std::uint32_t> life;
  // Of virtual threads: 1, it may run. Released by who has run before, acquired by this one.
  std::atomic<std::uint32_t> baton;
  Gate is_there;  // it waits for its baton

  Life state() const { return static_cast<Life>(life.load(std::memory_order_acquire)); }
  void become(Life state) {
    life.store(static_cast<std::uint32_t>(state), std::memory_order_release);
    futex_wake_all(life);
  }
};

}  // namespace ts::replay
