// One counted call, passed on to the next definition: the whole life of every entry point of this
// library.
//
// Why it exists: so that each of the thirty entry points is one line that says only what differs.
// What it refuses to do: touch arguments or results. A refused request counts as a call, but not
// its bytes.
#pragma once

#include <type_traits>

#include "interpose/next.h"
#include "record.h"

namespace ts {

inline bool is_granted(const void* block) { return block != nullptr; }
inline bool is_granted(int error_number) { return error_number == 0; }  // posix_memalign

template <class Result, class... Parameters>
Result counted(Counter kind, std::size_t bytes, Next<Result(Parameters...)>& next,
               std::type_identity_t<Parameters>... arguments) {
  CountedCall call{kind};
  if constexpr (std::is_void_v<Result>) {
    next.get()(arguments...);
    call.finish(0);
  } else {
    const Result result = next.get()(arguments...);
    call.finish(is_granted(result) ? bytes : 0);
    return result;
  }
}

}  // namespace ts
