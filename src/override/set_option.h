// ts_option_set(), for any heap. Refuses to say which heap follows which option.
#pragma once

#include "os/options.h"

namespace ts {

// 0, or an error of change_option().
template <class Heap>
int set_option(Heap& heap, const char* name, const char* value) noexcept {
  const int error = change_option(name, value);
  if constexpr (requires { heap.follow_options(); }) heap.follow_options();
  return error;
}

}  // namespace ts
