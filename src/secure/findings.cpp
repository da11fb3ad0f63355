#include "secure/findings.h"

#include <atomic>
#include <cerrno>
#include <iterator>

#include "os/bad_access.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::secure {
namespace {

// Kinds that only this library has, since the normal one has no canaries (see base/check.h for the
// others).
constexpr Finding kinds[] = {Finding::overflow, Finding::underflow, Finding::write_after_free};
// Indexed like `kinds`, as is everything here.
constexpr char damages[][112] = {
    "): buffer overflow: bytes past the end of this block changed; blocks of ",
    "): buffer underflow, or overflow of the block before this one; blocks of ",
    "): write to free memory: use after free, or a long overflow; blocks of ",
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
constinit std::atomic<std::uint32_t> told[std::size(kinds)];

// Reports damaged contents: once per kind, or every time if the report aborts.
void report_damage(std::size_t kind, FoundBy found_by, const void* where,
                   std::size_t block_bytes) noexcept {
  const OnMisuse choice = current_options.on_misuse;
  const bool aborts = choice == OnMisuse::by_kind || choice == OnMisuse::abort;
  if (choice == OnMisuse::silent) return;
  if (told[kind].exchange(1, std::memory_order_relaxed) != 0 && !aborts) return;
  const int kept = errno;
  os::ErrorLine line;
  line.text(where_found[static_cast<std::size_t>(found_by)]);
  line.address(where);
  line.text(damages[kind]);
  line.number(block_bytes);
  line.text(aborts ? " bytes; aborting; set TSMALLOC_ON_MISUSE=continue to keep running"
                   : " bytes; continuing, and not reporting further ones (TSMALLOC_ON_MISUSE)");
  line.text("; to find the cause, compile with -fsanitize=address or run under valgrind");
  line.write();
  if (aborts) os::abort_process();
  errno = kept;
}

Misuse kind_of(Finding finding) noexcept {
  switch (finding) {
    case Finding::not_in_use:
      return Misuse::double_free;
    case Finding::no_beginning:
      return Misuse::no_beginning;
    case Finding::wrong_size:
      return Misuse::wrong_size;
    default:
      return Misuse::foreign_pointer;
  }
}

}  // namespace

void report(Finding finding, FoundBy found_by, const void* where,
            std::size_t block_bytes) noexcept {
  if (finding == Finding::sound) return;
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    if (kinds[kind] == finding) return report_damage(kind, found_by, where, block_bytes);
  }
  // Here every kind aborts, while the normal library only warns about some. A choice that another
  // thread makes meanwhile stays.
  auto by_kind = static_cast<std::uint64_t>(OnMisuse::by_kind);
  current_options.on_misuse.bits.compare_exchange_strong(
      by_kind, static_cast<std::uint64_t>(OnMisuse::abort), std::memory_order_relaxed);
  report_misuse(kind_of(finding), found_by, where, block_bytes);
}

}  // namespace ts::secure
