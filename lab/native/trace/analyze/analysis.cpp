// The second reading; see analysis.h for what everything means.
#include "trace/analyze/analysis.h"

#include <algorithm>
#include <cmath>

#include "trace/analyze/birth_table.h"

namespace ts::trace {
namespace {

constexpr std::uint64_t thousandth = 1'000;

// The state of one reading.
class Analyst {
 public:
  Analyst(const Reader& reader, const Image& image, const FirstReading& found)
      : reader_{reader}, image_{image}, first_{found}, births_{found.touched.members()} {
    stretch_ =
        std::max<std::uint64_t>(1, (found.end + Analysis::most_points - 1) / Analysis::most_points);
  }

  Analysis run() {
    inherit();
    if (!first_.peak_event) take_peak(0);
    Cursor cursor = reader_.events(image_.number);
    for (Event event; cursor.next(event);) {
      number_ = cursor.number();
      begin_stretch();
      handle(event);
      latest_ns_ = std::max(latest_ns_, event.time_ns);
      highest_ = std::max(highest_, live_.bytes);
      last_number_ = number_;
      if (first_.peak_event == number_) take_peak(event.time_ns);
    }
    if (is_in_stretch_) end_stretch();
    count_the_rest();
    return std::move(result_);
  }

 private:
  void inherit() {
    const Inheritance inheritance = inherited_by(reader_, image_);
    inheritance.objects.each([this](std::uint64_t object, std::uint64_t size) {
      if (const auto place = first_.touched.place(object)) {
        births_.insert(*place, {.size = size, .is_inherited = true});
      } else {
        result_.left_inherited.add(size);
        ++result_.sizes.of(size).left_inherited;
      }
      inherited_live_.add(size);
      ++result_.sizes.of(size).live;
    });
    live_ = inherited_live_;
  }

  // --- events ---------------------------------------------------------------------------------

  void handle(const Event& event) {
    ++result_.calls[static_cast<std::size_t>(event.kind)];
    ThreadSums& thread = thread_of(event.thread);
    if (thread.events++ == 0) thread.first_ns = event.time_ns;
    thread.last_ns = std::max(thread.last_ns, event.time_ns);
    switch (event.kind) {
      case Kind::malloc:
      case Kind::calloc:
      case Kind::aligned:
        on_allocation(event, thread);
        break;
      case Kind::realloc:
        on_resize(event, thread);
        break;
      case Kind::free:
        on_free(event, thread);
        break;
      case Kind::refused:
        result_.refused_bytes += event.size;
        break;
      default:
        break;
    }
  }

  ThreadSums& thread_of(std::uint32_t number) {
    if (number >= result_.threads.size()) result_.threads.resize(number + 1);
    return result_.threads[number];
  }

  void on_allocation(const Event& event, ThreadSums& thread) {
    clock_bytes_ += event.size;
    result_.allocations.add(event.size);
    thread.allocations.add(event.size);
    thread.newest = event.object;
    thread.live.add(event.size);
    live_.add(event.size);
    if (event.kind == Kind::aligned) {
      ++result_.alignments[std::min(event.log2_alignment, max_log2_alignment)];
    }
    SizeCount& count = result_.sizes.of(event.size);
    ++count.allocations;
    ++count.live;
    if (const auto place = first_.touched.place(event.object)) {
      births_.insert(*place, {.event = number_,
                              .time_ns = event.time_ns,
                              .clock_bytes = clock_bytes_,
                              .size = event.size,
                              .thread = event.thread});
    } else {
      result_.left_own.add(event.size);
      ++count.left_own;
    }
  }

  void on_resize(const Event& event, ThreadSums& thread) {
    const auto place = first_.touched.place(event.object);
    Birth* const birth = place ? births_.find(*place) : nullptr;
    if (birth == nullptr) {
      ++result_.unknown_resizes;
      return;
    }
    ++thread.resizes;
    count_step(birth->size, event.size);
    if (event.size > birth->size) clock_bytes_ += event.size - birth->size;
    live_.bytes += event.size - birth->size;  // modulo 2^64, as the sums of a heap that shrinks
    if (birth->is_inherited) {
      inherited_live_.bytes += event.size - birth->size;
    } else {
      thread_of(birth->thread).live.bytes += event.size - birth->size;
    }
    --result_.sizes.of(birth->size).live;
    SizeCount& count = result_.sizes.of(event.size);
    ++count.live;
    ++count.resizes;
    birth->resize(event.size);
  }

