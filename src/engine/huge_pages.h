// Which large blocks get huge pages. Whether a program touches its large blocks cannot be known
// when it asks for them: huge pages make those that it fills several times as fast, and those of
// which it uses a little many times as large. So the first of them is a probe with small pages:
// requests for fresh memory look at how much of it has been written to, and as long as the last
// probe was filled, they get huge pages, unless they are much longer. One in eight is a probe again,
// and each that is much longer, with small pages where that tells enough: everywhere, if nothing
// speaks for huge ones, else in its middle. It refuses to know what is being allocated, and by whom.
#pragma once

#include "engine/layout.h"

namespace ts::engine {

// To be called with a large span that reads as zero, before it is used; and with the multiple of
// granules that its address had to be, as that of the next one may.
void choose_page_size(const Span& span, std::size_t alignment_granules) noexcept;

// Asks for them without having looked, in memory that is about to be filled.
void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept;

// To be called before a large span is released: the last word on a probe is what has become of it.
void note_release(const Span& span) noexcept;

}  // namespace ts::engine
