// Callers in the last moments of a process, in two libraries and the program, which all report
// success to one file descriptor.
#pragma once

#include <cstddef>

// From now on each late caller writes its letter there, or '?' if a function fails.
void late_calls_report_to(int descriptor);

// Calls every function and reports; no effect while no report is wanted.
void call_late(char letter);

// Holds memory from its construction on; its destructor checks and frees that, and calls every
// function.
class LateCalls {
 public:
  explicit LateCalls(char letter);
  ~LateCalls();
  LateCalls(const LateCalls&) = delete;
  LateCalls& operator=(const LateCalls&) = delete;

 private:
  static constexpr std::size_t sizes[] = {100, 5000, 3'000'000};
  char letter_;
  char* blocks_[3];
};

// Forces the second library to be linked.
void second_late_library();
