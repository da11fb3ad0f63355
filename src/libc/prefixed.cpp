// The engine under names of its own, for programs and libraries that also have another malloc
// (libtsmalloc-prefixed.a).
#include "engine/engine.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::Engine> allocator;

}  // namespace
}  // namespace ts

#include "libc/prefixed.inc"
