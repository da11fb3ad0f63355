// The steps of a function that says what a request gets: where they end, and runs of equal ones.
//
// Why it exists: 64 MiB of sizes are found with a few questions for each step. What it refuses to
// do: assume that a block of usable size u is what a request of u gets; it asks.
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

  // False: the step is not the next of this run.
  bool extend(const Step& one) {
    if (count == 0 || one.usable - one.upper != slack) return false;
    const std::uint64_t distance = one.upper - (first + (count - 1) * step);
    if (count > 1 && distance != step) return false;
    step = distance;
    ++count;
    return true;
  }
};

// found(step) for each step from 0 bytes up to the one that holds `most`; usable(size) never falls.
// The last step may be longer than it is said to be.
template <typename Usable, typename Found>
void each_step(std::uint64_t most, Usable usable, Found found) {
  for (std::uint64_t size = 0; size <= most;) {
    const std::uint64_t bytes = usable(size);
    std::uint64_t inside = size;    // gets `bytes`
    std::uint64_t outside = bytes;  // gets more, or is one too many
    if (bytes >= size && usable(bytes) == bytes) {
      inside = bytes;  // the common case: a block serves a request of all its bytes
    } else {
      // No request of more than a block's bytes gets that block.
      outside = (bytes > size ? bytes : size) + 1;
      while (outside - inside > 1) {
        const std::uint64_t middle = inside + (outside - inside) / 2;
        (usable(middle) == bytes ? inside : outside) = middle;
      }
    }
    found(Step{inside, bytes > inside ? bytes : inside});
    size = inside + 1;
  }
}

}  // namespace ts
