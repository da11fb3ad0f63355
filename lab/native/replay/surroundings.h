// What is around the replay and must not vary: processors, addresses, page sizes.
//
// Runs that make the same calls in the same order get the same addresses only if the kernel lays
// the process out alike. A system that does not permit it is reported, not an error.
#pragma once

namespace ts::replay {

struct Surroundings {
  bool has_aslr = true;        // addresses are randomised
  bool has_huge_pages = true;  // the system may use them as it is set up to
  int cpu = -1;                // the one processor of all threads; -1: they may use several
};

// Switches randomisation off, for which the program begins again (so call this first), and
// huge pages, and binds everything to one processor.
void make_repeatable(char** arguments);

Surroundings surroundings();

}  // namespace ts::replay
