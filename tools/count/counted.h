// One counted call, passed on to the next definition: the whole life of every entry point of this
// library.
//
// Why it exists: so that each of the thirty entry points is one line that says only what differs.
// What it refuses to do: look at results. A failed request was still a call.
#pragma once

#include <cstdint>
#include <type_traits>

#include "next.h"
#include "record.h"

namespace ts {

// A size that no allocator can serve is counted as a call that asks for nothing.
inline std::size_t countable(std::size_t bytes) { return bytes > PTRDIFF_MAX ? 0 : bytes; }

template <class Result, class... Parameters>
Result counted(Counter kind, std::size_t bytes, Next<Result(Parameters...)>& next,
               std::type_identity_t<Parameters>... arguments) {
  CountedCall call{kind, countable(bytes)};
  if constexpr (std::is_void_v<Result>) {
    next.get()(arguments...);
    call.finish();
  } else {
    const Result result = next.get()(arguments...);
    call.finish();
    return result;
  }
}

}  // namespace ts
