// Lets a program request a snapshot of the heap: the lab's instrumented libraries define the
// function and write down the heap's layout; under any other allocator it does nothing. Do not call
// it while another thread may be inside malloc or free.
#pragma once

extern "C" __attribute__((weak)) void ts_heap_snapshot(const char* label);

namespace ts::test {

// `label`: what is special about the moment, as the title of a picture.
inline void heap_snapshot(const char* label) {
  if (&ts_heap_snapshot != nullptr) ts_heap_snapshot(label);
}

}  // namespace ts::test
