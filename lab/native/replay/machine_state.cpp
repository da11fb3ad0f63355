// Personality, affinity, prctl; see machine_state.h.
#include "replay/machine_state.h"

#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace ts::replay {
namespace {

constexpr unsigned long as_it_is = 0xffff'ffff;  // queries without a change

bool is_randomised() {
  const int now = personality(as_it_is);
  return now == -1 || (static_cast<unsigned>(now) & ADDR_NO_RANDOMIZE) == 0;
}

int only_cpu() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) != 1) return -1;
  int cpu = 0;
  while (CPU_ISSET(cpu, &usable) == 0) ++cpu;
  return cpu;
}

// The last one, since systems handle most interrupts on the first.
void bind_to_one() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int last = CPU_SETSIZE - 1;
  while (last > 0 && CPU_ISSET(last, &usable) == 0) --last;
  CPU_ZERO(&usable);
  CPU_SET(last, &usable);
  (void)sched_setaffinity(0, sizeof usable, &usable);
}

}  // namespace

void make_repeatable(char** arguments) {
  const int now = personality(as_it_is);
  if (now != -1 && is_randomised()) {
    (void)personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE);
    // If that is not permitted, continue with the current addresses.
    if (!is_randomised()) execv("/proc/self/exe", arguments);
  }
  (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  bind_to_one();
}

MachineState machine_state() {
  MachineState found;
  found.has_aslr = is_randomised();
  found.has_huge_pages = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1;
  found.cpu = only_cpu();
  return found;
}

}  // namespace ts::replay
