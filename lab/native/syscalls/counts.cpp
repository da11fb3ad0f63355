// What a finished call adds; see counts.h.
#include "syscalls/counts.h"

#include <linux/futex.h>
#include <sys/mman.h>

#include <cerrno>

namespace ts {
namespace {

// The kernel's own codes for "interrupted, to be repeated" are among them, as strace counts them.
bool is_error(std::int64_t result) { return result < 0 && result >= -4095; }

// One that does not find what it was told to find has not slept.
bool is_wait(const FinishedCall& finished) {
  if (finished.call != Call::futex || finished.result == -EAGAIN) return false;
  const auto operation = static_cast<int>(finished.arguments[1]) & FUTEX_CMD_MASK;
  return operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI ||
         operation == FUTEX_WAIT_REQUEUE_PI;
}

}  // namespace

void CallCounts::add(const FinishedCall& finished, std::uint64_t& program_break) {
  Counts& counts = counts_[static_cast<std::size_t>(finished.call)];
  ++counts.calls;
  if (is_wait(finished)) futex_wait_ns_ += finished.duration_ns;
  if (is_error(finished.result)) {
    ++counts.errors;
  } else {
    add_bytes(finished, program_break);
  }
}

void CallCounts::add_bytes(const FinishedCall& finished, std::uint64_t& program_break) {
  std::int64_t& bytes = counts_[static_cast<std::size_t>(finished.call)].bytes;
  const auto second = static_cast<std::int64_t>(finished.arguments[1]);
  switch (finished.call) {
    case Call::mmap:
    case Call::munmap:
      bytes += second;  // the length
      break;
    case Call::mremap:
      bytes += static_cast<std::int64_t>(finished.arguments[2]);  // the new length
      break;
    case Call::madvise: {
      const auto advice = static_cast<int>(finished.arguments[2]);
      if (advice == MADV_DONTNEED) dontneed_bytes_ += second;
      if (advice == MADV_FREE) free_bytes_ += second;
      if (advice == MADV_DONTNEED || advice == MADV_FREE) bytes += second;
      break;
    }
    case Call::brk: {
      // It answers with the break as it is then, whether it has moved or not.
      const auto now = static_cast<std::uint64_t>(finished.result);
      if (program_break != 0 && now >= program_break) {
        bytes += static_cast<std::int64_t>(now - program_break);
      } else if (program_break != 0) {
        break_lowered_bytes_ += static_cast<std::int64_t>(program_break - now);
      }
      program_break = now;
      break;
    }
    case Call::futex:
    case Call::sched_yield:
    case Call::count:
      break;
  }
}

void CallCounts::write(JsonLine& line) const {
  line.begin_object("calls");
  for (std::size_t i = 0; i < call_count; ++i) {
    const auto call = static_cast<Call>(i);
    line.begin_object(name_of(call));
    line.add("calls", counts_[i].calls);
    line.add("errors", counts_[i].errors);
    if (call == Call::futex) {
      line.add("wait_ns", futex_wait_ns_);
    } else if (call != Call::sched_yield) {
      line.add("bytes", counts_[i].bytes);
    }
    if (call == Call::brk) line.add("lowered_bytes", break_lowered_bytes_);
    if (call == Call::madvise) {
      line.add("dontneed_bytes", dontneed_bytes_);
      line.add("free_bytes", free_bytes_);
    }
    line.end_object();
  }
  line.end_object();
}

}  // namespace ts
