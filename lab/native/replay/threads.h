// The threads of one image: how they start, and when they are gone.
//
// An allocator identifies threads by what libc gives them. So these are real ones, from
// pthread_create, and end as real ones do, with the allocator's own exit hooks. The stacks are
// replay's, and are used by one thread after another.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "common/system.h"
#include "replay/load.h"
#include "replay/memory.h"
#include "replay/result.h"
#include "replay/settings.h"
#include "replay/waiting.h"

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
struct alignas(128) ThreadRun : Counts {
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

// The allocator's thread-local variables are at the top of it, too. Pages become resident when
// touched.
inline constexpr std::size_t stack_bytes = std::size_t{2} << 20;
inline constexpr std::size_t resident_stack_bytes = std::size_t{32} << 10;

inline unsigned char* map_stack() {
  auto* const stack =
      static_cast<unsigned char*>(map_pages(stack_bytes, Backing::private_on_demand));
  // A guard page: an overflow faults at once. Failing to protect the page only loses that.
  (void)mprotect(stack, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
  make_resident(stack + stack_bytes - resident_stack_bytes, resident_stack_bytes);
  return stack;
}

// std::mutex needs a C++ run-time library.
struct Lock {
  void lock() { pthread_mutex_lock(&mutex); }
  void unlock() { pthread_mutex_unlock(&mutex); }

  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

class Threads {
 public:
  // The caller is thread 0.
  Threads(const plan::Image& image, const Epochs& epochs, const Settings& settings)
      : settings_{settings},
        runs_{image.threads, Backing::shared},
        enders_{image.ends, Backing::shared},
        resources_{image.threads, Backing::shared} {
    for (std::uint32_t t = 0; t < image.threads; ++t) {
      const plan::Thread& planned = image.thread_table[t];
      ThreadRun& run = runs_[t];
      run.number = t;
      run.next = planned.first;
      if (run.next != plan::none) run.epoch = epochs.epoch_of(run.next, 0);
      if (planned.end != plan::none) enders_[planned.end] = t;
    }
    runs_[0].resources = make_resources(false);
    runs_[0].set_phase(ThreadPhase::running);
  }

  ThreadRun& operator[](std::size_t number) const { return runs_[number]; }
  ThreadRun* begin() const { return runs_.begin(); }
  ThreadRun* end() const { return runs_.end(); }

  // Runs entry(&thread run) in a new thread. Exits if the system has no more threads.
  void start(std::uint32_t number, void* (*entry)(void*)) {
    ThreadRun& run = runs_[number];
    run.resources = take_resources();
    run.set_phase(ThreadPhase::running);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, run.resources->stack, stack_bytes);
    const int error = pthread_create(&run.handle, &attributes, entry, &run);
    pthread_attr_destroy(&attributes);
    if (error != 0) {
      fail_internal("cannot start a thread; raise `ulimit -u`, or the limit of the control group",
                    error);
    }
  }

  // Waits until the thread, which is going to end, has ended, and its exit hooks have run.
  void wait_joined(std::uint32_t number) {
    ThreadRun& run = runs_[number];
    for (;;) {
      std::uint32_t seen = run.phase.load(std::memory_order_acquire);
      if (static_cast<ThreadPhase>(seen) == ThreadPhase::joined) return;
      // acquire: the handle and the resources are those that the thread was started with. One of the
      // waiting threads joins it, the others wait for that one.
      if (static_cast<ThreadPhase>(seen) == ThreadPhase::ended &&
          run.phase.compare_exchange_strong(seen, static_cast<std::uint32_t>(ThreadPhase::joining),
                                            std::memory_order_acquire)) {
        pthread_join(run.handle, nullptr);
        give_back(run.resources);
        run.set_phase(ThreadPhase::joined);
        return;
      }
      futex_wait(run.phase, seen);
    }
  }

  // The first ends of the recording, this many: whether all have happened, so that only joins
  // remain; and a wait until these threads are gone.
  bool have_ended(std::uint32_t ends) const {
    for (std::uint32_t i = known_ends_.load(std::memory_order_relaxed); i < ends; ++i) {
      if (runs_[enders_[i]].state() < ThreadPhase::ended) return false;
    }
    return true;
  }

  void wait_for_ends(std::uint32_t ends) {
    const std::uint32_t known = known_ends_.load(std::memory_order_relaxed);
    for (std::uint32_t i = known; i < ends; ++i) wait_joined(enders_[i]);
    // If a second thread lowers it, others only check again.
    if (ends > known) known_ends_.store(ends, std::memory_order_relaxed);
  }

  // For all threads that were started and end.
  void wait_for_all_ends() {
    for (const std::uint32_t thread : enders_) wait_joined(thread);
  }

  // For all threads that have ended, or are parked; adds nothing if it was not asked for.
  void add_latencies(Latency& sum) {
    const std::lock_guard locked{lock_};
    for (std::uint32_t i = 0; i < resource_count_; ++i) {
      const Latency* const latency = resources_[i].latency;
      if (latency == nullptr) return;
      for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
        sum.kinds[kind].add(latency->kinds[kind]);
      }
      sum.nulls.add(latency->nulls);
    }
  }

 private:
  ThreadResources* take_resources() {
    const std::lock_guard locked{lock_};
    if (free_ == nullptr) return make_resources(true);
    ThreadResources* const resources = free_;
    free_ = resources->next_free;
    return resources;
  }

  ThreadResources* make_resources(bool has_stack) {
    ThreadResources& resources = resources_[resource_count_++];
    if (has_stack) resources.stack = map_stack();
    if (settings_.latency) {
      resources.latency = static_cast<Latency*>(map_pages(sizeof(Latency), Backing::shared));
    }
    return &resources;
  }

  void give_back(ThreadResources* resources) {
    const std::lock_guard locked{lock_};
    resources->next_free = free_;
    free_ = resources;
  }

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
