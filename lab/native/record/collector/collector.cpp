// See collector.h. The beginnings and ends of images are in collector_images.cpp.
#include "record/collector/collector.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace ts::record {
namespace {

constexpr std::uint64_t publish_interval_ns = 1'000'000;
constexpr std::uint64_t ends_interval_ns = 20'000'000;

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Collector::Collector(RingFile& file, Clock& clock, Sink& sink)
    : ring_{file.ring()},
      clock_{clock},
      sink_{sink},
      by_place_(max_images, nullptr),
      found_ids_(max_images, 0),
      chunks_(file.ring().chunk_count) {}

std::size_t Collector::collect() {
  ring_.rounds.fetch_add(1, std::memory_order_relaxed);
  if (const std::uint64_t ns = now_ns(); ns - published_ns_ >= publish_interval_ns) {
    ring_.now.store(clock_.read(), std::memory_order_relaxed);
    published_ns_ = ns;
  }
  gave_back_ = false;
  add_new_images();
  for (const auto& live : live_) live->limit = live->window.highest();
  const std::size_t found = scan_chunks(usual_gap);
  scan_for_images();
  for (const auto& live : live_) deliver(*live);
  assist_waiting_threads(found);
  if (now_ns() - checked_ends_ns_ >= ends_interval_ns) check_for_ended_processes();
  return found;
}

std::size_t Collector::scan_chunks(std::uint32_t max_gap) {
  std::size_t found = 0;
  for (std::uint32_t i = 0; i < chunks_.size(); ++i) {
    // relaxed: an owner that matters is seen, since its record's publication came after it
    const std::uint32_t owner = ring_.owners[i].load(std::memory_order_relaxed);
    if (owner == 0 || owner > max_images || by_place_[owner - 1] == nullptr) continue;
    found += scan_chunk(*by_place_[owner - 1], i, max_gap);
  }
  return found;
}

std::size_t Collector::scan_chunk(Live& live, std::uint32_t chunk, std::uint32_t max_gap) {
  ChunkState& state = chunks_[chunk];
  Chunk& content = ring_.chunks()[chunk];
  // acquire: pairs with the release of a thread that ends; all of its records will be seen
  const bool is_closed = content.head.closed.load(std::memory_order_acquire) != 0;
  std::size_t found = 0;
  std::uint32_t gap = 0;
  for (std::uint32_t i = state.first_unseen; i < records_per_chunk && gap <= max_gap; ++i) {
    if (state.seen[i]) continue;
    const Record& record = content.records[i];
    // acquire: pairs with the release in publish (thread.h)
    if (record.ticket.load(std::memory_order_acquire) == 0) {
      ++gap;
      continue;
    }
    ++found;
    state.seen[i] = true;
    if (!live.window.add(record)) ++state.delivered;
  }
  while (state.first_unseen < records_per_chunk && state.seen[state.first_unseen]) {
    ++state.first_unseen;
  }
  if (is_closed && found == 0 && state.delivered == state.seen.count()) give_back(live, chunk);
  return found;
}

// Records up to the limit of this round; gaps among them get some time to fill.
void Collector::deliver(Live& live) {
  if (!begin(live, false)) return;
  deliver_up_to(live, live.limit, false);
  if (live.window.next() > live.limit) {
    live.gap = 0;
  } else if (live.gap != live.window.next()) {
    live.gap = live.window.next();
    live.gap_limit = live.limit;
    live.gap_since_ns = now_ns();
  } else if (now_ns() - live.gap_since_ns > gap_timeout_ns) {
    deliver_up_to(live, live.gap_limit, true);
  }
}

void Collector::deliver_up_to(Live& live, std::uint64_t limit, bool passes_gaps) {
  live.window.deliver(limit, passes_gaps, [&](const Record& record) { take(live, record); });
}

// No process is left to publish.
void Collector::deliver_rest(Live& live) {
  begin(live, true);
  deliver_up_to(live, live.window.highest(), true);
}

void Collector::take(Live& live, const Record& record) {
  auto* const begin = reinterpret_cast<const unsigned char*>(ring_.chunks());
  const auto offset =
      static_cast<std::size_t>(reinterpret_cast<const unsigned char*>(&record) - begin);
  const auto chunk = static_cast<std::uint32_t>(offset / chunk_bytes);
  RawEvent raw{.kind = record.kind(),
               .log2_alignment = record.log2_alignment(),
               .thread = ring_.chunks()[chunk].head.thread.load(std::memory_order_relaxed),
               .ticket = record.ticket.load(std::memory_order_relaxed),
               .address = record.address(),
               .size = record.size,
               .leave_ticket = record.time,
               .time_ns = 0};
  if (raw.kind != RawKind::resize && record.time != no_time) {
    const std::uint64_t time_ns = clock_.to_ns(record.time);
    live.time_ns = time_ns > live.begin_ns ? time_ns - live.begin_ns : 0;
  }
  raw.time_ns = live.time_ns;
  if (raw.kind == RawKind::fork) {
    announce_fork(live, raw);
  } else {
    live.translator->add(raw);
  }
  if (++chunks_[chunk].delivered == records_per_chunk) give_back(live, chunk);
}

void Collector::give_back(Live& live, std::uint32_t chunk) {
  Chunk& content = ring_.chunks()[chunk];
  live.report.null_frees += content.head.ignored.load(std::memory_order_relaxed);
  std::memset(static_cast<void*>(&content), 0, sizeof content);
  chunks_[chunk] = ChunkState{};
  // release: pairs with the acquire of its next owner, which sees the zeros
  ring_.owners[chunk].store(0, std::memory_order_release);
  if (chunk < ring_.first_free.load(std::memory_order_relaxed)) {
    ring_.first_free.store(chunk, std::memory_order_relaxed);
  }
  gave_back_ = true;
}

bool Collector::is_drained() const {
  return std::all_of(live_.begin(), live_.end(),
                     [](const auto& live) { return live->window.next() > live->window.highest(); });
}

// Threads wait for chunks while we lag behind, which is intended. But if everything has been read,
// and each chunk belongs to a thread that has not filled it, there are more threads than chunks.
void Collector::assist_waiting_threads(std::size_t found) {
  if (gave_back_) {
    ring_.is_exhausted.store(0, std::memory_order_relaxed);
    ring_.given_back.fetch_add(1, std::memory_order_seq_cst);
  }
  if (ring_.waiting.load(std::memory_order_seq_cst) == 0) return;
  if (!gave_back_) {
    if (found > 0 || !is_drained()) return;
    const auto is_free = [](const std::atomic<std::uint32_t>& owner) {
      return owner.load(std::memory_order_relaxed) == 0;
    };
    const bool has_free = std::any_of(ring_.owners, ring_.owners + chunks_.size(), is_free);
    if (!has_free) ring_.is_exhausted.store(1, std::memory_order_relaxed);
    ring_.given_back.fetch_add(1, std::memory_order_seq_cst);
  }
  wake_all(ring_.given_back);
}

}  // namespace ts::record
