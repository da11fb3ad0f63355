// The hardened heap under the names of prefixed.cpp, for the crate (packaging/rust).
#include "libc/libc_rules.h"
#include "secure/secure.h"

namespace ts {
namespace {

constinit LibcRules<secure::Secure> allocator;

}  // namespace
}  // namespace ts

#include "libc/prefixed.inc"
