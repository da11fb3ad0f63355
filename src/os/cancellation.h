// Keeps the calling thread from being cancelled (pthread_setcancelstate(3)). Functions of the
// malloc family must not be cancellation points (POSIX, 2.9.5.2), but stdio and file calls are.
#pragma once

namespace ts::os {

// Returns the previous state, for restore_cancellation(). A pending cancellation waits for the
// thread's next cancellation point.
int disable_cancellation() noexcept;
void restore_cancellation(int state) noexcept;

class CancellationDisabled {
 public:
  CancellationDisabled() noexcept = default;
  ~CancellationDisabled() { restore_cancellation(before_); }
  CancellationDisabled(const CancellationDisabled&) = delete;
  CancellationDisabled& operator=(const CancellationDisabled&) = delete;

 private:
  int before_ = disable_cancellation();
};

}  // namespace ts::os
