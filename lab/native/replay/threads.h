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
#include "replay/memory.h"
#include "replay/plan.h"
#include "replay/result.h"
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
      // acquire: the handle and the resources are those that the thread was started with. One of
      // the waiting threads joins it, the others wait for that one.
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

// One processor for all threads of an image: exactly one of them runs at a time, chosen here.
//
// On real processors each run of a multi-threaded program differs. Here two runs make the same
// calls in the same order, and yet each thread is a real one to the allocator.
//
// The baton. Everything in here, and whatever a thread does between two calls of before(), is done
// by the thread that holds the baton. hand_to() stores the next one's word (a release), which that
// thread finds in wait() (an acquire); so each sees all that was done before, and needs no further
// synchronisation. A thread that ends hands over first, and then runs its exit hooks; the next one
// begins by joining it, so those also run alone.
class VirtualProcessor {
 public:
  VirtualProcessor(const plan::Image& image, const Settings& settings, Threads& threads,
                   const Epochs& epochs, const Slot* slots)
      : image_{image},
        settings_{settings},
        threads_{threads},
        epochs_{epochs},
        slots_{slots},
        schedule_{settings.order, settings.seed, settings.tickets, image.threads} {
    schedule_.add(0);
  }

  // Call before each operation, from its thread: returns when it is to run, and can.
  void before(ThreadRun& self) {
    while (!is_to_run(self)) {
      const std::uint32_t next = choose();
      if (next == self.number) continue;
      hand_to(next);
      wait(self);
    }
    const plan::Operation& operation = image_.operation_table[self.next];
    ++next_;
    if (plan::is_call(operation.kind)) --left_;
  }

  // The new thread's first step, and its creator's last.
  void arrive(ThreadRun& self) {
    self.is_there.open();
    wait(self);
  }

  void started(ThreadRun& fresh) {
    fresh.is_there.pass();
    schedule_.add(fresh.number);
  }

  // `self` has no operations left. Returns the thread to hand to, or plan::none.
  std::uint32_t leave(const ThreadRun& self, bool ends) {
    if (ends) to_join_ = self.number;
    schedule_.remove(self.number);
    return schedule_.is_empty() ? plan::none : choose();
  }

  void hand_to(std::uint32_t thread) const {
    // release: pairs with the acquire in wait.
    threads_[thread].baton.store(1, std::memory_order_release);
    futex_wake_all(threads_[thread].baton);
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  std::uint32_t choose() {
    if (settings_.order == Order::recorded) {
      // At the end also threads that call nothing, which have to leave too.
      return next_ < image_.operations ? image_.operation_table[next_].thread : schedule_.first();
    }
    left_ = settings_.quantum;
    const std::uint32_t chosen =
        schedule_.next([this](std::uint32_t thread) { return is_runnable(thread); });
    // In recorded order, all can run (plan.h).
    if (chosen == no_thread) fail_internal("no thread can run: the plan is wrong", EDEADLK);
    return chosen;
  }

  bool is_runnable(std::uint32_t thread) const {
    const ThreadRun& run = threads_[thread];
    if (run.next == plan::none) return true;  // it only has to leave
    if (!run.is_inside && !epochs_.may_enter(run.epoch)) return false;
    const plan::Operation& operation = image_.operation_table[run.next];
    if (operation.kind == plan::Kind::thread_begin) return threads_.have_ended(operation.turn);
    return (operation.flags & plan::flag_waits) == 0 ||
           slots_[operation.slot].turn.has_come(operation.turn);
  }

  bool is_to_run(const ThreadRun& self) const {
    if (settings_.order == Order::recorded) return next_ == self.next;
    const plan::Operation& operation = image_.operation_table[self.next];
    return (!plan::is_call(operation.kind) || left_ != 0) && is_runnable(self.number);
  }

  void wait(ThreadRun& self) {
    while (self.baton.load(std::memory_order_acquire) == 0) futex_wait(self.baton, 0);
    // relaxed: the next to store holds the baton from here on
    self.baton.store(0, std::memory_order_relaxed);
    if (to_join_ == plan::none) return;
    threads_.wait_joined(to_join_);
    to_join_ = plan::none;
  }

  const plan::Image& image_;
  const Settings& settings_;
  Threads& threads_;
  const Epochs& epochs_;
  const Slot* slots_;
  Schedule schedule_;
  std::uint32_t next_ = 0;              // for `recorded`: the next operation
  std::uint64_t left_ = 0;              // calls of the tick
  std::uint32_t to_join_ = plan::none;  // the thread that ended last
};

}  // namespace ts::replay
