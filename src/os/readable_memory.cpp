// Asking the kernel whether a page is readable.
#include "os/readable_memory.h"

#include <cerrno>

#include "os/system_call.h"

namespace ts::os {
namespace {

// Uses a call that reads eight bytes and is then refused because the requested kind of signal-mask
// change does not exist. Seccomp filters allow it, since every program makes this call; it has no
// effect and needs no descriptor. Any other answer, for example from a filter, means no.
bool can_be_read(std::uintptr_t at) noexcept {
  constexpr long no_such_change = -1;
  const long answer = call(SYS_rt_sigprocmask, no_such_change, at & ~std::uintptr_t{7}, nullptr,
                           sizeof(std::uint64_t));
  return answer == -EINVAL;
}

}  // namespace

bool ReadableMemory::look(std::uintptr_t at, std::size_t bytes) noexcept {
  if (at + bytes < at) return false;
  const std::uintptr_t last = (at + bytes - 1) & ~mask;
  for (std::uintptr_t asked = at & ~mask; asked <= last; asked += page) {
    if (asked - begin_ < bytes_) continue;
    if (asked < page || !can_be_read(asked)) return false;
    if (bytes_ != 0 && asked == begin_ + bytes_) {
      bytes_ += page;
    } else if (bytes_ != 0 && asked + page == begin_) {
      begin_ = asked;
      bytes_ += page;
    } else {
      begin_ = asked;
      bytes_ = page;
    }
  }
  return at - begin_ < bytes_ && bytes <= bytes_ - (at - begin_);
}

}  // namespace ts::os
