// What the programs and the library of hooks (hooks.c) know of each other.
#pragma once

#include <stdint.h>

// The exit status of a process in which another thread could not use the heap during a hook.
enum { exit_was_held = 3 };

// Starts the library's own thread, if its mode has one.
void beside_begin(void);

// Called before the pages in [begin, end) are given up or moved by the function of this name.
typedef void Announced(const char* name, uintptr_t begin, uintptr_t end);
void beside_watch(Announced* watcher);
