// The steps of a function that says what a request gets: where they end, and runs of equal ones.
//
// 64 MiB of sizes are found with some thousand questions. That a request of u bytes gets a block of
// usable size u is asked and not assumed. But after trusted_steps equal steps only the last one of
// the run is asked for, by doubling and then halving the distance: an allocator that has rounded to
// 16 bytes hundreds of times goes on so, until another way of serving begins.
#pragma once

#include <cstdint>

namespace ts {

// Requests of more than the step before, up to `upper`, get `usable` bytes.
struct Step {
  std::uint64_t upper;
  std::uint64_t usable;
};

// `count` steps, `step` bytes apart, each with `slack` bytes more than its upper end.
struct Run {
  std::uint64_t first = 0;
  std::uint64_t step = 0;
  std::uint64_t count = 0;
  std::uint64_t slack = 0;

  void begin(const Step& one) { *this = {one.upper, 1, 1, one.usable - one.upper}; }

  std::uint64_t upper(std::uint64_t index) const { return first + index * step; }
  std::uint64_t last() const { return upper(count - 1); }

  // False: the step is not the next of this run.
  bool extend(const Step& one) {
    if (count == 0 || one.usable - one.upper != slack) return false;
    const std::uint64_t distance = one.upper - last();
    if (count > 1 && distance != step) return false;
    step = distance;
    ++count;
    return true;
  }
};

inline constexpr std::uint64_t trusted_steps = 256;

// The step that holds `size`, the first of its sizes; usable(size) never falls.
template <typename Usable>
Step step_from(std::uint64_t size, Usable& usable) {
  const std::uint64_t bytes = usable(size);
  std::uint64_t inside = size;  // gets `bytes`
  if (bytes >= size && usable(bytes) == bytes) {
    inside = bytes;  // the common case: a block serves a request of all its bytes
  } else {
    // No request of more than a block's bytes gets that block.
    std::uint64_t outside = (bytes > size ? bytes : size) + 1;
    while (outside - inside > 1) {
      const std::uint64_t middle = inside + (outside - inside) / 2;
      (usable(middle) == bytes ? inside : outside) = middle;
    }
  }
  return {inside, bytes > inside ? bytes : inside};
}

// Finds out how far the run goes on, at most to `most`.
template <typename Usable>
void prolong(Run& run, std::uint64_t most, Usable& usable) {
  // That step ends where it should, and the next one is as it should be.
  const auto holds = [&](std::uint64_t index) {
    const std::uint64_t upper = run.upper(index);
    return upper <= most && usable(upper) == upper + run.slack &&
           usable(upper + 1) == upper + run.step + run.slack;
  };
  std::uint64_t index = run.count - 1;
  std::uint64_t jump = run.count;
  for (; holds(index + jump); jump *= 2) index += jump;
  for (; jump > 0; jump /= 2) {
    if (holds(index + jump)) index += jump;
  }
  run.count = index + 1;
}

// found(run) for each run of steps, from 0 bytes up to the step that holds `most`, and perhaps the
// next. The very last step may be longer than it is said to be.
template <typename Usable, typename Found>
void each_run(std::uint64_t most, Usable usable, Found found) {
  Run run;
  bool is_prolonged = false;
  for (std::uint64_t size = 0; size <= most;) {
    const Step step = step_from(size, usable);
    if (!run.extend(step)) {
      if (run.count > 0) found(run);
      run.begin(step);
      is_prolonged = false;
    } else if (run.count >= trusted_steps && !is_prolonged) {
      prolong(run, most, usable);
      is_prolonged = true;
    }
    size = run.last() + 1;
  }
  if (run.count > 0) found(run);
}

}  // namespace ts
