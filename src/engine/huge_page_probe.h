// Which large blocks get huge pages. Huge pages make filled blocks several times as fast, and
// little used blocks many times as large; a request does not show which. So the first block of 4
// MiB or more is a probe with small pages. Later requests for fresh memory look at how much of it
// was written to. As long as the last probe was filled, blocks of up to four times its length get
// huge pages. One block in eight is a probe again, and so is each longer one. Without evidence, all
// of a probe has small pages, else its middle.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// To be called with a large span that reads as zero, before it is used. `alignment_pages` is the
// alignment of the request; the next block may have the same.
void choose_page_size(const Span& span, std::size_t alignment_pages) noexcept;

// To be called before a large span is released: the last look at a probe.
void note_release(const Span& span) noexcept;

}  // namespace ts::engine
