// How many mappings the process has, and may have (vm.max_map_count). At that limit requests are
// refused while memory is free, for no reason that a program can see. Other refusals need no
// explanation.
#include "os/refusals.h"

#include <atomic>
#include <bit>
#include <cstdint>

#include "os/error_line.h"
#include "os/os.h"
#include "os/quiet_file.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

// All relaxed: these counts only decide when to check.
constinit std::atomic<std::uint32_t> refusals{0};
constinit std::atomic<std::uint32_t> looked_at{0};  // refusals at the last check; max: reported

// This close to the limit, some requests are refused and others are not.
constexpr std::size_t near_limit = 16;

// Passes the contents of a file to `visit(text, bytes)` in pieces. Uses system calls, since libc's
// functions are cancellation points.
template <class Visit>
bool read_file(const char* path, Visit visit) noexcept {
  const long file = open_quietly(path);
  if (file < 0) return false;
  char text[1024];
  long bytes = 0;
  while ((bytes = call(SYS_read, file, text, sizeof text)) > 0) visit(text, bytes);
  call(SYS_close, file);
  return bytes == 0;
}

// How many mappings this process has, and may have; both 0 if unknown.
struct Mappings {
  std::size_t count = 0;
  std::size_t limit = 0;
};
// Reads the thread's own folder, since /proc/self is empty once the main thread has ended.
Mappings mappings() noexcept {
  Mappings found;
  const bool is_told = read_file("/proc/sys/vm/max_map_count",
                                 [&](const char* text, long bytes) {
                                   for (long i = 0; i < bytes && text[i] >= '0'; ++i)
                                     found.limit =
                                         found.limit * 10 + static_cast<unsigned>(text[i] - '0');
                                 }) &&
                       read_file("/proc/thread-self/maps", [&](const char* text, long bytes) {
                         for (long i = 0; i < bytes; ++i) found.count += text[i] == '\n' ? 1 : 0;
                       });
  return is_told ? found : Mappings{};
}

}  // namespace

void note_refusal() noexcept { refusals.fetch_add(1, std::memory_order_relaxed); }

void explain_refusal() noexcept {
  // A program that survives refusals must not pay for each one: checks at the first, and then
  // whenever their number has doubled.
  const std::uint32_t now = refusals.load(std::memory_order_relaxed);
  std::uint32_t before = looked_at.load(std::memory_order_relaxed);
  if (before == UINT32_MAX || std::bit_width(now) <= std::bit_width(before)) return;
  if (!looked_at.compare_exchange_strong(before, now, std::memory_order_relaxed)) return;
  const Mappings found = mappings();
  if (found.limit != 0 && found.count + near_limit >= found.limit) {
    looked_at.store(UINT32_MAX, std::memory_order_relaxed);
    ErrorLine line{"out of memory: this process has "};
    line.number(found.count);
    line.text(" mappings, and the system allows ");
    line.number(found.limit);
    line.text("; raise vm.max_map_count, or map less");
    line.write();
  }
}

bool has_half_of_mappings() noexcept {
  const Mappings found = mappings();
  return found.limit != 0 && found.count <= found.limit / 2;
}

}  // namespace ts::os
