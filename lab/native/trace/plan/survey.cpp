// The first reading; see survey.h.
#include "trace/plan/survey.h"

#include <algorithm>

#include "replay/plan.h"
#include "trace/plan/reserved_array.h"

namespace ts::trace {
namespace {

constexpr std::uint64_t unlimited_epoch_events = 1'000;

// A thread by itself waits for none: its epochs are only there for samples.
constexpr std::uint64_t lone_epochs = 2'000;

std::uint64_t events_of_epoch(const Image& image, std::uint64_t window) {
  const std::uint64_t most = window != 0 ? window : unlimited_epoch_events;
  if (image.threads > 1) return most;
  return std::clamp<std::uint64_t>(image.events / lone_epochs, 1, most);
}

class Surveyor {
 public:
  Surveyor(const Image& image, std::uint64_t window)
      : first_object_{image.first_object},
        owners_{image.first_object + image.objects},
        ranges_{events_of_epoch(image, window)} {
    found_.epoch_events = events_of_epoch(image, window);
    found_.objects = owners_.size();
    found_.is_shared.resize(owners_.size());
    thread(0);
  }

  void see(const Event& event, std::uint64_t number) {
    const bool is_fork = event.kind == Kind::fork;
    if (ranges_.begins(number, is_fork)) ++epoch_;
    ++found_.events;
    if (event.thread != last_thread_) ++found_.runs;
    last_thread_ = event.thread;
    ThreadSurvey& who = thread(event.thread);
    who.last_event = number;
    who.operations += 1 + markers_if_new(event.thread);
    if (event.kind == Kind::thread_end) {
      who.ends = true;
      ++who.operations;
    } else if (event.kind == Kind::thread_begin) {
      begin(event, number);
    } else {
      touch(event);
    }
  }

  Survey finish() {
    // Threads whose beginning is not recorded are begun by the first: a marker, in an epoch or two.
    const std::uint64_t threads = found_.threads.size();
    for (ThreadSurvey& found : found_.threads) found.operations += 4;
    found_.threads[0].operations += 3 * threads;
    found_.epochs = epoch_ + threads + 1;
    found_.runs += 2 * entered_ + 8 * threads + 8;
    return std::move(found_);
  }

 private:
  ThreadSurvey& thread(std::uint32_t number) {
    if (number >= found_.threads.size()) {
      found_.threads.resize(std::size_t{number} + 1);
      epochs_.resize(found_.threads.size());
    }
    return found_.threads[number];
  }

  // `enter` and `leave`, of a thread that has not been in this epoch.
  std::uint64_t markers_if_new(std::uint32_t number) {
    if (epochs_[number] == epoch_) return 0;
    epochs_[number] = epoch_;
    ++entered_;
    return 2;
  }

  // The marker is an operation of the creator's.
  void begin(const Event& event, std::uint64_t number) {
    if (event.object >= max_threads) return;
    const auto creator = static_cast<std::uint32_t>(event.object);
    thread(creator).operations += 1 + markers_if_new(creator);
    found_.threads[creator].last_event = number;
  }

  void touch(const Event& event) {
    if (event.kind > Kind::free || event.object >= owners_.size()) return;
    std::uint32_t& owner = owners_[event.object];
    // What it has inherited is the first thread's, which was the one to fork.
    if (owner == 0) owner = event.object < first_object_ ? 1 : event.thread + 1;
    if (owner != event.thread + 1) found_.is_shared[event.object] = true;
  }

  std::uint64_t first_object_;
  ReservedArray<std::uint32_t> owners_;  // of each object, the first thread that touches it, and 1
  EpochRanges ranges_;
  Survey found_;
  std::uint64_t epoch_ = 0;            // counted from 1
  std::vector<std::uint64_t> epochs_;  // the last one that each thread was in
  std::uint64_t entered_ = 0;          // by all threads
  std::uint32_t last_thread_ = plan::none;
};

}  // namespace

Survey survey(const Reader& reader, const Image& image, std::uint64_t window) {
  Surveyor surveyor{image, window};
  Cursor cursor = reader.events(image.number);
  for (Event event; cursor.next(event);) surveyor.see(event, cursor.number());
  return surveyor.finish();
}

}  // namespace ts::trace
