// Replays one image of a plan in this process.
//
// Threads, epochs, slots and calls come together here. The plan says what happens, the order
// decides when. The first image runs in the process that replay began as; a fork in the plan forks,
// and the child runs its own image over the inherited slots.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>

#include "common/system.h"
#include "replay/calls.h"
#include "replay/plan.h"
#include "replay/result.h"
#include "replay/threads.h"
#include "replay/waiting.h"

namespace ts::replay {

// Shared by all images of a replay.
struct ReplayContext {
  ReplayContext(const plan::Plan& the_plan, const Settings& the_settings)
      : plan{the_plan},
        settings{the_settings},
        slots{the_plan.slots(), Backing::resident_private},
        results{the_plan.images(), Backing::shared},
        samples{the_plan.images() * samples_each(), Backing::shared},
        latencies{the_settings.latency ? the_plan.images() : 0U, Backing::shared} {}

  std::uint64_t samples_each() const { return settings.samples != 0 ? settings.samples + 1 : 0; }

  const plan::Plan& plan;
  const Settings& settings;
  Clock clock;
  AddressLog log;      // of the first process alone, since each has addresses of its own
  Mapped<Slot> slots;  // private: a child has its own copy
  Mapped<ImageResult> results;
  Mapped<Sample> samples;     // by place, samples_each()
  Mapped<Latency> latencies;  // by place; none if not asked for
};

class ImageRun {
 public:
  // inherited_bytes: live in the slots now.
  ImageRun(ReplayContext& context, std::uint32_t place, std::int64_t inherited_bytes)
      : context_{context},
        place_{place},
        image_{context.plan.image(place)},
        inherited_bytes_{inherited_bytes},
        epochs_{image_.epoch_table, image_.epochs},
        threads_{image_, epochs_, context.settings},
        calls_{Content{context.settings.touch, context.settings.verify}, context.clock,
               context.slots.begin(), place == 0 ? &context.log : nullptr},
        sample_places_{context.settings.samples, image_.epochs, image_.peak_epoch},
        is_one_at_a_time_{runs_one_at_a_time(context.settings.order) || image_.threads == 1},
        spins_{spins_before_sleep()},
        exact_live_bytes_{inherited_bytes},
        exact_peak_bytes_{inherited_bytes},
        seen_peak_bytes_{inherited_bytes},
        unfinished_{image_.threads} {}

  // The caller plays the image's thread 0. Returns when everything has ended, been freed and been
  // reported.
  void run() {
    ImageResult& result = context_.results[place_];
    const Settings& settings = context_.settings;
    if (runs_one_at_a_time(settings.order)) {
      processor_.emplace(image_, settings, threads_, epochs_, context_.slots.begin());
    }
    result.at_start = memory_now();
    begin_ns_ = now_ns();
    play(threads_[0]);
    finish(threads_[0]);
    all_done_.pass();
    result.wall_ns = end_ns_ - begin_ns_;
    threads_.wait_for_all_ends();
    for (std::uint32_t child = place_ + 1; child < context_.plan.images(); ++child) {
      if (context_.plan.image(child).parent == place_) wait_for_child(child);
    }
    sum_up(result);
    result.at_end = memory_now();
    for (std::uint32_t slot = 0; slot < context_.slots.size(); ++slot) {
      if (context_.slots[slot].pointer() != nullptr) calls_.release(threads_[0], slot);
    }
    result.freed = memory_now();
    if (settings.settle_ns >= 0) {
      const timespec idle = {settings.settle_ns / ns_per_second,
                             settings.settle_ns % ns_per_second};
      if (place_ == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &idle, nullptr);
      result.settled = memory_now();
    }
    release_.open();
    for (const ThreadRun& thread : threads_) {
      if (thread.number != 0 && thread.handle != 0) threads_.wait_joined(thread.number);
    }
    sum_up_faults(result);
    result.own_bytes = own_bytes();
    result.peak_rss_bytes = bytes_after("/proc/self/status", "VmHWM:");
    result.sampling_ns = sampling_ns_.load();
    result.has_ended = true;
  }

