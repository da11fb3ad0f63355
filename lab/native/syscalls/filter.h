// Which system calls stop the program, and the filter that makes the kernel stop it at those only.
//
// Why it exists: a tracer that stops a program at every call slows it by orders of magnitude, and
// with it changes which thread waits for which. What it refuses to do: count. It also leaves calls
// of another instruction set alone (32-bit programs on a 64-bit kernel), whose numbers mean
// something else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

// The order in which they are reported.
enum class Call : unsigned { futex, mmap, munmap, mremap, brk, madvise, sched_yield, count };
inline constexpr std::size_t call_count = static_cast<std::size_t>(Call::count);

const char* name_of(Call call);

// Call::count for one that is none of ours.
Call call_of(std::uint64_t number);

// The mark that our filter gives the tracer with each stop. A stop by a filter of the program's own
// has another one.
inline constexpr std::uint16_t filter_mark = 0x7453;

// In the process that is to be traced, which must be traced already: without a tracer the calls
// would fail with ENOSYS. Returns an error number.
int install_filter();

}  // namespace ts
