// The sums that are reported, and what each finished call adds to them.
//
// Why it exists: what "bytes" means differs from call to call, and is decided in one place. What it
// refuses to do: know about tracing.
#pragma once

#include <cstdint>

#include "common/json_line.h"
#include "common/system.h"
#include "syscalls/filter.h"

namespace ts {

struct FinishedCall {
  Call call;
  std::uint64_t arguments[3];
  std::int64_t result;  // an error is a negative number
  Nanoseconds duration_ns;
};

class CallCounts {
 public:
  // `program_break` is that of the process, or 0 as long as it is not known; kept up to date.
  void add(const FinishedCall& finished, std::uint64_t& program_break);

  void write(JsonLine& line) const;

 private:
  struct Counts {
    std::int64_t calls = 0;
    std::int64_t errors = 0;
    std::int64_t bytes = 0;  // of the calls that did not fail
  };

  void add_bytes(const FinishedCall& finished, std::uint64_t& program_break);

  Counts counts_[call_count] = {};
  Nanoseconds futex_wait_ns_ = 0;
  std::int64_t break_lowered_bytes_ = 0;
  std::int64_t dontneed_bytes_ = 0;
  std::int64_t free_bytes_ = 0;
};

}  // namespace ts
