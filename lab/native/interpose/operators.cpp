// The C++ operators new and delete, all forms, as a shim defines them; see functions.cpp.
//
// Why it exists: an allocator that defines operator new itself is reached without malloc. A library
// that stands before malloc alone would say of a C++ program that it makes no calls. What it
// refuses to do: decide what new means. Throwing, the new handler and the meaning of sized forms
// are those of the next definition; only a program without any C++ runtime that we can find gets
// malloc and free in their place.
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "interpose/pass_on.h"

namespace ts {
namespace {

using Align = std::align_val_t;
using Nothrow = const std::nothrow_t&;
using std::size_t;

// The stand-ins call our own malloc and free; like any nested call.
void* allocate_nothrow(size_t size, Nothrow) {
  return malloc(std::max<size_t>(size, 1));
}  // new gives a block for 0 bytes too
void* allocate_aligned_nothrow(size_t size, Align alignment, Nothrow) {
  return memalign(static_cast<size_t>(alignment), std::max<size_t>(size, 1));
}

// operator new must not return null, and without a C++ runtime nothing can throw bad_alloc.
void* or_abort(void* pointer) {
  if (pointer != nullptr) return pointer;
  constexpr char message[] =
      "tsmalloc: operator new is out of memory, and no C++ runtime was found to throw "
      "bad_alloc\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof message - 1);
  abort();
}

void* allocate(size_t size) { return or_abort(allocate_nothrow(size, std::nothrow_t{})); }
void* allocate_aligned(size_t size, Align alignment) {
  return or_abort(allocate_aligned_nothrow(size, alignment, std::nothrow_t{}));
}

template <class... Ignored>
void release(void* pointer, Ignored...) {
  free(pointer);
}

// The names that the Itanium C++ ABI gives them where size_t is unsigned long.
static_assert(std::is_same_v<size_t, unsigned long>);
constinit Next<void*(size_t)> next_new{"_Znwm", allocate};
constinit Next<void*(size_t)> next_new_array{"_Znam", allocate};
constinit Next<void*(size_t, Nothrow)> next_new_nothrow{"_ZnwmRKSt9nothrow_t", allocate_nothrow};
constinit Next<void*(size_t, Nothrow)> next_new_array_nothrow{"_ZnamRKSt9nothrow_t",
                                                              allocate_nothrow};
constinit Next<void*(size_t, Align)> next_new_aligned{"_ZnwmSt11align_val_t", allocate_aligned};
constinit Next<void*(size_t, Align)> next_new_array_aligned{"_ZnamSt11align_val_t",
                                                            allocate_aligned};
constinit Next<void*(size_t, Align, Nothrow)> next_new_aligned_nothrow{
    "_ZnwmSt11align_val_tRKSt9nothrow_t", allocate_aligned_nothrow};
constinit Next<void*(size_t, Align, Nothrow)> next_new_array_aligned_nothrow{
    "_ZnamSt11align_val_tRKSt9nothrow_t", allocate_aligned_nothrow};
constinit Next<void(void*)> next_delete{"_ZdlPv", release};
constinit Next<void(void*)> next_delete_array{"_ZdaPv", release};
constinit Next<void(void*, size_t)> next_delete_sized{"_ZdlPvm", release};
constinit Next<void(void*, size_t)> next_delete_array_sized{"_ZdaPvm", release};
constinit Next<void(void*, Nothrow)> next_delete_nothrow{"_ZdlPvRKSt9nothrow_t", release<Nothrow>};
constinit Next<void(void*, Nothrow)> next_delete_array_nothrow{"_ZdaPvRKSt9nothrow_t",
                                                               release<Nothrow>};
constinit Next<void(void*, Align)> next_delete_aligned{"_ZdlPvSt11align_val_t", release};
constinit Next<void(void*, Align)> next_delete_array_aligned{"_ZdaPvSt11align_val_t", release};
constinit Next<void(void*, size_t, Align)> next_delete_sized_aligned{"_ZdlPvmSt11align_val_t",
                                                                     release};
constinit Next<void(void*, size_t, Align)> next_delete_array_sized_aligned{"_ZdaPvmSt11align_val_t",
                                                                           release};
constinit Next<void(void*, Align, Nothrow)> next_delete_aligned_nothrow{
    "_ZdlPvSt11align_val_tRKSt9nothrow_t", release<Align, Nothrow>};
constinit Next<void(void*, Align, Nothrow)> next_delete_array_aligned_nothrow{
    "_ZdaPvSt11align_val_tRKSt9nothrow_t", release<Align, Nothrow>};

std::size_t alignment_of() { return 0; }
std::size_t alignment_of(Nothrow) { return 0; }
std::size_t alignment_of(Align alignment) { return static_cast<std::size_t>(alignment); }
std::size_t alignment_of(Align alignment, Nothrow) { return static_cast<std::size_t>(alignment); }

template <class... Parameters>
void* pass_on_new(Next<void*(size_t, Parameters...)>& next, size_t size,
                  std::type_identity_t<Parameters>... rest) {
  return pass_on(Entry::operator_new, nullptr, {size, alignment_of(rest...)}, next, size, rest...);
}

template <class... Parameters>
void pass_on_delete(Next<void(void*, Parameters...)>& next, void* pointer,
                    std::type_identity_t<Parameters>... rest) {
  pass_on_release(Entry::operator_delete, next, pointer, rest...);
}

}  // namespace
}  // namespace ts

