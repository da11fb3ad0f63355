// Full memory, in the engine itself, with the page heap's own check after each failure and a walk
// over all blocks in the end. (The shared library is full_memory.cpp's.)
//
//   full_memory_engine [--long]
#include <cstdio>
#include <cstring>

#include "engine/engine.h"
#include "override/semantics.h"
#include "reliability/faults/drill.h"

namespace ts::faults {
namespace {

constinit Semantics<engine::Engine> allocator;

void* allocate(std::size_t bytes) { return allocator.malloc(bytes); }
void* allocate_zeroed(std::size_t bytes) { return allocator.calloc(1, bytes); }
void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  return allocator.memalign(alignment, bytes);
}
void* resize(void* block, std::size_t bytes) { return allocator.realloc(block, bytes); }
void release(void* block) { allocator.free(block); }
void trim() { allocator.heap().trim(0); }
bool is_sound() { return allocator.heap().is_valid(); }

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

constexpr Target target{.name = "the engine",
                        .keeps_errno = true,
                        .open = nullptr,
                        .allocate = allocate,
                        .allocate_zeroed = allocate_zeroed,
                        .allocate_aligned = allocate_aligned,
                        .resize = resize,
                        .release = release,
                        .trim = trim,
                        .bytes_in_use = bytes_in_use,
                        .is_sound = is_sound,
                        .try_more = nullptr};

constexpr World worlds[] = {
    {"the system as it is", false, false, 0},
    {"64 MB at once", false, false, 64 << 20},
    {"no address of one's choice and 512 MB at once", false, true, 512 << 20},
};

}  // namespace
}  // namespace ts::faults

int main(int argc, char** argv) {
  using namespace ts::faults;
  const bool is_long = argc > 1 && std::strcmp(argv[1], "--long") == 0;
  if (argc > 1 && !is_long) {
    std::fputs("usage: full_memory_engine [--long]\n", stderr);
    return 2;
  }
  return run_drill(target, worlds, sizeof worlds / sizeof *worlds, {is_long ? SIZE_MAX : 30});
}
