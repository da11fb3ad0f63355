// What a heap's measures say of its memory, as ts_stats has it: as a structure, and as text, JSON
// or for Prometheus. It refuses to allocate, and to use stdio.
#pragma once

#include "base/heap_like.h"
#include "os/error_line.h"

struct ts_statistics;

namespace ts {

// Fills the first `bytes` bytes of `*statistics`, with zeros behind its own.
void fill_stats(const HeapMeasures& measures, ts_statistics* statistics,
                std::size_t bytes) noexcept;

// Room for each of the formats.
inline constexpr std::size_t max_stats_text = 4096;

// As text for people.
void format_stats(const HeapMeasures& measures, os::Text& text) noexcept;

// 0, or an error of write(2); EINVAL if there is no such format.
int write_stats(const HeapMeasures& measures, int descriptor, int format) noexcept;

}  // namespace ts
