// Events for tests.
#pragma once

#include <cstdint>

#include "trace/format.h"
#include "trace/slots.h"

namespace ts::trace::testing {

inline Event event_of(Kind kind, std::uint32_t thread, Slot slot = {}, std::uint64_t size = 0) {
  Event event;
  event.kind = kind;
  event.thread = thread;
  event.slot = slot.number;
  event.generation = slot.generation;
  event.size = size;
  return event;
}

}  // namespace ts::trace::testing
