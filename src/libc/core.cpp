// The core without features as a drop-in library, for tests and to measure what they cost
// (dev/price).
#include "core/core_heap.h"
#include "libc/cxx_runtime.h"
#include "libc/diagnostics.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::CoreHeap> allocator;
[[gnu::constructor]] void begin_process(int, char**, char** environment) noexcept;

}  // namespace
}  // namespace ts

#include "libc/c_symbols.inc"
// in this order
#include "libc/begin_process.inc"
#include "libc/operators.inc"
