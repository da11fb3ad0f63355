// The call stack of the calling thread. Compiled a second time for drop-in libraries, whose module
// contains only their own code.
#include "unwind/call_stack_walk.h"
#include "unwind/unwind.h"

namespace ts::os {
namespace {

#ifdef TS_DROP_IN
constexpr bool is_drop_in = true;
#else
constexpr bool is_drop_in = false;
#endif

// The most frames of the library itself below malloc's, with room to spare.
constexpr unsigned most_own_frames = 64;

}  // namespace

void unwind(UnwoundStack& stack, const void* caller) noexcept {
  Registers registers{};
  read_registers(registers);
  StackWalk walk{registers};
  stack.depth = 0;
  stack.is_whole = false;
  LoadedModule own;
  bool skips_own = is_drop_in;
  for (unsigned steps = 0; steps < max_stack_frames + most_own_frames; ++steps) {
    if (!walk.step()) {
      stack.is_whole = walk.is_at_outermost();
      return;
    }
    if (steps == 0) own = walk.module();
    if (skips_own && own.contains(walk.pc())) continue;
    skips_own = false;
    if (walk.pc() == reinterpret_cast<std::uintptr_t>(caller)) {
      stack.depth = 0;
      caller = nullptr;
    }
    if (stack.depth == max_stack_frames) return;
    stack.frames[stack.depth++] = walk.pc();
  }
}

}  // namespace ts::os
