// How a program says "look at the heap now": the counted libraries of the lab define the function
// and write down what their heap looks like; under any other allocator nothing happens. It refuses
// to be called while another thread may be inside malloc or free, where there is no answer.
#pragma once

extern "C" __attribute__((weak)) void ts_heap_snapshot(const char* label);

namespace ts::test {

// `label`: what is special about the moment, for the title of a picture.
inline void heap_snapshot(const char* label) {
  if (&ts_heap_snapshot != nullptr) ts_heap_snapshot(label);
}

}  // namespace ts::test
