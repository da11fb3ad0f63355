// System calls of the counted libraries beyond os.h: text file, end of the process, and a
// copy of it that inspects the heap. Nothing here allocates or takes a lock; other builds have none
// of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/event_counts.h"
#include "os/os.h"

namespace ts::os {

// Writes the absolute form of `path`, ended by a zero, to `absolute`; false if it does not fit.
bool make_absolute(const char* path, char* absolute, std::size_t capacity) noexcept;

// Calls `at_exit` when exit() has run all destructors of the process. To be called while the
// dynamic linker starts the process.
bool call_at_process_exit(void (*at_exit)(void*)) noexcept;

// Registers a handler that the child of a fork runs before all others but the heap's.
bool call_in_forked_child(void (*child)()) noexcept;

// Ends the process at once, as _exit does.
[[noreturn]] void end_process(int status) noexcept;

// Calls `look(argument)` in a copy of the process that has this thread alone, and waits. True if
// `look` returned true within two seconds. A crash of the copy leaves the process as it is.
bool run_in_copy(bool (*look)(void*), void* argument) noexcept;

// A file of text that appears under its name only when it is whole, and never replaces another. One
// at a time: the buffer is static.
class TextFile {
 public:
  // A nameless beginning in `folder`, for process `process`.
  TextFile(const char* folder, std::uint64_t process) noexcept;
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  void text(const char* zero_terminated) noexcept;
  void number(std::uint64_t value) noexcept;
  // Between quotes, as JSON has it; bytes beyond ASCII as they are.
  void quoted(const char* zero_terminated) noexcept;

  // Gives the file its name: FOLDER/PROCESS<suffix>, or FOLDER/PROCESS-N<suffix> with the first N
  // from `first_number` (0: without a number) that is free. False if anything failed; then there is
  // no file.
  bool publish(std::uint64_t first_number, const char* suffix) noexcept;

 private:
  void append(const char* bytes, std::size_t count) noexcept;
  void flush() noexcept;

  const char* folder_;
  std::uint64_t process_;
  int descriptor_;
  bool failed_;
  std::size_t buffered_ = 0;
};

}  // namespace ts::os

namespace ts {

class TimedWait {
 public:
  TimedWait() noexcept : began_ns_{os::nanoseconds()} {}
  ~TimedWait() {
    count_event(Event::lock_waits);
    count_event(Event::lock_wait_ns, os::nanoseconds() - began_ns_);
  }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;

 private:
  std::uint64_t began_ns_;
};
struct UntimedWait {};

// Counts how long a thread waits for a lock, from its making to its end.
using CountedWait = std::conditional_t<counting, TimedWait, UntimedWait>;

}  // namespace ts
