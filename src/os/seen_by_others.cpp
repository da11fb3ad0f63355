// Returning memory through the C library's names: caches of pinned memory (RDMA, MPI, GPUs)
// interpose these functions to drop what they know about addresses whose pages change. The
// interposed functions may allocate and take locks, so callers must hold no lock and have no heap
// in the middle of a change.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/bits.h"
#include "os/mapping.h"
#include "os/os.h"
#include "os/refusals.h"
#include "os/system_call.h"

// glibc's copy of the program break, which sbrk(3) returns to other users.
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

// sbrk(3) by hand, updating the copy that other users of the break read. (An interposed sbrk would
// be called under the lock that serialises our own users.) musl has no such copy, and its sbrk()
// cannot move the break.
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
