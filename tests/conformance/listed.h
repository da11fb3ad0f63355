// Functions that list themselves with a description: the linker makes one array of all entries in a
// section, in source order, from __start_SECTION to __stop_SECTION.
#pragma once

// Begins a function without parameters, whose body follows, and adds a row {function, further
// members}.
#define LISTED_FUNCTION(Row, section, Result, ...) \
  LISTED_AS(Row, section, Result, LISTED_JOIN(function_of_line_, __LINE__), __VA_ARGS__)

#define LISTED_AS(Row, section, Result, function, ...)                                          \
  static Result function(void);                                                                 \
  static const Row LISTED_JOIN(row_of_, function) LISTED_IN(section) = {function, __VA_ARGS__}; \
  static Result function(void)
// (The alignment is for compilers that would align larger structures more strictly.)
#ifdef __clang__
#define LISTED_IN(name) __attribute__((section(#name), used, aligned(sizeof(void*))))
#else
#define LISTED_IN(name) __attribute__((section(#name), used, aligned(sizeof(void*)), no_reorder))
#endif
#define LISTED_JOIN(a, b) LISTED_JOIN_TOKENS(a, b)
#define LISTED_JOIN_TOKENS(a, b) a##b
