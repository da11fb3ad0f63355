// Full memory, inside a heap that exists once per process, with its own check after each failure
// and a final walk over all blocks. (full_memory.cpp tests the shared libraries.)
//
//    full_memory_engine [--long], full_memory_secure [--long]
//
// CMake chooses the heap: TS_TRIED_HEAP is its type, and TS_TRIED_HEADER declares it.
#include TS_TRIED_HEADER

#include "libc/libc_rules.h"
#include "reliability/faults/drill.h"

namespace ts::faults {
namespace {

constinit LibcRules<TS_TRIED_HEAP> allocator;

std::size_t bytes_in_use() {
  std::size_t bytes = 0;
  allocator.heap().walk(
      [](const BlockView& block, void* sum) {
        if (block.state == BlockState::used) *static_cast<std::size_t*>(sum) += block.bytes;
        return true;
      },
      &bytes);
  return bytes;
}

constexpr Target target{
    .name = TS_TRIED_HEADER,
    .keeps_errno = true,
    .allocate = [](std::size_t bytes) { return allocator.malloc(bytes); },
    .allocate_zeroed = [](std::size_t bytes) { return allocator.calloc(1, bytes); },
    .allocate_aligned = [](std::size_t a,
                           std::size_t bytes) { return allocator.memalign(a, bytes); },
    .resize = [](void* block, std::size_t bytes) { return allocator.realloc(block, bytes); },
    .release = [](void* block) { allocator.free(block); },
    .trim = [] { allocator.heap().trim(0); },
    .bytes_in_use = bytes_in_use,
    .is_sound = [] { return allocator.heap().is_valid(); },
};

constexpr World worlds[] = {
    {"the system as it is", false, false, 0},
    {"64 MB at once", false, false, 64 << 20},
    {"no address of one's choice and 512 MB at once", false, true, 512 << 20},
};

}  // namespace
}  // namespace ts::faults

int main(int argc, char** argv) {
  using namespace ts::faults;
  const std::size_t calls = is_long(argc, argv) ? SIZE_MAX : 10;
  return run_drill(target, worlds, sizeof worlds / sizeof *worlds, {true, calls});
}
