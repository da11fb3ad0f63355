// Which large blocks get huge pages. Huge pages make blocks that a program fills several times as
// fast, and blocks of which it uses a little many times as large; a request does not tell which.
// So the first block of 4 MiB or more is a probe with small pages: later requests for fresh memory
// look at how much of it was written to. As long as the last probe was filled, blocks of up to four
// times its length get huge pages. One block in eight is a probe again, and so is each longer one;
// it has small pages where that tells enough: everywhere without evidence, else in its middle.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// To be called with a large span that reads as zero, before it is used. `alignment_pages`: what its
// address had to be a multiple of, as that of the next one may.
void choose_page_size(const Span& span, std::size_t alignment_pages) noexcept;

// To be called before a large span is released: the last word on a probe is what has become of it.
void note_release(const Span& span) noexcept;

}  // namespace ts::engine