  const VirtualProcessor* processor() const { return processor_ ? &*processor_ : nullptr; }

 private:
  static void* begin_thread(void* thread_run) {
    ThreadRun& self = *static_cast<ThreadRun*>(thread_run);
    ImageRun& image = *self.image;
    if (image.processor_) image.processor_->arrive(self);
    image.play(self);
    image.finish(self);
    return nullptr;
  }

  void play(ThreadRun& self) {
    while (self.next != plan::none) {
      if (processor_) processor_->before(self);
      if (!self.is_inside) epochs_.wait_to_enter(self.epoch, spins_);
      self.is_inside = true;
      perform(self);
      proceed(self);
    }
  }

  void perform(ThreadRun& self) {
    const Operation& operation = image_.operation_table[self.next];
    if (operation.kind == Kind::thread_begin) return start(operation);
    if (operation.kind == Kind::fork) return fork_child(operation.slot);
    if (operation.kind == Kind::thread_end) return;    // finish does what is to be done
    if ((operation.flags & plan::flag_shared) == 0) {  // no other thread uses the object
      return make(self, operation);
    }
    Turn& turn = context_.slots[operation.slot].turn;
    if ((operation.flags & plan::flag_waits) != 0) turn.wait(operation.turn, spins_);
    make(self, operation);
    if (!turn.pass(operation.turn)) {
      fail_internal("two threads had the same object: the plan is wrong", EINVAL);
    }
  }

  void make(ThreadRun& self, const Operation& operation) {
    if (image_.times != nullptr) {
      const Nanoseconds due_ns = begin_ns_ + static_cast<Nanoseconds>(image_.times[self.next]);
      const timespec due = {due_ns / ns_per_second, due_ns % ns_per_second};
      while (now_ns() < due_ns) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
    }
    add_live(self, calls_.make(self, operation));
  }

  // Moves on to the thread's next operation, and out of the epoch if that is in a later one.
  void proceed(ThreadRun& self) {
    self.next = image_.operation_table[self.next].next;
    if (epochs_.is_in(self.next, self.epoch)) return;
    epochs_.leave(self.epoch, [this](std::uint32_t epoch) { epoch_is_done(epoch); });
    self.is_inside = false;
    if (self.next != plan::none) self.epoch = epochs_.epoch_of(self.next, self.epoch);
  }

  void start(const Operation& operation) {
    ThreadRun& fresh = threads_[operation.slot];
    fresh.image = this;
    threads_.wait_for_ends(operation.turn);
    threads_.start(operation.slot, begin_thread);
    if (processor_) processor_->started(fresh);
  }

  void fork_child(std::uint32_t place) {
    // Before the fork: the threads' counts are in shared memory, where the parent continues to
    // count.
    const std::int64_t inherited_bytes = live_bytes();
    const pid_t pid = fork();
    if (pid < 0) fail_internal("cannot fork; raise `ulimit -u`, or give more memory", errno);
    if (pid == 0) become_child(place, inherited_bytes);
    if (place == plan::none) {
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      return;
    }
    context_.results[place].pid = pid;
    // Of two processes, too, only one runs at a time.
    if (runs_one_at_a_time(context_.settings.order)) wait_for_child(place);
  }

  [[noreturn]] void become_child(std::uint32_t place, std::int64_t inherited_bytes) {
    if (place == plan::none) _exit(0);
    for (Slot& slot : context_.slots) slot.turn.reset();
    ImageRun child{context_, place, inherited_bytes};
    child.run();
    _exit(0);
  }

  void wait_for_child(std::uint32_t place) const {
    ImageResult& result = context_.results[place];
    if (result.pid == 0) return;  // waited for, or never forked
    while (waitpid(result.pid, &result.wait_status, 0) < 0 && errno == EINTR) {
    }
    result.pid = 0;
  }

