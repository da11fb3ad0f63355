// System calls that only the instrumented builds need: a text file, process exit, and a copy of the
// process that inspects the heap. Nothing here allocates or takes a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/event_counts.h"
#include "os/os.h"

namespace ts::os {

// Writes the absolute form of `path`, zero-terminated, to `absolute`; false if it does not fit.
bool make_absolute(const char* path, char* absolute, std::size_t capacity) noexcept;

// Calls `at_exit` after exit() has run all destructors of the process. Must be called while the
// dynamic linker starts the process.
bool call_at_process_exit(void (*at_exit)(void*)) noexcept;

// Registers a handler that the child of a fork runs before all others except the heap's.
bool call_in_forked_child(void (*child)()) noexcept;

// Ends the process at once, like _exit.
[[noreturn]] void end_process(int status) noexcept;

// Calls `look(argument)` in a copy of the process that has only this thread, and waits. True if
// `look` returned true within two seconds. A crash of the copy does not affect the process.
bool run_in_copy(bool (*look)(void*), void* argument) noexcept;

// A text file that appears under its name only when it is complete, and never replaces another.
// Only one at a time: the buffer is static.
class TextFile {
 public:
  // Opens an unnamed file in `folder`, for process `process`.
  TextFile(const char* folder, std::uint64_t process) noexcept;
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  void text(const char* zero_terminated) noexcept;
  void number(std::uint64_t value) noexcept;
  // Writes a JSON string, with quotes; non-ASCII bytes are copied as they are.
  void quoted(const char* zero_terminated) noexcept;

  // Names the file FOLDER/PROCESS<suffix>, or FOLDER/PROCESS-N<suffix> with the first free N from
  // `first_number` on (0: without a number). If anything fails, returns false and leaves no file.
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

// Counts how long a thread waits for a lock, from construction to destruction.
using CountedWait = std::conditional_t<counting, TimedWait, UntimedWait>;

}  // namespace ts
