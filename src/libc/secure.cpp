// The drop-in library tsmalloc-secure: libc's names over the hardened heap.
#include "secure/secure.h"

#include "libc/cxx_runtime.h"
#include "libc/diagnostics.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

struct Allocator : LibcRules<secure::Secure> {
  static void check_deleted_size(const void* block, std::size_t bytes,
                                 std::size_t alignment) noexcept;
};

constinit Allocator allocator;
[[gnu::constructor]] void begin_process(int, char**, char** environment) noexcept;
// If the C library refuses this, the process exits without a final check.
[[gnu::constructor]] void await_exit() noexcept {
  os::call_at_exit([](void*) { secure::Secure::end_process(); });
}

}  // namespace
}  // namespace ts

#include "libc/c_symbols.inc"
// in this order
#include "libc/begin_process.inc"
#include "libc/operators.inc"

// The operators of this library, even if the program replaces them.
extern "C" {
[[gnu::alias("_Znwm"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void* ts_own_new(std::size_t);
[[gnu::alias("_Znam"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void* ts_own_new_array(std::size_t);
[[gnu::alias("_ZnwmSt11align_val_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void* ts_own_aligned_new(std::size_t, std::align_val_t);
[[gnu::alias("_ZnamSt11align_val_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void* ts_own_aligned_new_array(std::size_t, std::align_val_t);
[[gnu::alias("_ZnwmRKSt9nothrow_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void*
ts_own_nothrow_new(std::size_t, const std::nothrow_t&) noexcept;
[[gnu::alias("_ZnamRKSt9nothrow_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void*
ts_own_nothrow_new_array(std::size_t, const std::nothrow_t&) noexcept;
[[gnu::alias("_ZnwmSt11align_val_tRKSt9nothrow_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void*
ts_own_aligned_nothrow_new(std::size_t, std::align_val_t, const std::nothrow_t&) noexcept;
[[gnu::alias("_ZnamSt11align_val_tRKSt9nothrow_t"), gnu::visibility("hidden"), gnu::malloc,
  gnu::alloc_size(1)]] void*
ts_own_aligned_nothrow_new_array(std::size_t, std::align_val_t, const std::nothrow_t&) noexcept;
}

namespace ts {
namespace {

using New = void* (*)(std::size_t);
using AlignedNew = void* (*)(std::size_t, std::align_val_t);
using NothrowNew = void* (*)(std::size_t, const std::nothrow_t&) noexcept;
using AlignedNothrowNew = void* (*)(std::size_t, std::align_val_t, const std::nothrow_t&) noexcept;

// The same address, but opaque to the compiler: the two names do not denote one function in every
// process.
template <class Function>
std::uintptr_t place_of(Function* function) noexcept {
  return unrelated(reinterpret_cast<std::uintptr_t>(function));
}

// Whether the dynamic name leads to the library's own function.
template <class Form>
bool is_same(Form named, Form own) noexcept {
  return place_of(named) == place_of(own);
}

bool news_are_ours() noexcept {
  return is_same<New>(&::operator new, &ts_own_new) &&
         is_same<New>(&::operator new[], &ts_own_new_array) &&
         is_same<AlignedNew>(&::operator new, &ts_own_aligned_new) &&
         is_same<AlignedNew>(&::operator new[], &ts_own_aligned_new_array) &&
         is_same<NothrowNew>(&::operator new, &ts_own_nothrow_new) &&
         is_same<NothrowNew>(&::operator new[], &ts_own_nothrow_new_array) &&
         is_same<AlignedNothrowNew>(&::operator new, &ts_own_aligned_nothrow_new) &&
         is_same<AlignedNothrowNew>(&::operator new[], &ts_own_aligned_nothrow_new_array);
}

// A program that replaces a `new`, but not the sized `delete`, may ask for more than its caller,
// for a header, say. Then only a size larger than the block is certainly wrong.
void Allocator::check_deleted_size(const void* block, std::size_t bytes,
                                   std::size_t alignment) noexcept {
  if (block == nullptr) return;
  if (news_are_ours()) {
    check_size(block, bytes, alignment);
  } else {
    secure::Secure::check_most(block, bytes);
  }
}

}  // namespace
}  // namespace ts
