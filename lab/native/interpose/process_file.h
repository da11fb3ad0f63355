// One file for each program image in each process: when it begins, and where it is.
//
// A shim's data must survive every way for a process to end, so it is in a mapped file. A forked
// child starts a file of its own, although nobody tells it that it was forked. Nothing here makes a
// program fail, or allocates: in a directory without write permission, no file is made.
#pragma once

#include <cstddef>

namespace ts {

// Whether this process has begun: false at its first call, and at the first one of a forked child.
bool has_begun();

enum class Begin {
  try_later,  // another thread does it, or libc is not ready and a later call will retry
  first,      // the caller must create the record of this program image
  forked      // the same, in a forked child, whose memory is a copy of its parent's
};

// variable: the environment variable with the directory.
Begin begin_process(const char* variable);

// Creates DIRECTORY/PID-NUMBER.suffix with this content, and maps it shared; null if that fails.
// Everything is written before it is mapped, so that a full disk shows here, not as a SIGBUS.
void* map_new_file(const char* suffix, const void* content, std::size_t size);

// The names of this process; each text ends with a NUL, and is cut if too long.
void name_program(char* text, std::size_t size);
void name_provider(char* text, std::size_t size);  // the library that provides the next malloc

}  // namespace ts
