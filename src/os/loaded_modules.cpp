// The dynamic linker's part of loaded_modules.h.
#include "os/loaded_modules.h"

#include <link.h>

#include "base/bits.h"
#include "os/os.h"
#include "os/readable_memory.h"

namespace ts::os {
namespace {

// struct dl_find_object, which older headers lack.
struct FoundObject {
  unsigned long long flags;
  void* map_begin;
  void* map_end;
  link_map* map;
  void* header;
  unsigned long long reserved[7];
};
using FindObject = int(void* address, FoundObject* found);

}  // namespace

namespace {

// Relaxed: null, or a function of the C library.
constinit std::atomic<FindObject*> find_object{nullptr};

bool find_by(FindObject* find, std::uintptr_t pc, LoadedModule& module) noexcept {
  FoundObject found{};
  if (find == nullptr || find(reinterpret_cast<void*>(pc), &found) != 0) return false;
  module.begin = reinterpret_cast<std::uintptr_t>(found.map_begin);
  module.end = reinterpret_cast<std::uintptr_t>(found.map_end);
  module.header = reinterpret_cast<std::uintptr_t>(found.header);
  module.path = found.map == nullptr ? nullptr : &found.map->l_name;
  return true;
}

}  // namespace

void learn_module_functions() noexcept {
  // relaxed: looking twice is harmless, and once is enough: it cannot appear later.
  static constinit std::atomic<bool> is_known{false};
  if (is_known.load(std::memory_order_relaxed)) return;
  // Looked up by name: a reference would make the library require glibc 2.35. A weak one in a
  // program stays null if the program needs nothing else from the dynamic linker.
  auto* const find = find_function<FindObject>("_dl_find_object");
  // In static programs it knows only the code segment, not where the tables are.
  LoadedModule own;
  if (find_by(find, reinterpret_cast<std::uintptr_t>(&learn_module_functions), own) &&
      own.contains(own.header))
    find_object.store(find, std::memory_order_relaxed);
  is_known.store(true, std::memory_order_relaxed);
}

bool can_find_modules() noexcept { return find_object.load(std::memory_order_relaxed) != nullptr; }

bool find_loaded_module(std::uintptr_t pc, LoadedModule& module) noexcept {
  return find_by(find_object.load(std::memory_order_relaxed), pc, module);
}

namespace {

struct Visit {
  ModuleVisitor* visitor;
  unsigned long long unloaded;
};

int visit_module(dl_phdr_info* info, std::size_t, void* argument) {
  auto& visit = *static_cast<Visit*>(argument);
  visit.unloaded = info->dlpi_subs;
  if (visit.visitor == nullptr) return 1;
  LoadedModule module;
  module.begin = UINTPTR_MAX;
  module.path = &info->dlpi_name;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) module.header = begin;
    if (part.p_type != PT_LOAD) continue;
    if (begin < module.begin) module.begin = begin;
    if (begin + part.p_memsz > module.end) module.end = begin + part.p_memsz;
  }
  module.begin = align_down(module.begin, least_page_bytes);
  if (module.begin < module.end) visit.visitor(module);
  return 0;
}

}  // namespace

unsigned long long visit_loaded_modules(ModuleVisitor* visitor) noexcept {
  Visit visit{visitor, 0};
  ::dl_iterate_phdr(visit_module, &visit);
  return visit.unloaded;
}

}  // namespace ts::os
