// Resets the operating system double, and what sources keep of it for the whole process, to the
// state of a new process.
#pragma once

#include "classic/leaving_memory.h"
#include "classic/source.h"
#include "unit/fake_os.h"

namespace ts::testing {

inline void clean_system(std::size_t break_offset = 0) {
  // Even with everything refused, a source can still grow into what destroyed heaps left behind, so
  // use that up first.
  fake_os::refuse_if([](const fake_os::Request&) { return true; });
  classic::send_leaving();
  classic::Source drain{
      {.kind = classic::SourceKind::sbrk, .growth_bytes = 0, .buffer = nullptr, .buffer_bytes = 0}};
  while (drain.grow(classic::min_block_bytes, classic::min_block_bytes, nullptr).chunk != nullptr) {
  }
  fake_os::reset(break_offset);
}

}  // namespace ts::testing
