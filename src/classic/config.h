// The configuration of a classic heap, the same for every strategy. Defaults are those of the
// drop-in libraries.
#pragma once

#include "classic/source.h"

namespace ts::classic {

// The segment of a drop-in library grows by at least this much: one system call and a few page
// faults for hundreds of requests.
inline constexpr std::size_t sbrk_growth_bytes = std::size_t{128} << 10;
// Mappings do not grow in place, and each is a chunk of its own, so they are larger. Untouched
// pages cost no memory.
inline constexpr std::size_t mmap_growth_bytes = std::size_t{1} << 20;

// A free block of at least this size at the end of the segment is returned to the system, except
// for a remainder that the heap keeps. (glibc's dynamic threshold ends at the same 32 MiB.) Free
// mappings are returned while this much memory is free in total, so a block that realloc grows from
// mapping to mapping leaves none of them behind.
inline constexpr std::size_t default_trim_threshold_bytes = std::size_t{32} << 20;
inline constexpr std::size_t never_trim = SIZE_MAX;

struct HeapConfig {
  SourceConfig source;
  std::size_t trim_threshold_bytes = default_trim_threshold_bytes;
  // nolock only: 0, or the fixed share of the heap that each thread has (lecture D's "solution 1").
  std::size_t thread_share_bytes = 0;
};

inline constexpr HeapConfig by_sbrk{
    .source = {.kind = SourceKind::sbrk, .growth_bytes = sbrk_growth_bytes}};
inline constexpr HeapConfig by_mmap{
    .source = {.kind = SourceKind::mmap, .growth_bytes = mmap_growth_bytes}};

}  // namespace ts::classic
