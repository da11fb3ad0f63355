// The operators of libtsmalloc.a and tsmalloc.o: a second view of the one engine of the process.
#include "engine/engine.h"
#include "libc/cxx_runtime.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::Engine> allocator;

extern "C" {
void linked_malloc() __asm__("malloc");
void linked_get_new_handler() __asm__("_ZSt15get_new_handlerv");
void linked_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv");
}

// A program that takes this member out of the archive must get malloc with it, and its fork
// handlers. It also needs functions of a static libstdc++: weak references, as in cxx_runtime.cpp,
// take nothing out of an archive. (In tsmalloc.o, which C programs link too, these are weak again.)
[[gnu::used]] void (*const needed[])() = {linked_malloc, linked_get_new_handler,
                                          linked_throw_bad_alloc};

}  // namespace
}  // namespace ts

#include "libc/operators.inc"
