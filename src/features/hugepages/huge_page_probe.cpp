// Decides which large blocks get huge pages. Huge pages make filled blocks several times as fast,
// and mostly unused ones many times as large; a request does not show which it is. So the first
// block of at least 4 MiB is a probe with small pages. Later requests for fresh memory check how
// much of it was written. As long as the last probe was filled, blocks of up to four times its
// length get huge pages. One block in eight is a probe again, and so is each longer one. Without
// evidence, a probe has only small pages; with evidence, only its middle does.
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "features/hugepages/huge_pages.h"
#include "os/options.h"
#include "os/os.h"
#include "os/touched_pages.h"

namespace ts::engine {
namespace {

// Contains a huge page at any address.
constexpr std::size_t min_pages = 2 * pages_per_huge_page;
constexpr std::uint32_t requests_per_probe = 8;
// A filled probe gives huge pages to blocks of up to this many times its length.
constexpr std::size_t max_times_as_long = 4;

// Each request may split mappings, and a process may have only about 65,000. After this many
// requests, they are all joined again.
constexpr std::uint32_t requests_per_mending = 8192;

// All relaxed: values of several threads may mix; the worst result is a wrong guess.
constinit std::atomic<std::uint32_t> requests{0};
constinit std::atomic<const Span*> probe{nullptr};
constinit std::atomic<std::byte*> probe_window{nullptr};  // its part with small pages, if any
constinit std::atomic<std::size_t> filled_bytes{0};  // the last probe's; 0 if it was not filled

// Whether at least 7 in 8 of some OS pages, spread over the range, have been written to.
bool is_touched(const std::byte* begin, std::size_t bytes) noexcept {
  constexpr std::size_t looked_at = 32;
  const std::size_t touched = touched_pages(begin, bytes, looked_at);
  return touched != os::untold && touched >= looked_at - looked_at / 8;
}

bool is_filled(const Span& span, std::size_t bytes) noexcept {
  if (!is_touched(memory_of(&span), bytes)) return false;
  const std::byte* const window = probe_window.load(std::memory_order_relaxed);
  return window == nullptr || is_touched(window, huge_page_bytes);
}

// Checks the last probe, if it was not filled yet. If its block is gone, checks the memory in its
// place.
void look_at_probe() noexcept {
  const Span* const span = probe.load(std::memory_order_relaxed);
  if (span == nullptr) return;
  const std::size_t bytes = span->usable_pages.load(std::memory_order_relaxed) * page_bytes;
  const bool filled = is_filled(*span, bytes);
  filled_bytes.store(filled ? bytes : 0, std::memory_order_relaxed);
  if (filled) probe.store(nullptr, std::memory_order_relaxed);
}

// Requests huge pages in the block, and returns the window that a probe of it observes. The last
// huge page extends into the beginning of the next block, if that memory is clean.
std::byte* ask_within(const Span& span, std::size_t bytes, std::size_t alignment_pages) noexcept {
  std::byte* const memory = memory_of(&span);
  const std::size_t before = -address_of(memory) & (huge_page_bytes - 1);
  const std::size_t last = address_of(memory + bytes) & (huge_page_bytes - 1);
  std::byte* const begin = memory + before;
  const std::size_t within = bytes - before - last;
  const bool may_follow = alignment_pages < pages_per_huge_page;
  const std::size_t beyond = last == 0 || !may_follow ? 0 : huge_page_bytes - last;
  const bool reaches = beyond != 0 && page_heap.clean_after(&span) >= beyond / page_bytes;
  ask_for_huge_pages(begin, reaches ? within + huge_page_bytes : within);
  return begin + (within / 2 & -huge_page_bytes);
}

}  // namespace

// The next block may have the same alignment.
void hooks::fresh_large_block(const Span& span, std::size_t alignment_pages) noexcept {
  if (span.pages < min_pages || current_options.huge_pages != HugePages::automatic) return;
  look_at_probe();
  const std::uint32_t request = requests.fetch_add(1, std::memory_order_relaxed) + 1;
  if (request % requests_per_mending == 0) refuse_all_huge_pages();
  const std::size_t bytes = span.pages * page_bytes;
  const std::size_t filled = filled_bytes.load(std::memory_order_relaxed);
  const bool is_promising = bytes <= max_times_as_long * filled;
  const bool is_probe = request % requests_per_probe == 1 || (filled != 0 && !is_promising);

  std::byte* window = nullptr;
  if (is_promising) {
    window = ask_within(span, bytes, alignment_pages);
    if (is_probe) refuse_huge_pages(window, huge_page_bytes);
  } else if (is_probe) {
    refuse_huge_pages(memory_of(&span), bytes);
  } else {
    // An earlier block may have requested them here, and one touch would fill a whole one.
    refuse_inherited_huge_pages(memory_of(&span), bytes);
  }
  if (!is_probe) return;
  probe_window.store(window, std::memory_order_relaxed);
  probe.store(&span, std::memory_order_relaxed);
}

void hooks::before_large_release(const Span& span) noexcept {
  if (&span != probe.load(std::memory_order_relaxed)) return;
  look_at_probe();
  probe.store(nullptr, std::memory_order_relaxed);
}

}  // namespace ts::engine
