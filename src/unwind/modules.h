// The table of modules: those that the dynamic linker is asked for at each stack, or, where asking
// takes a lock, those that it named when it was asked last.
#pragma once

#include <cstdint>

#include "os/loaded_modules.h"

namespace ts::os {

// The module that has code at an address; false if none is known. Records it, and forgets the rows
// of another that was at its place.
bool module_at(std::uintptr_t pc, LoadedModule& module) noexcept;

}  // namespace ts::os
