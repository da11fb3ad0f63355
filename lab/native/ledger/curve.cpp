// One atomic sum, one peak, and a bounded number of points; see curve.h.
#include "ledger/curve.h"

#include "common/system.h"

namespace ts {
namespace {

constexpr std::uint64_t first_interval_ns = 10'000;  // 1,000 points in the first 10 ms

// The memory of this process, and a fork's copy of it: what is live is inherited.
constinit std::atomic<std::uint64_t> live_bytes{0};
constinit std::atomic<std::uint64_t> live_blocks{0};

constinit std::atomic<std::uint64_t> begin_ns{0};

// Who takes a point holds the flag, and nobody waits for it: a point that another thread is taking
// at this moment serves as well. Guards interval_ns and the points.
constinit std::atomic_flag is_taking_point{};
constinit std::uint64_t interval_ns = first_interval_ns;
constinit std::atomic<std::uint64_t> next_point_ns{0};  // relaxed: only a hint outside of the flag

// Relaxed: each is a number of its own, and nothing else is read by it.
bool raise(AnyCounter& peak, std::uint64_t value) {
  std::uint64_t highest = peak.load(std::memory_order_relaxed);
  while (value > highest) {
    if (peak.compare_exchange_weak(highest, value, std::memory_order_relaxed)) return true;
  }
  return false;
}

void halve(LedgerRecord& record) {
  for (std::size_t i = 0; i < most_points / 2; ++i) {
    const CurvePoint& kept = record.curve[2 * i];
    record.curve[i].time_ns = kept.time_ns.load(std::memory_order_relaxed);
    record.curve[i].live_bytes = kept.live_bytes.load(std::memory_order_relaxed);
  }
  record.points.store(most_points / 2, std::memory_order_relaxed);
  interval_ns *= 2;
}

void take_point(LedgerRecord& record, std::uint64_t time_ns) {
  if (time_ns < next_point_ns.load(std::memory_order_relaxed)) return;
  // acquire: pairs with the release in clear(); the last one's points and interval are seen
  if (is_taking_point.test_and_set(std::memory_order_acquire)) return;
  if (time_ns >= next_point_ns.load(std::memory_order_relaxed)) {
    if (record.points.load(std::memory_order_relaxed) == most_points) halve(record);
    CurvePoint& point = record.curve[record.points.load(std::memory_order_relaxed)];
    point.time_ns.store(time_ns, std::memory_order_relaxed);
    point.live_bytes.store(live_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
    record.points.fetch_add(1, std::memory_order_relaxed);
    next_point_ns.store(time_ns + interval_ns, std::memory_order_relaxed);
  }
  is_taking_point.clear(std::memory_order_release);
}

}  // namespace

void begin_curve(LedgerRecord& record) {
  is_taking_point.clear(std::memory_order_relaxed);  // a fork may have left it set
  interval_ns = first_interval_ns;
  next_point_ns.store(0, std::memory_order_relaxed);
  begin_ns.store(unsigned_now_ns(), std::memory_order_relaxed);
  const std::uint64_t bytes = live_bytes.load(std::memory_order_relaxed);
  const std::uint64_t blocks = live_blocks.load(std::memory_order_relaxed);
  record.inherited_bytes.store(bytes, std::memory_order_relaxed);
  record.live_bytes.store(bytes, std::memory_order_relaxed);
  record.live_blocks.store(blocks, std::memory_order_relaxed);
  record.peak_live_bytes.store(bytes, std::memory_order_relaxed);
  record.peak_live_blocks.store(blocks, std::memory_order_relaxed);
  record.peak_ns.store(0, std::memory_order_relaxed);
  record.points.store(0, std::memory_order_relaxed);
}

// The sums are exact at every moment, here and in the record: each event is one addition to each.
void change_live(LedgerRecord& record, std::uint64_t bytes, std::uint64_t blocks) {
  const std::uint64_t now_bytes = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const std::uint64_t now_blocks =
      live_blocks.fetch_add(blocks, std::memory_order_relaxed) + blocks;
  const std::uint64_t time_ns = unsigned_now_ns() - begin_ns.load(std::memory_order_relaxed);
  record.live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  record.live_blocks.fetch_add(blocks, std::memory_order_relaxed);
  const bool is_growth = static_cast<std::int64_t>(bytes) > 0;
  if (is_growth && raise(record.peak_live_bytes, now_bytes)) {
    record.peak_ns.store(time_ns, std::memory_order_relaxed);
  }
  if (static_cast<std::int64_t>(blocks) > 0) raise(record.peak_live_blocks, now_blocks);
  take_point(record, time_ns);
}

}  // namespace ts
