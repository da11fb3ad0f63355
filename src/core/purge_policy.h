// When to purge dirty memory, as a function of time, pages in use and dirty pages. A release asks,
// and purges if
//
//   idle     more than max(4 MiB, in use / 4) stayed dirty for a whole 250 ms, or
//   peak     more than max(16 MiB, in use / 2) is dirty: perhaps no call follows the end of a peak.
//
// A background thread (background_thread.h) asks in rounds: of the memory beyond max(1 MiB, in use
// / 16) that stayed dirty for a whole round, it purges half, and from the third such round on all
// of it.
//
// If fresh memory is needed within 1 s of a purge, that purge was too early. For the next 10 s,
// twice the dirty memory before that purge is allowed (backoff).
//
// TSMALLOC_PURGE_DELAY replaces all of this: memory that stayed dirty for that many milliseconds is
// purged at the next release or by a background thread. With 0, everything is purged at once; with
// `never`, only limits and trims purge.
//
// The policy reads no clock and no memory; times are nondecreasing milliseconds, sizes are pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "os/options.h"

namespace ts::engine {

// A value of TSMALLOC_PURGE_DELAY.
class PurgeDelay {
 public:
  explicit constexpr PurgeDelay(SizeOption option = {0}) noexcept : option_{option} {}
  bool is_automatic() const noexcept { return option_.bits == 0; }
  bool is_never() const noexcept { return option_.is_word() && !is_automatic(); }
  std::uint64_t milliseconds() const noexcept { return option_.number(); }

 private:
  SizeOption option_;
};

inline PurgeDelay purge_delay() noexcept { return PurgeDelay{current_options.purge_delay}; }

class PurgePolicy {
 public:
  static constexpr std::size_t min_idle_limit = (std::size_t{4} << 20) / page_bytes;
  static constexpr std::size_t min_peak_limit = (std::size_t{16} << 20) / page_bytes;
  static constexpr std::size_t min_rest_limit = (std::size_t{1} << 20) / page_bytes;
  static constexpr std::uint64_t idle_ms = 250;
  static constexpr std::uint64_t too_early_ms = 1000;
  static constexpr std::uint64_t forget_ms = 10000;
  static constexpr unsigned rounds_to_settle = 3;
  static constexpr std::size_t keep_all = ~std::size_t{0};

  constexpr PurgePolicy() = default;

  // Whether enough is dirty that pages_to_keep() may purge; checked first, because it needs no
  // clock.
  static bool is_surplus(std::size_t in_use, std::size_t dirty,
                         PurgeDelay delay = PurgeDelay{}) noexcept {
    if (!delay.is_automatic()) [[unlikely]]
      return dirty > delayed_limit(delay);
    return dirty > idle_limit(in_use);
  }

  // To be called after a release: how many dirty pages to keep, or keep_all.
  std::size_t pages_to_keep(std::uint64_t now, std::size_t in_use, std::size_t dirty,
                            PurgeDelay delay = PurgeDelay{}) noexcept {
    if (!delay.is_automatic()) [[unlikely]]
      return pages_to_keep_for(delay, now, dirty);
    if (now - purged_at_ > forget_ms) backoff_ = 0;
    const std::size_t idle_limit = std::max(PurgePolicy::idle_limit(in_use), backoff_);
    if (dirty <= idle_limit) return keep_all;
    const std::size_t idle = idle_in_window(now, dirty, idle_ms);
    if (idle > idle_limit) return dirty - idle + idle_limit / 2;
    const std::size_t peak_limit = std::max({min_peak_limit, in_use / 2, backoff_});
    return dirty > peak_limit ? peak_limit / 2 : keep_all;
  }

  // How many dirty pages a process may keep indefinitely.
  static std::size_t rest_limit(std::size_t in_use, PurgeDelay delay = PurgeDelay{}) noexcept {
    if (!delay.is_automatic()) [[unlikely]]
      return delayed_limit(delay);
    return std::max(min_rest_limit, in_use / 16);
  }

