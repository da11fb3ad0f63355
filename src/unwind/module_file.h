// Describes a module's file from its memory: the ELF header, segments and build id.
#pragma once

#include <cstdint>

#include "os/loaded_modules.h"
#include "os/readable_memory.h"
#include "unwind/unwind.h"

namespace ts::os {

// Describes the segment of code that contains `pc`, or the first one; if the memory shows no ELF
// file, the whole range, from the beginning of the file. Returns the address of the build id, or 0.
std::uintptr_t describe_module(const LoadedModule& loaded, std::uintptr_t pc,
                               ReadableMemory& memory, Module& module) noexcept;

}  // namespace ts::os
