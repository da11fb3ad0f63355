// What a module's memory says of its file: the ELF header, segments and build id.
#pragma once

#include <cstdint>

#include "os/loaded_modules.h"
#include "os/readable_memory.h"
#include "unwind/unwind.h"

namespace ts::os {

// Of the segment of code that holds `pc`, or of the first one. Where the memory shows no ELF file,
// of the whole range, from the beginning of the file on. Returns where the build id lies, or 0.
std::uintptr_t describe_module(const LoadedModule& loaded, std::uintptr_t pc,
                               ReadableMemory& memory, Module& module) noexcept;

}  // namespace ts::os
