// A drop-in library's own frames are left out, but only innermost ones: several of them are between
// the program and the unwinder, and one calls back into the program.
#include <cstdio>
#include <cstdlib>

#include "unwind/unwind.h"

extern "C" {
// In own_frames_library.cpp.
void take_in_library(ts::os::UnwoundStack* stack, int levels);
void call_in_library(void (*function)());
}

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

std::uint32_t depth_of_main = 0;
ts::os::UnwoundStack stack;

[[gnu::noinline]] void take() {
  take_in_library(&stack, 5);
  asm volatile("" : : : "memory");
}

void called_back() {
  take();
  require(stack.is_whole, "the stack through the library is whole");
  require(stack.depth == depth_of_main + 3, "frames of the library further out stay");
}

}  // namespace

int main() {
  for (int levels = 0; levels < 10; ++levels) {
    take_in_library(&stack, levels);
    require(stack.is_whole, "the stack is whole");
    require(levels == 0 || stack.depth == depth_of_main, "no frame of the library is in it");
    depth_of_main = stack.depth;
    const auto here = reinterpret_cast<std::uintptr_t>(&main);
    require(stack.frames[0] - here < 512, "it begins with main");
  }
  call_in_library(called_back);
  std::puts("own frames are left out");
  return 0;
}
