// A mixed workload with every piece checked, run again and again in a process of its own, each time
// with another system call failing: the first, the second, and so on; only that one, with the next
// one, or with all later ones. Afterwards nothing may be damaged, and the heap must work again.
#pragma once

#include <cstddef>

#include "reliability/faults/system_calls.h"

namespace ts::faults {

// More to do while calls fail. It leaves nothing behind; returns null, or what is wrong.
using TryMore = const char* (*)();

// About `calls_per_world` calls fail in turn. Returns 0, or 1 after the first failures, which are
// printed. Where calls made by instruction cannot be made to fail (an emulator), only those made by
// name do.
int run_drill(const World* worlds, std::size_t world_count, std::size_t calls_per_world,
              TryMore more);

// One run, in this process, with its calls already armed. Ends the process with status 0, or with 1
// after reporting what is wrong.
[[noreturn]] void run_armed();

// The file name of the library that malloc is in.
const char* library_name();

}  // namespace ts::faults
