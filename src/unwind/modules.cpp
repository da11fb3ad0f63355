// Records of modules in .bss, which cost no memory until the first module is met. Slots are taken
// in order and never freed, and a slot's state is stored last. So a thread, a signal handler or the
// child of a fork that interrupts this finds a slot complete or skips it.
#include "unwind/modules.h"

#include <sys/auxv.h>

#include <cstring>
#include <initializer_list>

#include "base/atomic.h"
#include "base/bits.h"
#include "os/readable_memory.h"
#include "unwind/module_file.h"
#include "unwind/row_cache.h"
#include "unwind/unwind.h"

namespace ts::os {
namespace {

enum State : std::uint32_t { incomplete, loaded, unloaded };

struct Slot {  // NOLINT(clang-analyzer-optin.performance.Padding): the state comes first
  Atomic<std::uint32_t> state;
  // Constant from the first state on. It has no path.
  LoadedModule module;
  bool has_table;           // and can be read
  std::uintptr_t build_id;  // its address in the first page, or 0
  std::uint64_t stamp;
  Module description;
};

constinit Slot slots[max_modules] = {};
constinit Atomic<std::uint32_t> taken{0};
// Guesses of a module's slot, by a hash of its address.
constexpr unsigned guesses_bits = 8;
constinit Atomic<std::uint32_t> guesses[1U << guesses_bits];

std::uint32_t slots_taken() noexcept {
  // relaxed: a slot's state shows whether it is complete
  const std::uint32_t count = taken.load(std::memory_order_relaxed);
  return count < max_modules ? count : max_modules;
}

Atomic<std::uint32_t>& guess_of(const LoadedModule& module) noexcept {
  return guesses[mix(module.begin ^ module.header) >> (64 - guesses_bits)];
}

std::uint64_t word_at(std::uintptr_t at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
  return word;
}

// The beginnings of a module's table and build id, which differ from those of any other module in
// its place. For a module loaded in the slot's place, the linker reports that the table is there,
// and that its memory begins with a segment.
std::uint64_t stamp_of(const Slot& slot) noexcept {
  std::uint64_t stamp = 0;
  if (slot.has_table) stamp = mix(word_at(slot.module.header) ^ word_at(slot.module.header + 8));
  if (slot.build_id != 0) stamp ^= word_at(slot.build_id);
  return stamp;
}

// The state of a slot if it belongs to that module, else incomplete.
State state_of(const Slot& slot, const LoadedModule& module) noexcept {
  // acquire: pairs with the release in publish(); the module was recorded before, and the rows of
  // another one dropped
  const std::uint32_t state = slot.state.load(std::memory_order_acquire);
  if (state == incomplete || slot.module.header != module.header ||
      slot.module.begin != module.begin || slot.module.end != module.end ||
      slot.stamp != stamp_of(slot)) {
    return incomplete;
  }
  return static_cast<State>(state);
}

// Marks the slots of other modules in a module's place as unloaded; true if there were any.
bool unload_others(const LoadedModule& module, const Slot* own) noexcept {
  bool replaces = false;
  for (std::uint32_t i = 0; i < slots_taken(); ++i) {
    Slot& other = slots[i];
    // acquire: pairs with the release in publish()
    if (&other == own || other.state.load(std::memory_order_acquire) != loaded) continue;
    if (other.module.begin >= module.end || module.begin >= other.module.end) continue;
    // relaxed: the slot has long been complete
    other.state.store(unloaded, std::memory_order_relaxed);
    replaces = true;
  }
  return replaces;
}

// Marks a slot as that of a loaded module.
void publish(Slot& slot) noexcept {
  const bool replaces = unload_others(slot.module, &slot);
  if (replaces || slot.state.load(std::memory_order_relaxed) == unloaded) row_cache.clear();
  // release: pairs with the loads of the state
  slot.state.store(loaded, std::memory_order_release);
}

// A module for which there is no slot. It cannot be distinguished from others without a slot that
// were in its place, so the rows are dropped whenever a walk reaches its code. The walk itself does
// so before it searches for a row there, so no order between threads is needed: rows that others
// add from then on are for code on their stacks, as this module is. Slots in its place are marked
// as unloaded, so that the return of their modules is noticed.
void pass_without_slot(const LoadedModule& module) noexcept {
  unload_others(module, nullptr);
  row_cache.clear();
}

// Two threads that meet a module at the same time may record it twice, which is harmless.
void record(const LoadedModule& module, std::uintptr_t pc) noexcept {
  if (slots_taken() == max_modules) return pass_without_slot(module);
  // relaxed: each thread gets a different slot
  const std::uint32_t number = taken.fetch_add(1, std::memory_order_relaxed);
  if (number >= max_modules) return pass_without_slot(module);
  Slot& slot = slots[number];
  ReadableMemory memory;
  const std::uintptr_t build_id = describe_module(module, pc, memory, slot.description);
  slot.module = module;
  slot.module.path = nullptr;
  slot.has_table = memory.holds(module.header, 2 * sizeof(std::uint64_t));
  const bool is_in_first_page =
      build_id - module.begin <= least_page_bytes - sizeof(std::uint64_t) &&
      slot.description.build_id_bytes >= sizeof(std::uint64_t);
  slot.build_id = is_in_first_page ? build_id : 0;
  slot.stamp = stamp_of(slot);
  publish(slot);
  guess_of(slot.module).store(number, std::memory_order_relaxed);
}

// Finds a module's slot, or creates one.
void meet(const LoadedModule& module, std::uintptr_t pc) noexcept {
  Atomic<std::uint32_t>& guess = guess_of(module);
  // relaxed: the slot itself is checked
  if (state_of(slots[guess.load(std::memory_order_relaxed)], module) == loaded) return;
  Slot* before = nullptr;
  for (std::uint32_t i = 0; i < slots_taken(); ++i) {
    const State state = state_of(slots[i], module);
    if (state == loaded) {
      guess.store(i, std::memory_order_relaxed);
      return;
    }
    if (state == unloaded) before = &slots[i];
  }
  if (before != nullptr) {
    publish(*before);
  } else {
    record(module, pc);
  }
}

bool find_in_slots(std::uintptr_t pc, LoadedModule& module) noexcept {
  for (std::uint32_t i = 0; i < slots_taken(); ++i) {
    // acquire: pairs with the release in publish()
    if (slots[i].state.load(std::memory_order_acquire) != loaded) continue;
    if (!slots[i].module.contains(pc)) continue;
    module = slots[i].module;
    return true;
  }
  return false;
}

// Modules that stay loaded as long as this code can run: its own, the program and the C library.
// The linker need not be asked about them.
struct LastingModules {
  Atomic<std::uint32_t> is_begun{0};  // a word, because riscv64 needs libatomic to exchange a byte
  Atomic<std::uint32_t> count{0};
  LoadedModule modules[3];  // constant once they are counted
};
constinit LastingModules lasting;

bool find_lasting(std::uintptr_t pc, LoadedModule& module) noexcept {
  // acquire: pairs with the release in learn_lasting_modules()
  const std::uint32_t count = lasting.count.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!lasting.modules[i].contains(pc)) continue;
    module = lasting.modules[i];
    return true;
  }
  return false;
}

