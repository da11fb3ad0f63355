// The drop-in library tsmalloc: libc's names over the engine.
#include "engine/engine.h"

#include "libc/cxx_runtime.h"
#include "libc/diagnostics.h"
#include "libc/libc_rules.h"

namespace ts {
namespace {

constinit LibcRules<engine::Engine> allocator;
[[gnu::constructor]] void begin_process(int, char**, char** environment) noexcept;

}  // namespace
}  // namespace ts

#include "libc/c_symbols.inc"
// in this order
#include "libc/begin_process.inc"
#include "libc/operators.inc"

static_assert(TSMALLOC_MAX_SMALL_SIZE == ts::engine::max_small_bytes);
