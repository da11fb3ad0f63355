// The engine for programs that link it (libtsmalloc.a, tsmalloc.o): libc's names over it. The
// operators are a separate archive member (linked_operators.cpp) that C programs do not need.
#include <unistd.h>

#include "engine/engine.h"
#include "libc/diagnostics.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::Engine> allocator;

// Runs before all constructors, those of shared libraries included (begin_process.inc). Only
// executables may have such a section, and only they should link these objects: the malloc of a
// shared library would be used by just a part of its process.
void begin_process(int, char**, char** environment) noexcept;
constinit bool has_begun = false;

void begin_first(int, char**, char** environment) noexcept {
  has_begun = true;
  begin_process(0, nullptr, environment);
}
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const before_constructors)(int, char**,
                                                                     char**) = begin_first;

// musl does not run .preinit_array and passes constructors no arguments, but its environment is set
// up by then.
[[gnu::constructor(101)]] void begin_with_constructors() noexcept {
  if (!has_begun) begin_first(0, nullptr, ::environ);
}

}  // namespace
}  // namespace ts

#include "libc/c_symbols.inc"
// in this order
#include "libc/begin_process.inc"
