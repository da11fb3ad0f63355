// Pages of distances; see birth_table.h.
#include "trace/analyze/birth_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ts::trace {
namespace {

// Times of different threads may step back a little; this is how far below a page's first they may
// be.
constexpr std::uint64_t slack_ns = 1ULL << 30;

bool fits(std::uint64_t value, std::uint64_t base) {
  return value >= base && value - base <= std::numeric_limits<std::uint32_t>::max();
}

std::uint32_t distance(std::uint64_t value, std::uint64_t base) {
  return static_cast<std::uint32_t>(value - base);
}

}  // namespace

void BirthTable::insert(std::uint64_t place, const Birth& birth) {
  std::unique_ptr<Page>& page = pages_[place / page_places];
  if (page == nullptr) {
    page = spare_ != nullptr ? std::move(spare_) : std::make_unique<Page>();
  }
  if (page->taken++ == 0) {
    page->event_base = birth.event;
    page->time_base = birth.time_ns - std::min(birth.time_ns, slack_ns);
    page->clock_base = birth.clock_bytes - std::min(birth.clock_bytes, birth.size);
  }
  store(place, *page, birth);
}

void BirthTable::store(std::uint64_t place, Page& page, const Birth& birth) {
  const std::uint64_t i = place % page_places;
  const bool is_narrow = birth.size <= std::numeric_limits<std::uint32_t>::max();
  if (birth.is_inherited && is_narrow) {
    page.thread[i] = inherited;
    page.size[i] = static_cast<std::uint32_t>(birth.size);
  } else if (!birth.is_inherited && is_narrow && birth.thread < inherited &&
             fits(birth.event, page.event_base) && fits(birth.time_ns, page.time_base) &&
             fits(birth.clock_bytes, page.clock_base)) {
    page.thread[i] = static_cast<std::uint16_t>(birth.thread);
    page.event[i] = distance(birth.event, page.event_base);
    page.time[i] = distance(birth.time_ns, page.time_base);
    page.clock[i] = distance(birth.clock_bytes, page.clock_base);
    page.size[i] = static_cast<std::uint32_t>(birth.size);
  } else {
    page.thread[i] = wide;
    wide_[place] = birth;
  }
}

std::optional<Birth> BirthTable::find(std::uint64_t place) const {
  const Page* const page = pages_[place / page_places].get();
  if (page == nullptr) return std::nullopt;
  const std::uint64_t i = place % page_places;
  const std::uint16_t thread = page->thread[i];
  if (thread == empty) return std::nullopt;
  if (thread == wide) return wide_.at(place);
  Birth birth;
  birth.size = page->size[i];
  birth.is_inherited = thread == inherited;
  if (birth.is_inherited) return birth;
  birth.thread = thread;
  birth.event = page->event_base + page->event[i];
  birth.time_ns = page->time_base + page->time[i];
  birth.clock_bytes = page->clock_base + page->clock[i];
  return birth;
}

BirthTable::Resized* BirthTable::find_resized(Page& page, std::uint64_t place) {
  for (Resized& each : page.resized) {
    if (each.place == place % page_places) return &each;
  }
  return nullptr;
}

void BirthTable::resize(std::uint64_t place, std::uint64_t size) {
  Page& page = *pages_[place / page_places];
  const std::optional<Birth> former = find(place);
  if (!former) return;
  Birth birth = *former;
  if (Resized* const resized = find_resized(page, place)) {
    if (resized->count < std::numeric_limits<std::uint32_t>::max()) ++resized->count;
  } else {
    const bool is_huge = birth.size >= huge;
    page.resized.push_back({1, is_huge ? huge : static_cast<std::uint32_t>(birth.size),
                            static_cast<std::uint8_t>(place % page_places)});
    if (is_huge) huge_first_[place] = birth.size;
  }
  if (page.thread[place % page_places] == wide) wide_.erase(place);
  birth.size = size;
  store(place, page, birth);
}

Chain BirthTable::chain(std::uint64_t place) const {
  Page* const page = pages_[place / page_places].get();
  const Resized* const resized = page != nullptr ? find_resized(*page, place) : nullptr;
  if (resized == nullptr) return {};
  const bool is_huge = resized->first_size == huge;
  return {resized->count, is_huge ? huge_first_.at(place) : resized->first_size};
}

void BirthTable::remove(std::uint64_t place) {
  std::unique_ptr<Page>& page = pages_[place / page_places];
  std::uint16_t& thread = page->thread[place % page_places];
  if (thread == wide) wide_.erase(place);
  thread = empty;
  if (Resized* const resized = find_resized(*page, place)) {
    if (resized->first_size == huge) huge_first_.erase(place);
    *resized = page->resized.back();
    page->resized.pop_back();
  }
  if (--page->taken > 0) return;
  page->resized = {};
  spare_ = std::move(page);
}

}  // namespace ts::trace
