// The engine under names of its own, for programs and libraries that have another malloc as well
// (libtsmalloc-prefixed.a).
#include "engine/engine.h"
#include "libc/semantics.h"

namespace ts {
namespace {

constinit Semantics<engine::Engine> allocator;

}  // namespace
}  // namespace ts

#include "libc/prefixed.inc"
