// The threads that are traced now, by their number.
//
// Why it exists: between the entry of a call and its exit something must be remembered, for any
// number of threads, without a C++ run-time library. What it refuses to do: grow. There is room for
// as many as Linux would run at once on most machines; who finds it full is traced without memory,
// and that is said.
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
  Tracee* find(pid_t thread);

  // A fresh entry; null if there is no room.
  Tracee* add(pid_t thread);

  void remove(pid_t thread);

 private:
  static constexpr std::size_t places = std::size_t{1} << 16;
  static constexpr std::size_t most = places / 4 * 3;

  static std::size_t home_of(pid_t thread) { return static_cast<std::size_t>(thread) % places; }
  static std::size_t after(std::size_t place) { return (place + 1) % places; }

  std::size_t count_ = 0;
  Tracee tracees_[places] = {};
};

}  // namespace ts
