// The operators of libtsmalloc.a and tsmalloc.o: a second view of the one engine of the process.
#include "engine/engine.h"
#include "override/cxx_runtime.h"
#include "override/semantics.h"

namespace ts {
namespace {

constinit Semantics<engine::Engine> allocator;

extern "C" {
void linked_malloc() __asm__("malloc");
void linked_get_new_handler() __asm__("_ZSt15get_new_handlerv");
void linked_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv");
}

// What a program that takes this member out of the archive must get with it: malloc, with its fork
// handlers; and from a static libstdc++ what cxx_runtime.cpp refers to weakly, which alone takes
// nothing out of an archive. (In tsmalloc.o, which C programs link too, these are weak again.)
[[gnu::used]] void (*const needed[])() = {linked_malloc, linked_get_new_handler,
                                          linked_throw_bad_alloc};

}  // namespace
}  // namespace ts

#include "override/operators.inc"