  // The thread has no operations left. It ends, or is parked until the image ends; thread 0 is
  // neither.
  void finish(ThreadRun& self) {
    const bool ends = image_.thread_table[self.number].end != plan::none;
    if (ends) self.set_phase(ThreadPhase::ended);  // its joiner waits for its exit hooks
    const std::uint32_t next = processor_ ? processor_->leave(self, ends) : plan::none;
    // acq_rel: the last one has seen, and passes on by the gate, what all others have done.
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      end_ns_ = now_ns();
      all_done_.open();
    }
    if (processor_ && next != plan::none) processor_->hand_to(next);
    if (ends || self.number == 0) return;
    release_.pass();
    self.set_phase(ThreadPhase::ended);
  }

  void add_live(ThreadRun& self, std::int64_t bytes) {
    self.live_bytes.store(self.live_bytes.load(std::memory_order_relaxed) + bytes,
                          std::memory_order_relaxed);
    if (!is_one_at_a_time_) return;
    exact_live_bytes_ += bytes;
    if (exact_live_bytes_ > exact_peak_bytes_) exact_peak_bytes_ = exact_live_bytes_;
  }

  std::int64_t live_bytes() const {
    if (is_one_at_a_time_) return exact_live_bytes_;
    std::int64_t sum = inherited_bytes_;
    for (const ThreadRun& thread : threads_) {
      sum += thread.live_bytes.load(std::memory_order_relaxed);
    }
    return sum;
  }

  // Called by the last thread to leave it, while others continue.
  void epoch_is_done(std::uint32_t epoch) {
    if (!is_one_at_a_time_) {
      const std::int64_t live = live_bytes();
      std::int64_t peak = seen_peak_bytes_.load(std::memory_order_relaxed);
      while (live > peak &&
             !seen_peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
      }
    }
    const std::uint64_t place = sample_places_.place(epoch);
    if (place != SamplePlaces::no_place) take_sample(place, epoch);
  }

  void take_sample(std::uint64_t place, std::uint32_t epoch) {
    const Nanoseconds begin_ns = now_ns();
    Sample& sample = context_.samples[place_ * context_.samples_each() + place];
    sample.live_bytes = live_bytes();
    sample.memory = memory_now();
    sample.event = image_.epoch_table[epoch].last_event;
    sampling_ns_.fetch_add(now_ns() - begin_ns, std::memory_order_relaxed);
  }

  void sum_up(ImageResult& result) {
    result.live_bytes = live_bytes();
    result.peak_live_bytes = is_one_at_a_time_ ? exact_peak_bytes_ : seen_peak_bytes_.load();
    for (const ThreadRun& thread : threads_) {
      for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
        result.totals.calls[kind] += thread.totals.calls[kind];
        result.totals.bytes[kind] += thread.totals.bytes[kind];
      }
      result.null_results += thread.null_results;
      result.granted += thread.granted;
      result.checksum = Calls::combine(result.checksum, thread.checksum);
    }
    if (context_.settings.latency) threads_.add_latencies(context_.latencies[place_]);
  }

  void sum_up_faults(ImageResult& result) const {
    for (const ThreadRun& thread : threads_) {
      result.corrupt += thread.corrupt;
      result.misaligned += thread.misaligned;
      if (result.fault.address == 0) result.fault = thread.fault;
    }
  }

  ReplayContext& context_;
  std::uint32_t place_;
  const plan::Image& image_;
  std::int64_t inherited_bytes_;
  Epochs epochs_;
  Threads threads_;
  Calls calls_;
  SamplePlaces sample_places_;
  bool is_one_at_a_time_;
  int spins_;
  std::optional<VirtualProcessor> processor_;  // none: threads run concurrently
  Nanoseconds begin_ns_ = 0;
  // Written by the thread that lowers unfinished_ to zero, before it opens the gate; read after
  // passing it.
  Nanoseconds end_ns_ = 0;
  std::int64_t exact_live_bytes_ = 0;  // with one running thread at a time: by that thread
  std::int64_t exact_peak_bytes_ = 0;
  std::atomic<std::int64_t> seen_peak_bytes_{0};  // relaxed: figures
  std::atomic<std::int64_t> sampling_ns_{0};
  std::atomic<std::uint32_t> unfinished_;
  Gate all_done_;
  Gate release_;  // of parked threads, which do not end before the image does
};

}  // namespace ts::replay