using std::size_t;
using ts::Align;
using ts::Nothrow;
using ts::pass_on_delete;
using ts::pass_on_new;

void* operator new(size_t n) { return pass_on_new(ts::next_new, n); }
void* operator new[](size_t n) { return pass_on_new(ts::next_new_array, n); }
void* operator new(size_t n, Nothrow t) noexcept { return pass_on_new(ts::next_new_nothrow, n, t); }
void* operator new[](size_t n, Nothrow t) noexcept {
  return pass_on_new(ts::next_new_array_nothrow, n, t);
}
void* operator new(size_t n, Align a) { return pass_on_new(ts::next_new_aligned, n, a); }
void* operator new[](size_t n, Align a) { return pass_on_new(ts::next_new_array_aligned, n, a); }
void* operator new(size_t n, Align a, Nothrow t) noexcept {
  return pass_on_new(ts::next_new_aligned_nothrow, n, a, t);
}
void* operator new[](size_t n, Align a, Nothrow t) noexcept {
  return pass_on_new(ts::next_new_array_aligned_nothrow, n, a, t);
}

void operator delete(void* p) noexcept { pass_on_delete(ts::next_delete, p); }
void operator delete[](void* p) noexcept { pass_on_delete(ts::next_delete_array, p); }
void operator delete(void* p, size_t n) noexcept { pass_on_delete(ts::next_delete_sized, p, n); }
void operator delete[](void* p, size_t n) noexcept {
  pass_on_delete(ts::next_delete_array_sized, p, n);
}
void operator delete(void* p, Nothrow t) noexcept { pass_on_delete(ts::next_delete_nothrow, p, t); }
void operator delete[](void* p, Nothrow t) noexcept {
  pass_on_delete(ts::next_delete_array_nothrow, p, t);
}
void operator delete(void* p, Align a) noexcept { pass_on_delete(ts::next_delete_aligned, p, a); }
void operator delete[](void* p, Align a) noexcept {
  pass_on_delete(ts::next_delete_array_aligned, p, a);
}
void operator delete(void* p, size_t n, Align a) noexcept {
  pass_on_delete(ts::next_delete_sized_aligned, p, n, a);
}
void operator delete[](void* p, size_t n, Align a) noexcept {
  pass_on_delete(ts::next_delete_array_sized_aligned, p, n, a);
}
void operator delete(void* p, Align a, Nothrow t) noexcept {
  pass_on_delete(ts::next_delete_aligned_nothrow, p, a, t);
}
void operator delete[](void* p, Align a, Nothrow t) noexcept {
  pass_on_delete(ts::next_delete_array_aligned_nothrow, p, a, t);
}
