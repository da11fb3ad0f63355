// The threads of one image: how they start, and when they are gone.
//
// An allocator identifies threads by what libc gives them. So these are real ones, from
// pthread_create, and end as real ones do, with the allocator's own exit hooks. The stacks are
// replay's, and are used by one thread after another.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "replay/epochs.h"
#include "replay/futex.h"
#include "replay/histogram.h"
#include "replay/load.h"
#include "replay/pages.h"
#include "replay/result.h"
#include "replay/settings.h"

namespace ts::replay {

// What a thread uses while it runs; reused for a later thread.
struct ThreadResources {
  unsigned char* stack;
  Latency* latency;  // totals over all threads that used these resources; null: not asked for
  ThreadResources* next_free;
};

enum class ThreadPhase : std::uint32_t { not_started, running, ended, joining, joined };

// One thread of a plan during a replay. Threads count for themselves, on cache lines of their own,
// so that counting makes none wait. Unless noted otherwise, only the thread itself writes; others
// read after waiting for its end.
struct alignas(128) ThreadRun {
  std::uint32_t next;   // operation; none: no more
  std::uint32_t epoch;  // of that operation
  bool is_inside;       // it has entered it
  std::uint32_t number;
  ThreadResources* resources;
  pthread_t handle;
  class ImageRun* image;

  // relaxed: written only by the thread; read by threads that have waited, and by samples,
  // approximately.
  std::atomic<std::int64_t> live_bytes;  // allocated less freed
  std::uint64_t calls[plan::call_kinds];
  std::uint64_t bytes[plan::call_kinds];
  std::uint64_t null_results;
  std::uint64_t granted;
  std::uint64_t checksum;
  std::uint64_t corrupt;
  std::uint64_t misaligned;
  Fault fault;

  // `ended` is released by the thread, and `joined` by its joiner. An acquiring thread sees what it
  // has done. Sleepers wait on the word; changes to these two wake them.
  std::atomic<std::uint32_t> phase;
  // For virtual threads: 1, it may run. Released by the previous running thread, acquired by this
  // one.
  std::atomic<std::uint32_t> baton;
  Gate is_there;  // it waits for its baton

  ThreadPhase state() const {
    return static_cast<ThreadPhase>(phase.load(std::memory_order_acquire));
  }
  void set_phase(ThreadPhase state) {
    phase.store(static_cast<std::uint32_t>(state), std::memory_order_release);
    futex_wake_all(phase);
  }
};

class Threads {
 public:
  // The caller is thread 0.
  Threads(const plan::Image& image, const Epochs& epochs, const Settings& settings);

  ThreadRun& operator[](std::size_t number) const { return runs_[number]; }
  ThreadRun* begin() const { return runs_.begin(); }
  ThreadRun* end() const { return runs_.end(); }

  // Runs entry(&thread run) in a new thread. Exits if the system has no more threads.
  void start(std::uint32_t number, void* (*entry)(void*));

  // Waits until the thread, which is going to end, has ended, and its exit hooks have run.
  void wait_joined(std::uint32_t number);

  // The first ends of the recording, this many: whether all have happened, so that only joins
  // remain; and a wait until these threads are gone.
  bool have_ended(std::uint32_t ends) const;
  void wait_for_ends(std::uint32_t ends);

  // For all threads that were started and end.
  void wait_for_all_ends();

  // For all threads that have ended, or are parked; adds nothing if it was not asked for.
  void add_latencies(Latency& sum);

 private:
  ThreadResources* take_resources();
  ThreadResources* make_resources(bool has_stack);
  void give_back(ThreadResources* resources);

  const Settings& settings_;
  Mapped<ThreadRun> runs_;
  Mapped<std::uint32_t> enders_;  // threads, by the numbers of their ends
  Mapped<ThreadResources> resources_;
  Lock lock_;
  std::uint32_t resource_count_ = 0;  // under lock_, like the next
  ThreadResources* free_ = nullptr;
  // This many first ends are known to be gone. relaxed: it says only that; what those threads left
  // behind (berths, blocks) is passed on under lock_, or in slots.
  std::atomic<std::uint32_t> known_ends_{0};
};

}  // namespace ts::replay
