// The engine for programs that link it in (libtsmalloc.a, tsmalloc.o): the names of libc over it.
// The operators are a member of their own (linked_operators.cpp), which C programs do not need.
#include <unistd.h>

#include "engine/engine.h"
#include "libc/diagnostics.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::Engine> allocator;

// Before all constructors, those of shared libraries included (begin_process.inc). Only executables
// may have such a section. Only they should link these objects: a shared library's malloc would
// serve a part of its process.
void begin_process(int, char**, char** environment) noexcept;
constinit bool has_begun = false;

void begin_first(int, char**, char** environment) noexcept {
  has_begun = true;
  begin_process(0, nullptr, environment);
}
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const before_constructors)(int, char**,
                                                                     char**) = begin_first;

// musl runs no .preinit_array and passes constructors no arguments, but its environment is there by
// then.
[[gnu::constructor(101)]] void begin_with_constructors() noexcept {
  if (!has_begun) begin_first(0, nullptr, ::environ);
}

}  // namespace
}  // namespace ts

#include "libc/c_symbols.inc"
// in this order
#include "libc/begin_process.inc"
