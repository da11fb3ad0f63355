// The threads of one image: how they start, and when they are gone.
//
// Why it exists: an allocator tells threads apart by what libc gives them, so these are real ones,
// from pthread_create, and end as real ones do, with the allocator's own exit hooks. What it
// refuses to do: let libc choose their stacks, which would be counted as the allocator's memory.
// The stacks are replay's, and serve one thread after another.
#pragma once

#include <atomic>
#include <cstdint>

#include "replay/futex.h"
#include "replay/pages.h"
#include "replay/plan_view.h"
#include "replay/settings.h"
#include "replay/thread_run.h"

namespace ts::replay {

class Threads {
 public:
  // The caller is thread 0.
  Threads(const plan::View& view, const plan::Image& image, const Settings& settings);

  ThreadRun& operator[](std::size_t number) const { return runs_[number]; }
  ThreadRun* begin() const { return runs_.begin(); }
  ThreadRun* end() const { return runs_.end(); }

  // entry(&thread run) in a new thread. Does not return if the system has no more threads.
  void start(std::uint32_t number, void* (*entry)(void*));

  // Until the thread, which is going to end, has ended, and its exit hooks have run.
  void wait_gone(std::uint32_t number);

  // The first so many ends of the recording: whether nobody has to be waited for but by joining
  // him; and until all are gone.
  bool have_ended(std::uint32_t ends) const;
  void wait_for_ends(std::uint32_t ends);

  // Of all that have been started and end.
  void wait_for_all_ends();

  // Of all threads that have ended, or that are parked; adds nothing if it was not asked for.
  void add_latencies(Latency& sum);
  void add_late(Histogram& sum);

 private:
  Berth* take_berth();
  Berth* make_berth(bool has_stack);
  void give_back(Berth* berth);

  const Settings& settings_;
  Mapped<ThreadRun> runs_;
  Mapped<std::uint32_t> enders_;  // thread, by number of its end
  Mapped<Berth> berths_;
  Lock lock_;
  std::uint32_t berth_count_ = 0;  // under lock_, as is the next
  Berth* free_ = nullptr;
  // So many first ends are known to be gone. relaxed: that they are is all that it says; what those
  // threads left behind (berths, blocks) is handed on under lock_, or in slots.
  std::atomic<std::uint32_t> known_ends_{0};
};

}  // namespace ts::replay
