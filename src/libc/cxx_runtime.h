// The C++ runtime for operators that are short of memory, without linking to one: a C program that
// preloads an allocator must not load libstdc++.
#pragma once

#include <cstddef>
#include <new>

namespace ts {

// Calls the handler of std::set_new_handler, which may make memory available, throw, or not return.
// False if there is none.
[[gnu::cold]] bool call_new_handler();

// Ends the process with a message if no C++ runtime is loaded that could throw.
[[noreturn, gnu::cold]] void throw_bad_alloc();

// The result of a form of ::operator new, or null if it throws. The caller names it by its dynamic
// name, so that the call reaches a program's replacement.
void* new_or_null(void* (*form)(std::size_t), std::size_t bytes) noexcept;
void* new_or_null(void* (*form)(std::size_t, std::align_val_t), std::size_t bytes,
                  std::align_val_t alignment) noexcept;

}  // namespace ts
