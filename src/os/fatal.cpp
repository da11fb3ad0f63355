// The one way to give up (declared in base/check.h): a line on standard error made without stdio,
// then SIGABRT.
#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"

namespace ts {

void fatal(const char* what, const void* where) noexcept {
  constexpr char prefix[] = "tsmalloc: ";
  char line[256];
  std::size_t length = 0;
  const auto append = [&](const char* text, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes && length < sizeof line - 1; ++i) line[length++] = text[i];
  };
  append(prefix, sizeof prefix - 1);
  append(what, std::strlen(what));
  if (where != nullptr) {
    append(": 0x", 4);
    const std::uintptr_t address = address_of(where);
    bool leading = true;
    for (int shift = 60; shift >= 0; shift -= 4) {
      const auto digit = static_cast<unsigned>((address >> shift) & 0xf);
      leading = leading && digit == 0 && shift != 0;
      if (!leading) append(&"0123456789abcdef"[digit], 1);
    }
  }
  line[length++] = '\n';
  os::write_error(line, length);
  os::abort_process();
}

}  // namespace ts
