// The drop-in library tsmalloc: the engine, and the names of libc over it.
#include "engine/engine.h"

#include "override/cxx_runtime.h"
#include "override/diagnostics.h"
#include "override/semantics.h"

namespace ts {
namespace {

constinit Semantics<engine::Engine> allocator;
[[gnu::constructor]] void begin_process(int, char**, char** environment) noexcept;

}  // namespace
}  // namespace ts

#include "override/c_symbols.inc"
// in this order
#include "override/begin_process.inc"
#include "override/operators.inc"

static_assert(TSMALLOC_MAX_SMALL_SIZE == ts::engine::max_small_bytes);
