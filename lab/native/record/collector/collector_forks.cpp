// How forked children get what their parents had when they were forked; see collector.h.
#include <algorithm>

#include "record/collector/collector.h"

namespace ts::record {
namespace {

// How long a child waits for its parent's record of the fork, which the parent published before.
constexpr std::uint64_t announcement_patience_ns = 1'000'000'000;

// The parent's last event before the fork. 0: there is none, or it is not known.
std::uint64_t last_before(const ImagePlace& child) {
  return child.parent_ticket != 0 ? child.parent_ticket - 1 : 0;
}

}  // namespace

bool Collector::begin_forked(Live& live, bool is_last) {
  const bool is_announced = live.place->fork_number != 0;
  const ForkKey key{is_announced ? live.parent_id : live.id, live.place->fork_number};
  live.report.birth = trace::Birth::fork;
  if (const auto found = expected_.find(key); found != expected_.end()) {
    live.books = std::move(found->second.books);
    live.begin_ns = found->second.begin_ns;
    live.report.parent = found->second.parent;
    expected_.erase(found);
    return true;
  }
  Live* const parent = find(live.parent_id);
  // A parent that lives forks its books for a child that it has not announced (hand_out_to).
  const bool may_come =
      parent != nullptr && (!is_announced || now_ns() - live.met_ns < announcement_patience_ns);
  if (may_come && !is_last) return false;
  hear_of_fork(live);
  if (parent == nullptr || !parent->books.has_value()) {
    begin_orphan(live);
    return true;
  }
  // It was to be announced, and the record was lost: it inherits what the parent has now.
  if (!expected_.contains(key)) fork_unannounced(*parent, *live.place);
  return begin_forked(live, is_last);
}

// Its parent has ended, or was never met. Which of the parent's blocks are where is not kept beyond
// its end.
void Collector::begin_orphan(Live& live) {
  std::erase_if(unannounced_, [&live](const auto& each) { return each.place == live.place; });
  trace::Image image;
  image.birth = trace::Birth::orphan;
  if (const auto former = former_.find(live.parent_id); former != former_.end()) {
    image.parent = former->second;
  }
  image.begin_ns = live.begin_ns = clock_.to_ns(live.place->begin_time);
  image.program = live.report.program;
  image.allocator = live.report.allocator;
  live.report.parent = image.parent;
  live.books.emplace(sink_, sink_.begin_image(image));
}

void Collector::announce_fork(Live& parent, const RawEvent& raw) {
  fork_books(parent, raw, {parent.id, static_cast<std::uint32_t>(raw.address)});
}

void Collector::fork_books(Live& parent, const RawEvent& raw, const ForkKey& key) {
  trace::Image child;
  child.program = parent.report.program;
  child.allocator = parent.report.allocator;
  child.begin_ns = parent.begin_ns + raw.time_ns;
  expected_.emplace(key, Expected{.books = parent.books->fork(raw, child),
                                  .begin_ns = child.begin_ns,
                                  .parent = parent.books->number()});
}

// The one that was forked first; null: none.
const Collector::Unannounced* Collector::next_unannounced(const Live& parent) const {
  const Unannounced* next = nullptr;
  for (const Unannounced& each : unannounced_) {
    if (each.place->parent_id != parent.id) continue;
    if (next == nullptr || each.place->parent_ticket < next->place->parent_ticket) next = &each;
  }
  return next;
}

// The child has what the parent has got and not given back in the events that have gone out.
void Collector::fork_unannounced(Live& parent, const ImagePlace& child) {
  const std::uint64_t begin_ns = clock_.to_ns(child.begin_time);
  RawEvent raw;
  raw.kind = RawKind::fork;
  raw.thread = child.parent_thread;
  raw.time_ns = begin_ns > parent.begin_ns ? begin_ns - parent.begin_ns : 0;
  const bool is_announced = child.fork_number != 0;
  fork_books(
      parent, raw,
      {is_announced ? parent.id : child.id.load(std::memory_order_relaxed), child.fork_number});
  std::erase_if(unannounced_, [&child](const auto& each) { return each.place == &child; });
}

// There is nothing more to wait for.
void Collector::fork_all_unannounced(Live& parent) {
  while (const Unannounced* const child = next_unannounced(parent)) {
    fork_unannounced(parent, *child->place);
  }
}

// Gaps are not passed over in the round in which a child was found: what it depends on may have
// been published after the round had passed by. The next round sees it.
bool Collector::has_new_child(const Live& parent) const {
  return std::any_of(unannounced_.begin(), unannounced_.end(), [&](const Unannounced& each) {
    return each.round == round_ && each.place->parent_id == parent.id;
  });
}

// Of the last tickets before the fork, some may have been drawn by threads that never publish. Once
// all that was published has gone out, a child waits no longer for them than for any gap.
void Collector::fork_after_patience(Live& parent) {
  if (unannounced_.empty() || parent.window.next() <= parent.window.highest()) return;
  const Unannounced* const child = next_unannounced(parent);
  const bool is_due =
      child != nullptr && child->round != round_ && now_ns() - child->found_ns > gap_patience_ns;
  if (is_due) fork_unannounced(parent, *child->place);
}

// Hands out what the limit allows. In between come the forks that were not announced.
void Collector::hand_out_to(Live& live, std::uint64_t limit, bool passes_gaps) {
  const auto take_record = [&](const Record& record) { take(live, record); };
  while (const Unannounced* const child = next_unannounced(live)) {
    const std::uint64_t last = last_before(*child->place);
    if (last > limit) break;
    live.window.hand_out(last, passes_gaps, take_record);
    if (live.window.next() <= last && !passes_gaps) return;
    fork_unannounced(live, *child->place);
  }
  live.window.hand_out(limit, passes_gaps, take_record);
}

// A child that ends at once may be met before what its parent did before the fork has gone out. Two
// looks: what the first one finds may go out after the second (collector.h).
void Collector::hear_of_fork(Live& child) {
  Live* const parent = find(child.parent_id);
  if (child.books.has_value() || parent == nullptr) return;
  look_through_chunks(usual_gap);
  parent->limit = parent->window.highest();
  look_through_chunks(usual_gap);
  look_for_images();
  if (!begin(*parent, true)) return;
  hand_out_to(*parent, parent->limit, true);
}

}  // namespace ts::record
