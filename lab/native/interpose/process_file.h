// One file for each program image in each process: when it begins, and where it lies.
//
// What a shim knows must survive every way for a process to end, so it is kept in a mapped file. A
// forked child begins one of its own, although it is not told that it has been forked. Nothing here
// makes a program fail, or allocates: if the directory cannot be written to, there is no file.
#pragma once

#include <cstddef>

namespace ts {

// Whether this process has begun: false at its first call, and at the first of a forked child.
bool has_begun();

enum class Begin {
  not_now,  // another thread does it, or libc is not ready and a later call comes here again
  first,    // the caller is to make the record of this program image
  forked    // the same, for a child that was forked; its memory is a copy of its parent's
};

// variable: the name of the environment variable that names the directory.
Begin begin_process(const char* variable);

// DIRECTORY/PID-NUMBER.suffix with this content, mapped and shared; null when there is no file to be
// had. Everything is written before it is mapped: a full disk shows here, not as a SIGBUS.
void* map_new_file(const char* suffix, const void* content, std::size_t size);

// The names of this process; each text ends with a NUL, and is cut if it is too long.
void name_program(char* text, std::size_t size);
void name_provider(char* text, std::size_t size);  // the library that provides the next malloc

}  // namespace ts
