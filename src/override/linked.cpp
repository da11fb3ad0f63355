// The engine for programs that link it in (libtsmalloc.a, tsmalloc.o): the names of libc over it.
// The operators are a member of their own (linked_operators.cpp), which C programs do not need.
#include "engine/engine.h"
#include "override/diagnostics.h"
#include "override/semantics.h"

namespace ts {
namespace {

constinit Semantics<engine::Engine> allocator;

// Before all constructors, those of shared libraries included (fork_handlers.inc). Only executables
// may have such a section, and only they should have these objects: a shared library that brought a
// malloc along would serve a part of its process.
void register_fork_handlers() noexcept;
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const before_constructors)() = register_fork_handlers;

}  // namespace
}  // namespace ts

#include "override/c_symbols.inc"
#include "override/fork_handlers.inc"
