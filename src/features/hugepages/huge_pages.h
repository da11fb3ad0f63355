// Requests and refusals of huge pages: hints to the operating system about ranges of pages.
// huge_page_probe.cpp decides for large blocks, huge_pages.cpp for the page heap as it grows.
#pragma once

#include <cstddef>

namespace ts::engine {

// Requests huge pages in memory that is about to be filled, unless memory is short.
void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept;

void note_memory(bool is_short) noexcept;

// Refuses them; also clears an earlier hint.
void refuse_huge_pages(void* begin, std::size_t bytes) noexcept;

// Refuses them in all existing memory.
void refuse_all_huge_pages() noexcept;

// Refuses them in all existing memory, if growth requested any since the last call. To be called
// before OS pages within slabs are purged: the system would fill them again, to make huge pages.
void refuse_huge_slab_pages() noexcept;

// Refuses them here if earlier blocks may have requested any.
void refuse_inherited_huge_pages(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::engine
