#include "engine/huge_pages.h"

#include "engine/page_heap.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
// Has a huge page in it wherever it lies.
constexpr std::size_t min_granules = 2 * huge_page_bytes / granule_bytes;
constexpr std::uint32_t requests_per_probe = 8;
// A probe that was filled speaks for blocks of up to so many times its length.
constexpr std::size_t most_times_as_long = 4;

// Each may cut mappings into more pieces, of which a process may have about 65,000: after so many,
// all become one again.
constexpr std::uint32_t requests_per_mending = 8192;

// All relaxed: words of several threads may mix, and the worst of it is a wrong guess.
constinit std::atomic<bool> were_asked_for{false};  // huge pages, for any memory
constinit std::atomic<std::uint32_t> requests{0};
constinit std::atomic<const Span*> probe{nullptr};
constinit std::atomic<std::byte*> probe_window{nullptr};  // all that has small pages, if not null
constinit std::atomic<std::size_t> filled_bytes{0};  // the last probe's, or 0 if it was not filled

// Of some pages, all over the range, at least 7 in 8 have been touched.
bool is_touched(const std::byte* begin, std::size_t bytes) noexcept {
  constexpr std::size_t looked_at = 32;
  return os::touched_pages(begin, bytes, looked_at) >= looked_at - looked_at / 8;
}

bool is_filled(const Span& span, std::size_t bytes) noexcept {
  if (!is_touched(memory_of(&span), bytes)) return false;
  const std::byte* const window = probe_window.load(std::memory_order_relaxed);
  return window == nullptr || is_touched(window, huge_page_bytes);
}

// A probe that is not filled yet may be later. If it is no block any more, this looks at whatever is
// there now.
void look_at_probe() noexcept {
  const Span* const span = probe.load(std::memory_order_relaxed);
  if (span == nullptr) return;
  const std::size_t bytes = span->used.load(std::memory_order_relaxed) * granule_bytes;
  const bool filled = is_filled(*span, bytes);
  filled_bytes.store(filled ? bytes : 0, std::memory_order_relaxed);
  if (filled) probe.store(nullptr, std::memory_order_relaxed);
}

void mend_mappings() noexcept {
  const std::size_t granules = layout.granule_count.load(std::memory_order_relaxed);
  os::refuse_huge_pages(memory_of(layout.spans), granules * granule_bytes);
}

}  // namespace

void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept {
  were_asked_for.store(true, std::memory_order_relaxed);
  os::prefer_huge_pages(begin, bytes);
}

void choose_page_size(const Span& span, std::size_t alignment_granules) noexcept {
  if (span.granules < min_granules) return;
  look_at_probe();
  const std::uint32_t request = requests.fetch_add(1, std::memory_order_relaxed) + 1;
  if (request % requests_per_mending == 0) mend_mappings();
  std::byte* const memory = memory_of(&span);
  const std::size_t bytes = span.granules * granule_bytes;
  const std::size_t filled = filled_bytes.load(std::memory_order_relaxed);
  const bool is_promising = bytes <= most_times_as_long * filled;
  const bool is_probe = request % requests_per_probe == 1 || (filled != 0 && !is_promising);

  std::byte* window = nullptr;
  if (is_promising) {
    const std::size_t before = -address_of(memory) & (huge_page_bytes - 1);
    const std::size_t last = address_of(memory + bytes) & (huge_page_bytes - 1);
    std::byte* const begin = memory + before;
    const std::size_t within = bytes - before - last;
    // The last one reaches into what the next block begins with, if nobody has that yet.
    const bool may_follow = alignment_granules * granule_bytes < huge_page_bytes;
    const std::size_t beyond = last == 0 || !may_follow ? 0 : huge_page_bytes - last;
    const bool reaches = beyond != 0 && page_heap.clean_behind(&span) >= beyond / granule_bytes;
    ask_for_huge_pages(begin, reaches ? within + huge_page_bytes : within);
    if (!is_probe) return;
    window = begin + (within / 2 & -huge_page_bytes);
    os::refuse_huge_pages(window, huge_page_bytes);
  } else {
    // Whoever had the memory before may have asked for them, and one touch would fill each.
    if (is_probe || were_asked_for.load(std::memory_order_relaxed))
      os::refuse_huge_pages(memory, bytes);
    if (!is_probe) return;
  }
  probe_window.store(window, std::memory_order_relaxed);
  probe.store(&span, std::memory_order_relaxed);
}

void note_release(const Span& span) noexcept {
  if (&span != probe.load(std::memory_order_relaxed)) return;
  look_at_probe();
  probe.store(nullptr, std::memory_order_relaxed);
}

}  // namespace ts::engine
