// What the dynamic linker says of loaded modules.
#pragma once

#include <cstdint>

namespace ts::os {

struct LoadedModule {
  std::uintptr_t begin = 0;  // of its memory, all segments
  std::uintptr_t end = 0;
  std::uintptr_t header = 0;          // .eh_frame_hdr, 0 if it has none
  const char* const* path = nullptr;  // where the pointer to its path is; null: unknown

  bool contains(std::uintptr_t pc) const noexcept { return pc - begin < end - begin; }
};

// Whether modules can be found without a lock: by _dl_find_object of glibc 2.35. Known from
// learn_module_functions() on.
bool can_find_modules() noexcept;
bool find_loaded_module(std::uintptr_t pc, LoadedModule& module) noexcept;

// To be called outside of malloc, unless it was called before.
void learn_module_functions() noexcept;

// Calls `visit` for each loaded module, under the dynamic linker's lock; and returns how many were
// unloaded so far. A null `visit` only counts.
using ModuleVisitor = void(const LoadedModule& module);
unsigned long long visit_loaded_modules(ModuleVisitor* visit) noexcept;

}  // namespace ts::os
