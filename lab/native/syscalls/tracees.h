// The threads that are traced now, by their number.
//
// Why it exists: between the entry of a call and its exit something must be remembered, for any
// number of threads, without a C++ run-time library. What it refuses to do: grow. There is room for
// as many as Linux would run at once on most machines; a process that finds it full is traced
// without memory, and that is said.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "common/system.h"
#include "syscalls/filter.h"

namespace ts {

struct Tracee {
  pid_t thread = 0;         // 0: this place is empty
  pid_t process = 0;        // its thread group's leader
  Call call = Call::count;  // the one that it is in, Call::count: none of ours
  std::uint64_t arguments[3] = {};
  Nanoseconds entry_ns = 0;
  std::uint64_t program_break = 0;  // of a leader: its process's; 0: not known
};

// Open addressing with linear probing. Invariant: no empty place between an entry and the place
// that its number asks for.
class Tracees {
 public:
  // Null if there is none.
  Tracee* find(pid_t thread) {
    for (std::size_t place = home_of(thread); tracees_[place].thread != 0; place = after(place)) {
      if (tracees_[place].thread == thread) return &tracees_[place];
    }
    return nullptr;
  }

  // A fresh entry; null if there is no room.
  Tracee* add(pid_t thread) {
    if (count_ == most) return nullptr;
    ++count_;
    std::size_t place = home_of(thread);
    while (tracees_[place].thread != 0) place = after(place);
    tracees_[place] = Tracee{.thread = thread};
    return &tracees_[place];
  }

  // What stands behind moves up, unless its home lies behind the hole.
  void remove(pid_t thread) {
    Tracee* const found = find(thread);
    if (found == nullptr) return;
    --count_;
    auto hole = static_cast<std::size_t>(found - tracees_);
    for (std::size_t place = after(hole); tracees_[place].thread != 0; place = after(place)) {
      const std::size_t home = home_of(tracees_[place].thread);
      const std::size_t from_home = (place + places - home) % places;
      const std::size_t from_hole = (place + places - hole) % places;
      if (from_home < from_hole) continue;
      tracees_[hole] = tracees_[place];
      hole = place;
    }
    tracees_[hole] = Tracee{};
  }

 private:
  static constexpr std::size_t places = std::size_t{1} << 16;
  static constexpr std::size_t most = places / 4 * 3;

  static std::size_t home_of(pid_t thread) { return static_cast<std::size_t>(thread) % places; }
  static std::size_t after(std::size_t place) { return (place + 1) % places; }

  std::size_t count_ = 0;
  Tracee tracees_[places] = {};
};

}  // namespace ts
