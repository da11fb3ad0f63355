// What an address may belong to (os.h, may_be_allocated). Cold: called only for pointers that the
// allocator did not return.
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/bits.h"
#include "os/cancellation.h"
#include "os/loaded_modules.h"
#include "os/os.h"
#include "os/system_call.h"

#ifndef TS_FIRST_GLIBC
// Null in a static program that does not use them.
extern "C" {
// NOLINTBEGIN(readability-redundant-declaration): the attribute is what is new
[[gnu::weak]] decltype(pthread_attr_getstack) pthread_attr_getstack;
[[gnu::weak]] decltype(pthread_getattr_np) pthread_getattr_np;
// NOLINTEND(readability-redundant-declaration)
}
#endif

namespace ts::os {
namespace {

// No allocator aligns to less.
constexpr std::size_t least_alignment = alignof(void*);

// An allocator may have zero-byte blocks in inaccessible memory, but hardly in unmapped memory.
// Asks msync(2), which has no effect here: unlike mincore(2), it is allowed by the filters of
// sandboxed services. If it is refused, the memory may be mapped.
bool is_mapped(const void* p) noexcept {
  return call(SYS_msync, align_down(address_of(p), page_bytes()), 1, MS_ASYNC) != -ENOMEM;
}

// Most thread-local data of modules is this close to one of them, errno.
constexpr std::uintptr_t near = std::uintptr_t{64} << 10;

// Whether the address is in the code or data of the program or a library, including the calling
// thread's thread-local data.
bool is_of_module(const void* p) noexcept {
  std::uintptr_t address = address_of(p);
  // Settles most addresses without a lock.
  LoadedModule around;
  const bool is_near_own = address - address_of(&errno) + near < 2 * near;
  if (can_find_modules() && !is_near_own && !find_loaded_module(address, around)) return false;
  const auto contains = [](dl_phdr_info* module, std::size_t, void* looked_for) {
    const std::uintptr_t wanted = *static_cast<const std::uintptr_t*>(looked_for);
    for (unsigned i = 0; i < module->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = module->dlpi_phdr[i];
      const std::uintptr_t begin = part.p_type == PT_TLS ? address_of(module->dlpi_tls_data)
                                                         : module->dlpi_addr + part.p_vaddr;
      const bool is_there = part.p_type == PT_LOAD || (part.p_type == PT_TLS && begin != 0);
      if (is_there && wanted - begin < part.p_memsz) return 1;
    }
    return 0;
  };
  return ::dl_iterate_phdr(contains, &address) != 0;
}

#ifdef TS_FIRST_GLIBC
// Looked up by name: references would make the library require glibc 2.34.
constinit decltype(::pthread_attr_getstack)* stack_of = nullptr;
constinit decltype(::pthread_getattr_np)* attributes_of = nullptr;
#else
constinit auto* const stack_of = &::pthread_attr_getstack;
constinit auto* const attributes_of = &::pthread_getattr_np;
#endif

// Whether the address is on the main thread's stack, or among the arguments and environment above
// it, which end with the name of the program. The kernel keeps 128 MiB free below that stack.
bool is_of_first_stack(const void* p) noexcept {
  constexpr std::uintptr_t most = std::uintptr_t{8} << 20;
  const std::uintptr_t last = ::getauxval(AT_EXECFN);
  return last != 0 && align_up(last, page_bytes()) - address_of(p) <= most;
}

// Whether the address is on the stack that the calling thread is using, if that is the thread's
// own. The C library functions that report it allocate; addresses below the caller's frame, where
// heaps are, do not need them.
bool is_of_own_stack(const void* p) noexcept {
  if (address_of(p) < address_of(__builtin_frame_address(0))) return false;
  if (attributes_of == nullptr || stack_of == nullptr) return false;
  pthread_attr_t attributes;
  if (attributes_of(::pthread_self(), &attributes) != 0) return false;
  void* begin = nullptr;
  std::size_t bytes = 0;
  const bool is_known = stack_of(&attributes, &begin, &bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  const auto is_inside = [&](const void* q) { return address_of(q) - address_of(begin) < bytes; };
  // A coroutine's stack may be anywhere.
  return is_known && is_inside(__builtin_frame_address(0)) && is_inside(p);
}

}  // namespace

void find_stack_functions() noexcept {
#ifdef TS_FIRST_GLIBC
  stack_of = find_function<decltype(::pthread_attr_getstack)>("pthread_attr_getstack");
  attributes_of = find_function<decltype(::pthread_getattr_np)>("pthread_getattr_np");
#endif
  // A program without an interpreter is static, and its C library would allocate.
  if (::getauxval(AT_BASE) != 0) learn_module_functions();
}

bool may_be_allocated(const void* p) noexcept {
  if (address_of(p) % least_alignment != 0 || address_of(p) < page_bytes()) return false;
  const int saved_errno = errno;
  const CancellationDisabled completes_it;
  const bool may_be =
      is_mapped(p) && !is_of_first_stack(p) && !is_of_module(p) && !is_of_own_stack(p);
  errno = saved_errno;
  return may_be;
}

}  // namespace ts::os
