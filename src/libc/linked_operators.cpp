// The operators of libtsmalloc.a and tsmalloc.o. This allocator is another view of the process's
// one engine.
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

// A program that pulls this member out of the archive must get malloc and its fork handlers with
// it. It also needs functions of a static libstdc++: weak references, as in cxx_runtime.cpp, pull
// nothing out of an archive. (In tsmalloc.o, which C programs link too, these are made weak again.)
[[gnu::used]] void (*const needed[])() = {linked_malloc, linked_get_new_handler,
                                          linked_throw_bad_alloc};

}  // namespace
}  // namespace ts

#include "libc/operators.inc"
