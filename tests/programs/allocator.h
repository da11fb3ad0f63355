// The allocator that a program of this folder is linked with: one of allocator_*.cpp. Programs over
// `malloc` run under any allocator by LD_PRELOAD; the others call the functions of the source
// reports by name. The choice is made at link time: each program is about one allocator.
#pragma once

#include <cstddef>
#include <optional>

namespace ts::test {

extern const char* const allocator_name;

// Call before the first thread starts.
void prepare_allocator();
// From now on the heap asks the system for at least this much at a time, if it grows by the break;
// false if that cannot be chosen.
bool set_growth(std::size_t bytes);
void* allocate(std::size_t bytes);
void release(void* block);

// The reports' statistics, while no thread works; only those that the allocator reports.
struct SegmentFigures {
  std::optional<std::size_t> segment_bytes;
  std::optional<std::size_t> free_bytes;
  std::optional<std::size_t> sbrk_calls;
};
SegmentFigures segment_figures();

// Keeps the C library's own malloc from moving the break while other threads move it for a heap
// that grows by sbrk, which is not thread-safe: libc gets its memory now, and keeps it.
void settle_libc_break();

}  // namespace ts::test
