// Where threads leave blocks for other threads to free: a fixed number of boxes, each filled or
// emptied by one thread at a time. No thread waits: post() fails if the box is busy or full, and
// taking fails if it is busy or empty.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "programs/support/mapped_array.h"

namespace ts::stress {

template <class Parcel>
class PostOffice {
 public:
  explicit PostOffice(std::size_t boxes) : boxes_{boxes} {}

  std::size_t boxes() const { return boxes_.size(); }

  // False if the box is not empty.
  bool post(std::size_t box, const Parcel& parcel) {
    Box& b = boxes_[box];
    State expected = State::empty;
    // acquire: pairs with the release of the thread that emptied the box and has read it
    if (!b.state.compare_exchange_strong(expected, State::busy, std::memory_order_acquire))
      return false;
    b.parcel = parcel;
    b.state.store(State::full, std::memory_order_release);
    return true;
  }

  // False if there is nothing in the box.
  bool take(std::size_t box, Parcel& parcel) {
    Box& b = boxes_[box];
    State expected = State::full;
    // acquire: pairs with the release in post(); sees the parcel, and what its sender wrote into it
    if (!b.state.compare_exchange_strong(expected, State::busy, std::memory_order_acquire))
      return false;
    parcel = b.parcel;
    b.state.store(State::empty, std::memory_order_release);
    return true;
  }

  // The contents of a box, or null. No thread may be using it.
  const Parcel* look(std::size_t box) const {
    return boxes_[box].state.load(std::memory_order_acquire) == State::full ? &boxes_[box].parcel
                                                                            : nullptr;
  }

 private:
  enum class State : std::uint32_t { empty, busy, full };  // zero-initialised: empty

  struct alignas(64) Box {
    std::atomic<State> state;
    Parcel parcel;
  };

  test::MappedArray<Box> boxes_;
};

}  // namespace ts::stress
