// Call stacks for the heap profiler, taken in the middle of malloc: by the tables of .eh_frame,
// else by frame pointers. Allocates nothing, takes no lock, reads no memory that may fault, and
// keeps errno. Knows no function names: a stack is a list of addresses, and modules give their
// files.
#pragma once

#include <cstdint>

namespace ts::os {

inline constexpr unsigned max_stack_frames = 64;

// Innermost first: addresses after the calls or, in code that a signal interrupted, of the next
// instruction.
struct UnwoundStack {
  std::uint32_t depth = 0;
  // Whether the walk reached the outermost frame. Otherwise the stack is deeper than there is room
  // for, or a frame has neither a table nor a frame pointer.
  bool is_whole = false;
  std::uintptr_t frames[max_stack_frames];
};

// The stack of the calling thread. Omits the innermost frames that belong to a drop-in library
// itself and, if `caller` is a return address in the stack, all frames below it. In code that is
// linked into a program, only `caller` separates the allocator from the program: an entry of malloc
// passes __builtin_return_address(0). Works in any thread, in signal handlers, in the child of a
// vfork, before constructors and after destructors. Before the first refresh_modules() it has no
// tables.
void unwind(UnwoundStack& stack, const void* caller = nullptr) noexcept;

// Learns which modules are loaded, and notices those that were unloaded, where the C library has no
// way to ask without a lock: before glibc 2.35, in static programs, with musl. Takes the dynamic
// linker's lock, so the caller must not be within malloc or hold a lock.
void refresh_modules() noexcept;
// The same within malloc. Where the C library has no other way, takes the lock of dl_iterate_phdr,
// under which no constructor or destructor of a module is called.
void refresh_modules_within_malloc() noexcept;

// A part of a file whose code was met in a stack. It remains after the module was unloaded.
struct Module {
  std::uintptr_t begin;  // the segment of code
  std::uintptr_t end;
  std::uint64_t file_offset;
  std::uint32_t build_id_bytes;  // 0: it has none
  std::uint8_t build_id[32];
  char path[256];  // as the dynamic linker knows it: "" is the program itself
};

inline constexpr unsigned max_modules = 1024;

// Where the records are, for reading from another process: `max_modules` records, this many bytes
// apart. Each begins with a word of state, 0 for none (yet).
struct ModuleTable {
  const void* records;
  std::uint64_t record_bytes;
  std::uint64_t module_at;  // offset from the state
};
extern const ModuleTable module_table;

// The modules met so far, by numbers below max_modules; null where there is none (yet).
const Module* module_met(unsigned number) noexcept;

}  // namespace ts::os
