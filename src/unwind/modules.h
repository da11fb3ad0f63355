// The table of modules: those that the dynamic linker is asked for at each stack or, where asking
// takes a lock, those that it reported last time.
#pragma once

#include <cstdint>

#include "os/loaded_modules.h"

namespace ts::os {

// The module that has code at an address; false if none is known. Records it, and drops the rows of
// another one that was in its place.
bool module_at(std::uintptr_t pc, LoadedModule& module) noexcept;

}  // namespace ts::os