  void count_step(std::uint64_t before, std::uint64_t after) {
    Chains& chains = result_.chains;
    ++chains.resizes;
    if (after < before) {
      ++chains.shrunk;
      result_.shrunk_bytes += before - after;
    } else if (after == before) {
      ++chains.unchanged;
    } else {
      ++chains.grown;
      result_.grown_bytes += after - before;
      if (before == 0) {
        ++chains.from_zero;
      } else {
        chains.step_growth.add(ratio(after, before), after);
      }
    }
  }

  // Rounded to the nearest thousandth.
  static std::uint64_t ratio(std::uint64_t after, std::uint64_t before) {
    return static_cast<std::uint64_t>(
        std::llround(static_cast<double>(after) / static_cast<double>(before) *
                     static_cast<double>(thousandth)));
  }

  void on_free(const Event& event, ThreadSums& thread) {
    const auto place = first_.touched.place(event.object);
    Birth* const birth = place ? births_.find(*place) : nullptr;
    if (birth == nullptr) {
      ++result_.unknown_frees;
      return;
    }
    const std::uint64_t size = birth->size;
    --result_.sizes.of(size).live;
    live_.remove(size);
    thread.frees.add(size);
    if (birth->is_inherited) {
      inherited_live_.remove(size);
      result_.inherited_frees.add(size);
    } else {
      on_own_free(event, thread, *birth);
      count_chain(*birth);
    }
    births_.remove(*place);
  }

  void on_own_free(const Event& event, ThreadSums& thread, const Birth& birth) {
    result_.frees.add(birth.size);
    const std::uint64_t ns = event.time_ns - std::min(event.time_ns, birth.time_ns);
    add_lifetime(result_.in_ns, ns, birth.size);
    add_lifetime(result_.in_events, number_ - birth.event, birth.size);
    add_lifetime(result_.in_bytes, clock_bytes_ - birth.clock_bytes, birth.size);
    ThreadSums& owner = thread_of(birth.thread);
    owner.live.remove(birth.size);
    if (birth.thread != event.thread) {
      result_.cross_thread_frees.add(birth.size);
      thread.foreign_frees.add(birth.size);
      owner.given_away.add(birth.size);
    } else if (thread.newest == event.object) {
      result_.temporaries.add(birth.size);
      ++thread.temporaries;
    }
  }

  static void add_lifetime(Lifetimes& lifetimes, std::uint64_t lifetime, std::uint64_t size) {
    lifetimes.histogram.add(lifetime, size);
    lifetimes.by_size.add(size, lifetime);
  }

  void count_chain(const Birth& birth) {
    if (birth.resizes == 0) return;
    result_.chains.longest = std::max<std::uint64_t>(result_.chains.longest, birth.resizes);
    result_.chains.lengths.add(birth.resizes, birth.size);
    if (birth.first_size > 0) {
      result_.chains.growth.add(ratio(birth.size, birth.first_size), birth.size);
    }
  }

  // --- the peak, the curve, the end --------------------------------------------------------------

  void take_peak(std::uint64_t time_ns) {
    result_.peak_ns = time_ns;
    result_.at_peak = live_;
    result_.inherited_at_peak = inherited_live_;
    result_.sizes.take_peak();
    for (ThreadSums& thread : result_.threads) thread.at_peak = thread.live;
  }

  // Stretches are equally many numbers of events; one of which no event can be read has no point.
  void begin_stretch() {
    const std::uint64_t stretch = number_ / stretch_;
    if (is_in_stretch_ && stretch == current_stretch_) return;
    if (is_in_stretch_) end_stretch();
    is_in_stretch_ = true;
    current_stretch_ = stretch;
    highest_ = live_.bytes;
  }

  void end_stretch() {
    result_.curve.push_back({last_number_, latest_ns_, live_.bytes, highest_, live_.objects});
  }

  void count_the_rest() {
    births_.each([this](const Birth& birth) {
      if (birth.is_inherited) {
        result_.left_inherited.add(birth.size);
        ++result_.sizes.of(birth.size).left_inherited;
      } else {
        result_.left_own.add(birth.size);
        ++result_.sizes.of(birth.size).left_own;
        count_chain(birth);
      }
    });
  }

  const Reader& reader_;
  const Image& image_;
  const FirstReading& first_;
  BirthTable births_;
  Analysis result_;
  Amount live_;
  Amount inherited_live_;
  std::uint64_t number_ = 0;  // of the event
  std::uint64_t clock_bytes_ = 0;
  std::uint64_t latest_ns_ = 0;
  std::uint64_t stretch_ = 1;
  std::uint64_t current_stretch_ = 0;
  bool is_in_stretch_ = false;
  std::uint64_t last_number_ = 0;
  std::uint64_t highest_ = 0;
};

}  // namespace

Analysis analyse(const Reader& reader, const Image& image, const FirstReading& found) {
  return Analyst{reader, image, found}.run();
}

}  // namespace ts::trace
