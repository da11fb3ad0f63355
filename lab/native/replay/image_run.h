// Replays one image of a plan in this process.
//
// Threads, epochs, slots and calls come together here. The plan says what happens, the order
// decides when. The first image runs in the process that replay began as; a fork in the plan forks,
// and the child runs its own image over the inherited slots.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "replay/calls.h"
#include "replay/clock.h"
#include "replay/epochs.h"
#include "replay/load.h"
#include "replay/result.h"
#include "replay/settings.h"
#include "replay/threads.h"
#include "replay/virtual_processor.h"

namespace ts::replay {

// Shared by all images of a replay.
struct ReplayContext {
  ReplayContext(const plan::Plan& plan, const Settings& settings, const Tickets& tickets,
                const Clock& clock);

  const plan::Plan& plan;
  const Settings& settings;
  const Tickets& tickets;
  const Clock& clock;
  AddressLog* log = nullptr;  // null: addresses are not recorded
  Mapped<Slot> slots;         // private: a child has its own copy
  Mapped<ImageResult> results;
  Mapped<std::uint64_t> first_samples;  // by place; one more than there are images
  Mapped<Sample> samples;
  Mapped<Latency> latencies;  // by place; none if not asked for
};

class ImageRun {
 public:
  // inherited_bytes: live in the slots now.
  ImageRun(ReplayContext& context, std::uint32_t place, std::int64_t inherited_bytes);

  // The caller plays the image's thread 0. Returns when everything has ended, been freed and been
  // reported.
  void run();

  const VirtualProcessor* processor() const { return processor_ ? &*processor_ : nullptr; }

 private:
  static void* begin_thread(void* thread_run);

  Calls calls();
  void play(ThreadRun& self);
  void perform(ThreadRun& self, const Calls& calls);
  void wait_for_time(std::uint32_t operation) const;
  void make(ThreadRun& self, const plan::Operation& operation, const Calls& calls);
  void proceed(ThreadRun& self);
  void start(const plan::Operation& operation);
  void fork_child(std::uint32_t place);
  [[noreturn]] void become_child(std::uint32_t place, std::int64_t inherited_bytes);
  void wait_for_child(std::uint32_t place) const;
  void finish(ThreadRun& self);
  void add_live(ThreadRun& self, std::int64_t bytes);
  std::int64_t live_bytes() const;
  void epoch_is_done(std::uint32_t epoch);
  void take_sample(std::uint64_t place, std::uint32_t epoch);
  void sum_up(ImageResult& result);
  void sum_up_faults(ImageResult& result) const;
  void free_all();

  ReplayContext& context_;
  std::uint32_t place_;
  const plan::Image& image_;
  std::int64_t inherited_bytes_;
  Epochs epochs_;
  Threads threads_;
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
