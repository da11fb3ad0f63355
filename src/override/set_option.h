// ts_option_set() and ts_on_event(), for any heap. Refuses to say which heap follows which option.
#pragma once

#include <cerrno>

#include "os/options.h"

namespace ts {

// 0, or an error of change_option().
template <class Heap>
int set_option(Heap& heap, const char* name, const char* value) noexcept {
  const int error = change_option(name, value);
  if constexpr (requires { heap.follow_options(); }) heap.follow_options();
  return error;
}

// 0, or ENOTSUP.
template <class Heap>
int set_event_handler([[maybe_unused]] Heap& heap, [[maybe_unused]] auto* handler) noexcept {
  if constexpr (requires { heap.set_event_handler(handler); }) {
    heap.set_event_handler(handler);
    return 0;
  }
  return ENOTSUP;
}

}  // namespace ts
