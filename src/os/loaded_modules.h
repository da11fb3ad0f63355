// Loaded modules, as the dynamic linker reports them.
#pragma once

#include <cstdint>

namespace ts::os {

struct LoadedModule {
  std::uintptr_t begin = 0;  // of its memory, all segments
  std::uintptr_t end = 0;
  std::uintptr_t header = 0;          // .eh_frame_hdr; 0: none
  const char* const* path = nullptr;  // points to the pointer to its path; null: unknown

  bool contains(std::uintptr_t pc) const noexcept { return pc - begin < end - begin; }
};

// Whether modules can be found without a lock, by _dl_find_object of glibc 2.35. Known once
// learn_module_functions() has been called.
bool can_find_modules() noexcept;
bool find_loaded_module(std::uintptr_t pc, LoadedModule& module) noexcept;

// Must be called outside malloc, unless it was called before.
void learn_module_functions() noexcept;

// Calls `visit` for each loaded module, under the dynamic linker's lock, and returns how many were
// unloaded so far. With a null `visit`, only counts.
using ModuleVisitor = void(const LoadedModule& module);
unsigned long long visit_loaded_modules(ModuleVisitor* visit) noexcept;

}  // namespace ts::os
