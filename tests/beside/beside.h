// Shared by the programs and the library of hooks (hooks.c).
#pragma once

#include <stdint.h>

// The exit status of a process in which another thread could not use the heap during a hook.
enum { exit_was_held = 3 };

// Starts the hook library's thread, if its mode has one.
void beside_begin(void);

// Called before the pages in [begin, end) are given up or moved by the named function.
typedef void Announced(const char* name, uintptr_t begin, uintptr_t end);
void beside_watch(Announced* watcher);
