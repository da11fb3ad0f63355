#include "engine/moved_pages.h"

#include <atomic>
#include <cstdint>

#include "engine/huge_pages.h"
#include "engine/touched_pages.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::uint32_t moves_per_look = 8192;
// Fewer leave some thousand mappings at most, and cost no system call.
constexpr std::uint32_t few_moves = 512;

// Relaxed, all: no data depends on them.
constinit std::atomic<std::uint32_t> moves{0};
constinit std::atomic<bool> were_many{false};
constinit std::atomic<bool> has_mappings_left{true};
constinit std::atomic<bool> has_stopped{false};

}  // namespace

bool may_move() noexcept {
  return has_mappings_left.load(std::memory_order_relaxed) &&
         !has_stopped.load(std::memory_order_relaxed) && os::can_move_pages();
}

bool begin_move() noexcept {
  const std::uint32_t before = moves.fetch_add(1, std::memory_order_relaxed);
  if (before == few_moves) were_many.store(true, std::memory_order_relaxed);
  if (before % moves_per_look == moves_per_look - 1) {
    has_mappings_left.store(has_half_of_mappings(), std::memory_order_relaxed);
    has_stopped.store(false, std::memory_order_relaxed);
  }
  return may_move();
}

void stop_moving() noexcept { has_stopped.store(true, std::memory_order_relaxed); }

bool merge_mappings(void* begin, std::size_t bytes) noexcept {
  if (!were_many.load(std::memory_order_relaxed) || has_stopped.load(std::memory_order_relaxed))
    return true;
  const bool is_there = os::renew(begin, bytes);
  is_there ? choose_page_size_of_fresh(begin, bytes, false) : stop_moving();
  return is_there;
}

}  // namespace ts::engine
