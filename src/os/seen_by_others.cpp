// Memory that goes back through the C library's names: caches of pinned memory (of RDMA, MPI, GPUs)
// replace these functions, to forget what they know of addresses whose pages change. What stands
// there may allocate and take locks, so the callers have no lock and no heap in the middle of a
// change.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/bits.h"
#include "os/mapping.h"
#include "os/os.h"
#include "os/refusals.h"
#include "os/system_call.h"

// glibc's place of the end of the data segment, which sbrk(3) returns to other users.
extern "C" [[gnu::weak]] void* __curbrk;

namespace ts::os {

bool unmap(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return ::munmap(begin, bytes) == 0;
}

bool discard(void* begin, std::size_t bytes) noexcept {
  const ErrnoKept kept;
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
}

// sbrk(3) by hand, whose place of the end other users of the break have to find moved. (Another
// library's sbrk would be called under the lock that keeps our own users apart.) musl has no such
// place, and no sbrk() that moves the end.
void* grow_break(std::size_t bytes) noexcept {
  if (&__curbrk == nullptr || bytes > static_cast<std::size_t>(PTRDIFF_MAX)) return nullptr;
  if (__curbrk == nullptr) __curbrk = reinterpret_cast<void*>(call(SYS_brk, 0));
  void* const end = __curbrk;
  if (bytes == 0) return end;
  const std::uintptr_t wanted = address_of(end) + bytes;
  if (wanted < bytes || static_cast<std::uintptr_t>(call(SYS_brk, wanted)) != wanted) {
    note_refusal();
    return nullptr;
  }
  __curbrk = reinterpret_cast<void*>(wanted);
  return end;
}

void* current_break() noexcept { return grow_break(0); }

bool shrink_break(const void* expected_end, std::size_t bytes) noexcept {
  if (current_break() != expected_end || expected_end == nullptr) return false;
  const std::uintptr_t wanted = address_of(expected_end) - bytes;
  if (wanted > address_of(expected_end)) return false;
  if (static_cast<std::uintptr_t>(call(SYS_brk, wanted)) != wanted) return false;
  __curbrk = reinterpret_cast<void*>(wanted);
  return true;
}

}  // namespace ts::os
