// Operators new and delete, all forms, as a shim defines them.
//
// An allocator that defines operator new itself is reached without malloc, so a shim before malloc
// only would miss every call of a C++ program. Throwing, the new handler and the meaning of sized
// forms are up to the next definition; a program without a C++ run-time library gets malloc and
// free instead.
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

constexpr size_t alignment_of(Align alignment) { return static_cast<size_t>(alignment); }
constexpr size_t alignment_of(Nothrow) { return 0; }

// The replacement for a missing run-time library calls our own malloc and free, like any nested
// call.
template <class... Rest>
void* allocate(size_t size, Rest... rest) {
  size = std::max<size_t>(size, 1);  // new returns a block for 0 bytes too
  void* block = nullptr;
  if constexpr ((std::is_same_v<Rest, Align> || ...)) {
    block = memalign((0 + ... + alignment_of(rest)), size);
  } else {
    block = malloc(size);
  }
  if (block != nullptr || (std::is_same_v<Rest, Nothrow> || ...)) return block;
  constexpr char message[] =
      "tsmalloc: operator new is out of memory, and no C++ runtime was found to throw "
      "bad_alloc\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof message - 1);
  abort();
}

template <class... Rest>
void release(void* pointer, Rest...) {
  free(pointer);
}

// --- their names, by the Itanium C++ ABI ---------------------------------------------------------

template <class Parameter>
constexpr const char* mangled = nullptr;
template <>
constexpr const char* mangled<void*> = "Pv";
template <>
constexpr const char* mangled<unsigned long> = "m";
template <>
constexpr const char* mangled<Align> = "St11align_val_t";
template <>
constexpr const char* mangled<Nothrow> = "RKSt9nothrow_t";

struct Symbol {
  consteval Symbol(std::initializer_list<const char*> parts) {
    char* end = text;
    for (const char* part : parts) {
      while (*part != '\0') *end++ = *part++;
    }
  }

  char text[48] = {};
};

enum class Form { single, array };

// --- passing on ----------------------------------------------------------------------------------

template <Form form, class... Rest>
void* pass_on_new(size_t size, Rest... rest) {
  static constexpr Symbol symbol{form == Form::single ? "_Znw" : "_Zna", mangled<size_t>,
                                 mangled<Rest>...};
  static constinit Next<void*(size_t, Rest...)> next{symbol.text, allocate<Rest...>};
  const Request request{size, (0 + ... + alignment_of(rest))};
  return pass_on(Entry::operator_new, nullptr, request, next, size, rest...);
}

template <Form form, class... Rest>
void pass_on_delete(void* pointer, Rest... rest) {
  static constexpr Symbol symbol{form == Form::single ? "_Zdl" : "_Zda", mangled<void*>,
                                 mangled<Rest>...};
  static constinit Next<void(void*, Rest...)> next{symbol.text, release<Rest...>};
  pass_on_release(Entry::operator_delete, next, pointer, rest...);
}

}  // namespace
}  // namespace ts

using std::size_t;
using ts::Align;
using ts::Nothrow;
using ts::pass_on_delete;
using ts::pass_on_new;
using enum ts::Form;

void* operator new(size_t n) { return pass_on_new<single>(n); }
void* operator new[](size_t n) { return pass_on_new<array>(n); }
void* operator new(size_t n, Nothrow t) noexcept { return pass_on_new<single, Nothrow>(n, t); }
void* operator new[](size_t n, Nothrow t) noexcept { return pass_on_new<array, Nothrow>(n, t); }
void* operator new(size_t n, Align a) { return pass_on_new<single>(n, a); }
void* operator new[](size_t n, Align a) { return pass_on_new<array>(n, a); }
void* operator new(size_t n, Align a, Nothrow t) noexcept {
  return pass_on_new<single, Align, Nothrow>(n, a, t);
}
void* operator new[](size_t n, Align a, Nothrow t) noexcept {
  return pass_on_new<array, Align, Nothrow>(n, a, t);
}

void operator delete(void* p) noexcept { pass_on_delete<single>(p); }
void operator delete[](void* p) noexcept { pass_on_delete<array>(p); }
void operator delete(void* p, size_t n) noexcept { pass_on_delete<single>(p, n); }
void operator delete[](void* p, size_t n) noexcept { pass_on_delete<array>(p, n); }
void operator delete(void* p, Nothrow t) noexcept { pass_on_delete<single, Nothrow>(p, t); }
void operator delete[](void* p, Nothrow t) noexcept { pass_on_delete<array, Nothrow>(p, t); }
void operator delete(void* p, Align a) noexcept { pass_on_delete<single>(p, a); }
void operator delete[](void* p, Align a) noexcept { pass_on_delete<array>(p, a); }
void operator delete(void* p, size_t n, Align a) noexcept { pass_on_delete<single>(p, n, a); }
void operator delete[](void* p, size_t n, Align a) noexcept { pass_on_delete<array>(p, n, a); }
void operator delete(void* p, Align a, Nothrow t) noexcept {
  pass_on_delete<single, Align, Nothrow>(p, a, t);
}
void operator delete[](void* p, Align a, Nothrow t) noexcept {
  pass_on_delete<array, Align, Nothrow>(p, a, t);
}
