// Starts and joins threads; see threads.h.
#include "replay/threads.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "common/system.h"

namespace ts::replay {
namespace {

// The allocator's thread-local variables are at the top of it, too. Pages become resident when
// touched.
constexpr std::size_t stack_bytes = std::size_t{2} << 20;
constexpr std::size_t resident_stack_bytes = std::size_t{32} << 10;

unsigned char* map_stack() {
  auto* const stack =
      static_cast<unsigned char*>(map_pages(stack_bytes, Backing::private_on_demand));
  // A guard page: an overflow faults at once. Failing to protect the page only loses that.
  (void)mprotect(stack, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
  make_resident(stack + stack_bytes - resident_stack_bytes, resident_stack_bytes);
  return stack;
}

template <class T>
T* map_one() {
  return static_cast<T*>(map_pages(sizeof(T), Backing::shared));
}

}  // namespace

Threads::Threads(const plan::Image& image, const Epochs& epochs, const Settings& settings)
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

ThreadResources* Threads::make_resources(bool has_stack) {
  ThreadResources& resources = resources_[resource_count_++];
  if (has_stack) resources.stack = map_stack();
  if (settings_.latency) resources.latency = map_one<Latency>();
  return &resources;
}

ThreadResources* Threads::take_resources() {
  const std::lock_guard locked{lock_};
  if (free_ == nullptr) return make_resources(true);
  ThreadResources* const resources = free_;
  free_ = resources->next_free;
  return resources;
}

void Threads::give_back(ThreadResources* resources) {
  const std::lock_guard locked{lock_};
  resources->next_free = free_;
  free_ = resources;
}

void Threads::start(std::uint32_t number, void* (*entry)(void*)) {
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

void Threads::wait_joined(std::uint32_t number) {
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

bool Threads::have_ended(std::uint32_t ends) const {
  for (std::uint32_t i = known_ends_.load(std::memory_order_relaxed); i < ends; ++i) {
    if (runs_[enders_[i]].state() < ThreadPhase::ended) return false;
  }
  return true;
}

void Threads::wait_for_ends(std::uint32_t ends) {
  const std::uint32_t known = known_ends_.load(std::memory_order_relaxed);
  for (std::uint32_t i = known; i < ends; ++i) wait_joined(enders_[i]);
  // If a second thread lowers it, others only check again.
  if (ends > known) known_ends_.store(ends, std::memory_order_relaxed);
}

void Threads::wait_for_all_ends() {
  for (const std::uint32_t thread : enders_) wait_joined(thread);
}

void Threads::add_latencies(Latency& sum) {
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

}  // namespace ts::replay
