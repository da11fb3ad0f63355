// A heap's memory statistics in the forms of ts_stats: struct, text, JSON, and Prometheus. Must not
// allocate or use stdio.
#pragma once

#include "base/heap_like.h"
#include "os/error_line.h"

struct ts_statistics;

namespace ts {

// Fills the first `bytes` bytes of `*statistics`, and zeroes those beyond its own fields.
void fill_stats(const HeapMeasures& measures, ts_statistics* statistics,
                std::size_t bytes) noexcept;

// Large enough for each of the formats.
inline constexpr std::size_t max_stats_text = 4096;

// For people.
void format_stats(const HeapMeasures& measures, os::Text& text) noexcept;

// 0, or an error of write(2); EINVAL for an unknown format.
int write_stats(const HeapMeasures& measures, int descriptor, int format) noexcept;

}  // namespace ts
