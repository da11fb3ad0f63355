// Heap configurations for stress runs: those of the drop-in libraries, and small and odd ones in
// which growing, returning memory and running out happen all the time.
#pragma once

#include <array>
#include <cstdint>

#include "classic/config.h"
#include "programs/support/mapped_array.h"

namespace ts::stress {

struct Setting {
  const char* name;
  classic::HeapConfig config;
  std::size_t max_bytes = 256 << 10;  // of a request
  bool may_refuse = false;            // the heap must make do with the memory it has
  bool nolock_only = false;
};

inline constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
inline constexpr std::size_t share_bytes = std::size_t{128} << 10;

constexpr classic::HeapConfig config_of(classic::SourceKind kind, std::size_t growth_bytes,
                                        std::size_t trim_threshold_bytes) {
  return {.source = {.kind = kind, .growth_bytes = growth_bytes},
          .trim_threshold_bytes = trim_threshold_bytes};
}

inline constexpr std::array settings{
    // Like the drop-in libraries.
    Setting{.name = "sbrk", .config = classic::by_sbrk},
    Setting{.name = "mmap", .config = classic::by_mmap},
    // Only small blocks: the threads are inside the heap most of the time, and their blocks are
    // adjacent.
    Setting{.name = "small", .config = classic::by_mmap, .max_bytes = 96},
    // As in the reports: grows by what is missing, never shrinks.
    Setting{.name = "exact",
            .config = config_of(classic::SourceKind::sbrk, 0, classic::never_trim)},
    // Grows by an odd number of bytes, returns memory at once.
    Setting{.name = "eager", .config = config_of(classic::SourceKind::sbrk, 4099, 4097)},
    // Many small chunks that come and go.
    Setting{.name = "chunks", .config = config_of(classic::SourceKind::mmap, 0, 1)},
    // A buffer at an odd address, which runs out.
    Setting{.name = "buffer",
            .config = config_of(classic::SourceKind::buffer, 0, 1),
            .max_bytes = buffer_bytes / 16,
            .may_refuse = true},
    // Lecture D's "solution 1".
    Setting{.name = "share",
            .config = {.source = {.kind = classic::SourceKind::mmap},
                       .thread_share_bytes = share_bytes},
            .max_bytes = share_bytes / 16,
            .may_refuse = true,
            .nolock_only = true},
};

}  // namespace ts::stress
