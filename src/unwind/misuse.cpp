// Reports misuse by the program (declared in base/check.h), and decides whether it continues.
#include <atomic>
#include <cerrno>

#include "base/check.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"
#include "unwind/stack_lines.h"

namespace ts {
namespace {

// By Misuse. Character arrays, because pointers would need relocations at each start.
constexpr char messages[misuse_kinds][112] = {
    "block is already free",
    "pointer was not allocated by tsmalloc, perhaps by another allocator",
    "invalid pointer: misaligned, or to the stack, a variable or unmapped memory",
    "no block in use begins at this address",
    "free list corrupted: a block was freed twice, or written to after it was freed",
    "size does not match the block",
};

// By FoundBy.
constexpr char where_found[][28] = {
    "free(",
    "realloc(",
    "malloc_usable_size(",
    "sized free(",
    "detected by a later call (",
    "detected at exit (",
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
  line.text(aborts ? "; aborting; set TSMALLOC_ON_MISUSE=continue to keep running"
                   : "; continuing, and not reporting further ones (TSMALLOC_ON_MISUSE)");
  line.text(is_late || kind == Misuse::double_free
                ? "; to find the cause, compile with -fsanitize=address or run under valgrind"
                : "; backtrace:");
  line.write();
  if (!is_late && is_first) {  // taking a call stack may itself run into misuse
    os::CallStack stack;
    os::take_call_stack(stack);
    os::write_call_stack(stack);
  }
  if (aborts) os::abort_process();
}

}  // namespace ts
