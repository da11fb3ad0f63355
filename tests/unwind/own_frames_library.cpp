// A library that contains the unwinder, like a drop-in library.
#include "unwind/unwind.h"

extern "C" [[gnu::visibility("default")]] void take_in_library(ts::os::UnwoundStack* stack,
                                                               int levels) {
  if (levels == 0) {
    ts::os::refresh_modules();
    ts::os::unwind(*stack);
  } else {
    take_in_library(stack, levels - 1);
  }
  asm volatile("" : : : "memory");
}

extern "C" [[gnu::visibility("default")]] void call_in_library(void (*function)()) {
  function();
  asm volatile("" : : : "memory");
}
