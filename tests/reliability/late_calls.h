// Callers in the last moments of a process, in two libraries and the program, which all tell one
// file descriptor that they worked.
#pragma once

// From now on each late caller writes its letter there, or '?' if a function does not work.
void late_calls_report_to(int descriptor);

// Calls every function and says so; without effect as long as no report is asked for.
void call_late(char letter);

// Does so when it is destroyed.
class LateCalls {
 public:
  explicit LateCalls(char letter) : letter_{letter} {}
  ~LateCalls() { call_late(letter_); }
  LateCalls(const LateCalls&) = delete;
  LateCalls& operator=(const LateCalls&) = delete;

 private:
  char letter_;
};

// Makes the second library be linked.
void second_late_library();
