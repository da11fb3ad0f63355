// The hardened heap under the names of prefixed.cpp, for the crate (packaging/rust).
#include "libc/semantics.h"
#include "secure/secure.h"

namespace ts {
namespace {

constinit Semantics<secure::Secure> allocator;

}  // namespace
}  // namespace ts

#include "libc/prefixed.inc"
