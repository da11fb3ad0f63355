// A second library for process_exit.cpp, whose statics are destroyed after the program's.
#pragma once

#include <cstddef>

// Keeps `blocks` blocks until the library's statics are destroyed.
void library_keep(std::size_t blocks);
