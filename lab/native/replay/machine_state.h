// The environment of a replay, which must not vary: processors, addresses, page sizes.
//
// Runs that make the same calls in the same order get the same addresses only if the kernel lays
// the process out the same way. If a system does not permit that, it is reported, but not an error.
#pragma once

#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace ts::replay {

inline constexpr unsigned long as_it_is = 0xffff'ffff;  // queries without a change

inline bool is_randomised() {
  const int now = personality(as_it_is);
  return now == -1 || (static_cast<unsigned>(now) & ADDR_NO_RANDOMIZE) == 0;
}

// The last processor that we may use; -1: not known.
inline int last_cpu(cpu_set_t& usable) {
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return -1;
  int last = CPU_SETSIZE - 1;
  while (last > 0 && CPU_ISSET(last, &usable) == 0) --last;
  return last;
}

struct MachineState {
  bool has_aslr = true;        // addresses are randomised
  bool has_huge_pages = true;  // the system may use them as configured
  int cpu = -1;                // the one processor of all threads; -1: several
};

// Switches off randomisation, for which the program restarts (so call this first), and huge pages,
// and binds everything to one processor.
inline void make_repeatable(char** arguments) {
  const int now = personality(as_it_is);
  if (now != -1 && is_randomised()) {
    (void)personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE);
    // If that is not permitted, continue with the current addresses.
    if (!is_randomised()) execv("/proc/self/exe", arguments);
  }
  (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  // To the last processor, since systems handle most interrupts on the first.
  cpu_set_t usable;
  const int last = last_cpu(usable);
  if (last < 0) return;
  CPU_ZERO(&usable);
  CPU_SET(last, &usable);
  (void)sched_setaffinity(0, sizeof usable, &usable);
}

inline MachineState machine_state() {
  MachineState found;
  found.has_aslr = is_randomised();
  found.has_huge_pages = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1;
  cpu_set_t usable;
  const int last = last_cpu(usable);
  if (CPU_COUNT(&usable) == 1) found.cpu = last;
  return found;
}

}  // namespace ts::replay
