// The system call, and the number of processors; see futex.h.
#include "replay/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace ts::replay {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  // Every error (it has changed, a signal) means: look again.
  (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int spins_before_sleep() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool is_known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  return is_known && CPU_COUNT(&usable) == 1 ? 0 : 100;
}

}  // namespace ts::replay
