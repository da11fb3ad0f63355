// Access to the C++ runtime for operators that run out of memory, without linking to it: a C
// program that preloads an allocator must not load libstdc++.
#pragma once

#include <cstddef>
#include <new>

namespace ts {

// Calls the handler set by std::set_new_handler, which may free memory, throw, or not return. False
// if there is none.
[[gnu::cold]] bool call_new_handler();

// Aborts with a message if no loaded C++ runtime can throw.
[[noreturn, gnu::cold]] void throw_bad_alloc();

// Calls a form of ::operator new and returns null if it throws. The caller passes it by its dynamic
// name, so that the call reaches a program's replacement.
void* new_or_null(void* (*form)(std::size_t), std::size_t bytes) noexcept;
void* new_or_null(void* (*form)(std::size_t, std::align_val_t), std::size_t bytes,
                  std::align_val_t alignment) noexcept;

}  // namespace ts
