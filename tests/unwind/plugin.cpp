// A library that is loaded and unloaded. There are two, of the same length, with frames of
// different sizes at the same places, so that the rows of one are wrong for the other.
#include "unwind/compare.h"

namespace {

template <unsigned bytes>
[[gnu::noinline]] int call(void (*function)(), int levels) {
  volatile char frame[bytes];
  frame[0] = 1;
  if (levels == 0) {
    function();
  } else {
    call<bytes>(function, levels - 1);
  }
  return frame[0];
}

}  // namespace

extern "C" int call_from_plugin(void (*function)(), int levels) {
  return call<PLUGIN_FRAME>(function, levels);
}
