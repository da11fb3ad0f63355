// See memory.h.
#include "replay/memory.h"

#include <dlfcn.h>

#include <cstdlib>

#include "common/system.h"
#include "replay/pages.h"

namespace ts::replay {
namespace {

constexpr std::int64_t kib = 1024;

}  // namespace

Memory memory_now() {
  Memory memory;
  std::int64_t anonymous = 0;
  PieceReader lines{"/proc/self/smaps_rollup"};
  while (const char* const line = lines.next('\n')) {
    if (const std::int64_t found = number_after(line, "Anonymous:"); found >= 0) anonymous = found;
    if (const std::int64_t found = number_after(line, "LazyFree:"); found >= 0) {
      memory.lazy_free = found * kib;
    }
  }
  memory.resident = anonymous * kib - static_cast<std::int64_t>(own_bytes());
  return memory;
}

std::int64_t peak_rss_bytes() { return bytes_after("/proc/self/status", "VmHWM:"); }

const char* name_of_allocator() {
  Dl_info info = {};
  const bool is_found = dladdr(reinterpret_cast<void*>(&std::malloc), &info) != 0;
  return base_name(is_found ? info.dli_fname : "");
}

}  // namespace ts::replay
