// Callers in the last moments of a process, in two libraries and the program, which all tell one
// file descriptor that they worked.
#pragma once

#include <cstddef>

// From now on each late caller writes its letter there, or '?' if a function does not work.
void late_calls_report_to(int descriptor);

// Calls every function and says so; without effect as long as no report is asked for.
void call_late(char letter);

// Holds memory from its construction on; when it is destroyed it checks and frees that, and calls
// every function.
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

// Makes the second library be linked.
void second_late_library();
