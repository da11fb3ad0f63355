// The ways in which a heap is set up for a stress run: those of the drop-in libraries, and small
// and odd ones in which growth, giving back and running out happen all the time.
#pragma once

#include <array>
#include <cstdint>

#include "classic/config.h"
#include "programs/support/mapped_array.h"

namespace ts::stress {

struct Setting {
  const char* name;
  classic::HeapConfig config;
  // 0, or the memory that the heap must live with: requests may fail then, and are kept small.
  std::size_t limit_bytes;
  bool nolock_only;
};

inline constexpr std::size_t buffer_bytes = std::size_t{256} << 10;
inline constexpr std::size_t share_bytes = std::size_t{128} << 10;

constexpr classic::HeapConfig config_of(classic::SourceKind kind, std::size_t growth_bytes,
                                        std::size_t trim_threshold_bytes) {
  return {.source = {.kind = kind, .growth_bytes = growth_bytes},
          .trim_threshold_bytes = trim_threshold_bytes};
}

inline constexpr std::array settings{
    // As the drop-in libraries.
    Setting{"sbrk", classic::by_sbrk, 0, false},
    Setting{"mmap", classic::by_mmap, 0, false},
    // As the reports: by what is missing, never back.
    Setting{"exact", config_of(classic::SourceKind::sbrk, 0, classic::never_trim), 0, false},
    // Grows by a number that is no multiple of anything, gives back at once.
    Setting{"eager", config_of(classic::SourceKind::sbrk, 4099, 4097), 0, false},
    // Many small chunks that come and go.
    Setting{"chunks", config_of(classic::SourceKind::mmap, 0, 1), 0, false},
    // A buffer at an odd address, which runs out.
    Setting{"buffer", config_of(classic::SourceKind::buffer, 0, 1), buffer_bytes, false},
    // Lecture D's "solution 1".
    Setting{"share",
            {.source = {.kind = classic::SourceKind::mmap}, .thread_share_bytes = share_bytes},
            share_bytes,
            true},
};

}  // namespace ts::stress