void learn_lasting_modules() noexcept {
  // relaxed: the first thread learns them, and the others ask the linker meanwhile
  if (!can_find_modules() || lasting.is_begun.exchange(1, std::memory_order_relaxed) != 0) return;
  std::uint32_t count = 0;
  for (const std::uintptr_t pc :
       {reinterpret_cast<std::uintptr_t>(&module_at), ::getauxval(AT_ENTRY),
        reinterpret_cast<std::uintptr_t>(&::getauxval)}) {
    LoadedModule module;
    if (find_lasting(pc, module) || !find_loaded_module(pc, module)) continue;
    meet(module, pc);
    lasting.modules[count++] = module;
    // release: pairs with the acquire in find_lasting()
    lasting.count.store(count, std::memory_order_release);
  }
}

// Does not look up the names of the C library's functions, which learn_module_functions() does.
void look_at_modules() noexcept {
  static constinit Atomic<std::uint64_t> known_unloaded{0};
  const std::uint64_t unloaded_count = visit_loaded_modules(nullptr);
  // relaxed: rows of unloaded modules are harmless until others are in their place
  const bool has_unloaded =
      known_unloaded.exchange(unloaded_count, std::memory_order_relaxed) != unloaded_count;
  if (has_unloaded) row_cache.clear();
  learn_lasting_modules();
  if (can_find_modules()) return;
  for (std::uint32_t i = 0; has_unloaded && i < slots_taken(); ++i) {
    std::uint32_t expected = loaded;  // relaxed: publishes nothing new about the slot
    slots[i].state.compare_exchange_strong(expected, unloaded, std::memory_order_relaxed);
  }
  visit_loaded_modules([](const LoadedModule& module) { meet(module, 0); });
}

}  // namespace

constinit const ModuleTable module_table{slots, sizeof(Slot), offsetof(Slot, description)};

bool module_at(std::uintptr_t pc, LoadedModule& module) noexcept {
  if (find_lasting(pc, module)) return true;
  if (!can_find_modules()) return find_in_slots(pc, module);
  if (!find_loaded_module(pc, module)) return false;
  meet(module, pc);
  return true;
}

void refresh_modules() noexcept {
  learn_module_functions();
  look_at_modules();
}

void refresh_modules_within_malloc() noexcept {
  if (!can_find_modules()) look_at_modules();
}

const Module* module_met(unsigned number) noexcept {
  if (number >= max_modules) return nullptr;
  const Slot& slot = slots[number];
  // acquire: pairs with the release in publish()
  if (slot.state.load(std::memory_order_acquire) == incomplete) return nullptr;
  return &slot.description;
}

}  // namespace ts::os
