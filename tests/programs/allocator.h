// The allocator that a program of this folder is linked with: one of allocator_*.cpp. Programs over
// `malloc` run under any allocator by LD_PRELOAD; the others call the functions of the source
// reports by name. It refuses to be chosen at run time: a program is about one allocator.
#pragma once

#include <cstddef>
#include <optional>

namespace ts::test {

extern const char* const allocator_name;

// Before the first thread starts.
void prepare_allocator();
void* allocate(std::size_t bytes);
void release(void* block);

// The reports' measures, when no thread is at work.
struct SegmentFigures {
  std::size_t segment_bytes;
  std::size_t free_bytes;
  std::optional<std::size_t> sbrk_calls;  // if the allocator tells
};
SegmentFigures segment_figures();

// Keeps the C library's own malloc from moving the break while other threads move it for a heap
// that grows by sbrk, which is not thread-safe: it gets its memory now, and keeps it.
void settle_libc_break();

}  // namespace ts::test