  // To be called at the end of each round: how many dirty pages to keep, or keep_all.
  std::size_t pages_to_keep_in_round(std::uint64_t now, std::size_t in_use, std::size_t dirty,
                                     PurgeDelay delay = PurgeDelay{}) noexcept {
    if (!delay.is_automatic()) [[unlikely]] {
      const std::size_t keep = pages_to_keep_for(delay, now, dirty);
      quiet_rounds_ = keep != keep_all ? rounds_to_settle : 0;
      return keep;
    }
    const std::size_t idle = round_floor_;
    round_floor_ = dirty;
    const std::size_t limit = rest_limit(in_use);
    quiet_rounds_ = idle > limit ? std::min(quiet_rounds_ + 1, rounds_to_settle) : 0;
    if (quiet_rounds_ == 0) return keep_all;
    if (quiet_rounds_ == rounds_to_settle) return dirty - (idle - limit);
    if (backoff_ != 0 && now - purged_at_ <= forget_ms) return keep_all;
    return dirty - (idle - limit) / 2;
  }
  // Whether the last rounds purged everything that was idle.
  bool is_settled() const noexcept { return quiet_rounds_ == rounds_to_settle; }

  // To be called before a purge down to `keep`, as returned by pages_to_keep() or
  // pages_to_keep_in_round().
  void note_purge(std::uint64_t now, std::size_t dirty, std::size_t keep) noexcept {
    target_ = keep;
    // A large purge takes several calls.
    purged_from_ = now - purged_at_ < idle_ms ? std::max(purged_from_, dirty) : dirty;
    purged_at_ = now;
    watches_growth_ = true;
  }

  // To be called when the number of dirty pages has fallen to `dirty`.
  void note_dirty(std::size_t dirty) noexcept {
    idle_floor_ = std::min(idle_floor_, dirty);
    round_floor_ = std::min(round_floor_, dirty);
    if (dirty <= target_) target_ = keep_all;
  }

  // How many dirty pages the last purge still has to purge; fewer if the program reused some.
  std::size_t pages_left(std::size_t dirty) const noexcept {
    return dirty - std::min(dirty, target_);
  }

  // Whether note_growth() must be called, with the time, when fresh memory is needed.
  bool watches_growth() const noexcept { return watches_growth_; }
  void note_growth(std::uint64_t now) noexcept {
    watches_growth_ = false;
    if (now - purged_at_ <= too_early_ms) backoff_ = 2 * purged_from_;
  }

 private:
  static std::size_t idle_limit(std::size_t in_use) noexcept {
    return std::max(min_idle_limit, in_use / 4);
  }

  // Consecutive windows of this many milliseconds. At the end of one, returns how many pages were
  // idle for all of it; otherwise 0.
  std::size_t idle_in_window(std::uint64_t now, std::size_t dirty,
                             std::uint64_t window_ms) noexcept {
    const std::uint64_t length = now - window_began_;
    if (length < window_ms) return 0;
    // A window that stayed open for too long, because no call came, does not prove that pages were
    // idle.
    const std::size_t idle = length < 2 * std::max(window_ms, idle_ms) ? idle_floor_ : 0;
    window_began_ = now;
    idle_floor_ = dirty;
    return idle;
  }

  // Less is not worth a system call, unless nothing should stay dirty.
  [[gnu::cold, gnu::noinline]] static std::size_t delayed_limit(PurgeDelay delay) noexcept {
    constexpr std::size_t little = (std::size_t{256} << 10) / page_bytes;
    if (delay.is_never()) return keep_all;
    return delay.milliseconds() == 0 ? 0 : little;
  }

  // How many dirty pages to keep with a delay: all but what was idle for a whole window of that
  // length.
  [[gnu::cold, gnu::noinline]] std::size_t pages_to_keep_for(PurgeDelay delay, std::uint64_t now,
                                                             std::size_t dirty) noexcept {
    const std::size_t limit = delayed_limit(delay);
    if (dirty <= limit) return keep_all;
    const std::uint64_t window_ms = delay.milliseconds();
    if (window_ms == 0) return 0;
    const std::size_t idle = idle_in_window(now, dirty, window_ms);
    return idle > limit ? dirty - (idle - limit) : keep_all;
  }

  std::uint64_t window_began_ = 0;
  std::size_t idle_floor_ = 0;     // fewest dirty pages within the window: they were idle all along
  std::size_t round_floor_ = 0;    // likewise, within a round
  unsigned quiet_rounds_ = 0;      // consecutive ones that ended with too much idle memory
  std::uint64_t purged_at_ = 0;    // time of the last purge,
  std::size_t purged_from_ = 0;    // how many pages were dirty then,
  std::size_t target_ = keep_all;  // and its goal; keep_all once it is reached
  std::size_t backoff_ = 0;        // this many dirty pages are allowed
  bool watches_growth_ = false;    // no fresh memory was needed since the last purge
};

}  // namespace ts::engine
