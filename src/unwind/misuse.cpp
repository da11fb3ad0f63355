// Reports of misuse by the program (declared in base/check.h), and whether it goes on.
#include <atomic>
#include <cerrno>

#include "base/check.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"
#include "unwind/stack_lines.h"

namespace ts {
namespace {

// By Misuse. Arrays of characters: pointers to them would be relocations at each start.
constexpr char messages[misuse_kinds][112] = {
    "this block is free already",
    "this memory is not of this malloc, perhaps of another allocator",
    "no malloc gave this out: it is misaligned, of the stack, of a variable, or of no memory",
    "no block that is in use begins here",
    "a list of free blocks is damaged: one of them was freed twice, or written to after its free",
    "the size that is named is not that of the block",
};

// By FoundBy.
constexpr char where_found[][28] = {
    "free(",
    "realloc(",
    "malloc_usable_size(",
    "a sized free(",
    "found in a later call (",
    "found at exit (",
};

// Relaxed: the first thread reports, and nothing else depends on it.
constinit std::atomic<std::uint32_t> told[misuse_kinds];

bool goes_on(Misuse kind, OnMisuse choice) noexcept {
  switch (choice) {
    case OnMisuse::abort:
      return false;
    case OnMisuse::go_on:
    case OnMisuse::silent:
      return true;
    case OnMisuse::by_kind:
      break;
  }
  // With two allocators in one process, which preloading makes likely, blocks of the other come
  // here; leaving them alone is harmless. Every other kind is the program's own mistake.
  return kind == Misuse::foreign_pointer;
}

}  // namespace

void report_misuse(Misuse kind, FoundBy found_by, const void* where,
                   std::size_t block_bytes) noexcept {
  const auto kind_index = static_cast<std::size_t>(kind);
  const OnMisuse choice = current_options.on_misuse;
  const bool aborts = !goes_on(kind, choice);
  if (choice == OnMisuse::silent) return;
  const bool is_first = told[kind_index].exchange(1, std::memory_order_relaxed) == 0;
  if (!is_first && !aborts) return;
  const bool is_late = found_by == FoundBy::a_later_call || found_by == FoundBy::exit;
  os::ErrorLine line;
  line.text(where_found[static_cast<std::size_t>(found_by)]);
  if (where != nullptr) line.address(where);
  line.text("): ");
  const bool is_use = found_by == FoundBy::realloc || found_by == FoundBy::usable_size;
  if (kind == Misuse::double_free && !is_use) line.text("double free: ");
  line.text(messages[kind_index]);
  if (block_bytes != 0) {
    line.text("; blocks of ");
    line.number(block_bytes);
    line.text(" bytes");
  }
  line.text(aborts ? "; aborting, TSMALLOC_ON_MISUSE=continue goes on"
                   : "; going on, further ones are not reported (TSMALLOC_ON_MISUSE)");
  line.text(is_late || kind == Misuse::double_free
                ? "; compile with -fsanitize=address, or run under valgrind, to see where it began"
                : "; the calls that led here:");
  line.write();
  if (!is_late && is_first) {  // taking a call stack may itself run into misuse
    os::CallStack stack;
    os::take_call_stack(stack);
    os::write_call_stack(stack);
  }
  if (aborts) os::abort_process();
}

}  // namespace ts
