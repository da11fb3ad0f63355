// The environment of a replay, which must not vary: processors, addresses, page sizes.
//
// Runs that make the same calls in the same order get the same addresses only if the kernel lays
// the process out the same way. If a system does not permit that, it is reported, but not an error.
#pragma once

namespace ts::replay {

struct MachineState {
  bool has_aslr = true;        // addresses are randomised
  bool has_huge_pages = true;  // the system may use them as configured
  int cpu = -1;                // the one processor of all threads; -1: several
};

// Switches off randomisation, for which the program restarts (so call this first), and huge pages,
// and binds everything to one processor.
void make_repeatable(char** arguments);

MachineState machine_state();

}  // namespace ts::replay
