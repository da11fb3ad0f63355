#include "features/guard/sampled_guard.h"

#include <atomic>

#include "base/check.h"
#include "core/hooks.h"
#include "os/bad_access.h"
#include "os/error_line.h"
#include "os/options.h"
#include "os/os.h"
#include "unwind/stack_lines.h"

namespace ts::engine {
namespace {

constexpr std::size_t slot_count = 128;

// An OS page for a block, between two inaccessible pages that it shares with its neighbours.
struct Slot {
  std::byte* block = nullptr;  // null: never used
  std::size_t bytes = 0;
  bool is_in_use = false;
  bool is_leaving = false;  // its page is being purged
  os::CallStack allocated;
  os::CallStack freed;
};

// Guarded by sampled_guard_lock. But the handler of a bad access reads a slot without it, since the
// faulting thread may hold it; after several errors, the report may mix their data.
constinit Slot slots[slot_count];
constinit std::size_t next_slot = 0;

// Const once it is not null.
constinit std::atomic<std::byte*> region{nullptr};

// How many blocks leave slabs until the next sample, and the average of that; relaxed: no data
// depends on them.
constinit std::atomic<std::int64_t> left{0};
constinit std::atomic<std::uint32_t> interval{0};
// A thread is taking a sample; a block that it allocates meanwhile is not sampled.
constinit std::atomic<std::uint32_t> is_busy{0};

std::size_t region_bytes() noexcept { return (2 * slot_count + 1) * os::page_bytes(); }

// The slot that contains this address on its page or the page after it, or null.
Slot* slot_of(const void* p) noexcept {
  std::byte* const begin = region.load(std::memory_order_acquire);  // pairs with open_region
  const std::size_t offset = address_of(p) - address_of(begin);
  if (begin == nullptr || offset >= region_bytes()) return nullptr;
  const std::size_t page = offset / os::page_bytes();
  return &slots[page == 0 ? 0 : (page - 1) / 2];
}

std::byte* page_of_slot(const Slot& slot) noexcept {
  const auto number = static_cast<std::size_t>(&slot - slots);
  return region.load(std::memory_order_relaxed) + (2 * number + 1) * os::page_bytes();
}

void describe(const Slot& slot) noexcept {
  os::ErrorLine{"it was allocated here:"}.write();
  os::write_call_stack(slot.allocated);
  if (slot.is_in_use) return;
  os::ErrorLine{"and freed here:"}.write();
  os::write_call_stack(slot.freed);
}

void at_bad_access(const void* address) noexcept {
  const Slot* const slot = slot_of(address);
  if (slot == nullptr || slot->block == nullptr) return;
  os::ErrorLine line{slot->is_in_use ? "access outside of a block in use: " : "use after free: "};
  line.address(address);
  line.text(", of a sampled block of ");
  line.number(slot->bytes);
  line.text(" bytes at ");
  line.address(slot->block);
  line.write();
  describe(*slot);
}

// Only one thread at a time takes a sample (is_busy).
bool open_region() noexcept {
  if (region.load(std::memory_order_relaxed) != nullptr) return true;
  auto* const begin = static_cast<std::byte*>(os::reserve(region_bytes()));
  if (begin == nullptr) return false;
  // release: pairs with slot_of in threads that learnt of a block in another way
  region.store(begin, std::memory_order_release);
  os::call_at_bad_access(at_bad_access);
  return true;
}

// A slot whose block was freed about the longest ago; null if all are in use.
Slot* free_slot() noexcept TS_REQUIRES(sampled_guard_lock) {
  for (std::size_t tries = 0; tries < slot_count; ++tries) {
    Slot& slot = slots[next_slot++ % slot_count];
    if (!slot.is_in_use && !slot.is_leaving) return &slot;
  }
  return nullptr;
}

void* take_sample(std::size_t bytes) noexcept {
  os::CallStack stack;
  os::take_call_stack(stack);
  if (!open_region()) return nullptr;
  const Guard guard{sampled_guard_lock};
  Slot* const slot = free_slot();
  if (slot == nullptr || !os::commit(page_of_slot(*slot), os::page_bytes())) return nullptr;
  slot->block = page_of_slot(*slot) + os::page_bytes() - bytes;
  slot->bytes = bytes;
  slot->allocated = stack;
  slot->is_in_use = true;
  return slot->block;
}

// Random, around N, so that periodic behaviour of a program does not decide which blocks are
// sampled.
std::int64_t next_interval(std::uint32_t sample) noexcept {
  static constinit std::atomic<std::uint64_t> random{1};  // relaxed: any number will do
  const std::uint64_t now = random.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
  return static_cast<std::int64_t>((now >> 32) % (2 * std::uint64_t{sample}) + 1);
}

}  // namespace

// A block to return instead of a refill, if one is due. In a scope, blocks belong to the arena, and
// none is guarded.
[[gnu::cold]] void* hooks::allocate_guarded(unsigned size_class) noexcept {
  if (is_in_scope()) return nullptr;
  const SizeClass& c = size_classes[size_class];
  const std::uint32_t sample = current_options.guard_sample;
  if (sample == 0 || c.block_bytes > os::page_bytes()) return nullptr;
  if (interval.load(std::memory_order_relaxed) != sample) {  // the option changed
    interval.store(sample, std::memory_order_relaxed);
    left.store(0, std::memory_order_relaxed);
  }
  const auto leave = static_cast<std::int64_t>(c.bin_blocks + 1) / 2;
  if (left.fetch_sub(leave, std::memory_order_relaxed) > leave) return nullptr;
  // acquire, release: each sample sees the stores of the previous one
  if (is_busy.exchange(1, std::memory_order_acquire)) return nullptr;
  left.store(next_interval(sample), std::memory_order_relaxed);
  void* const p = take_sample(c.block_bytes);
  is_busy.store(0, std::memory_order_release);
  return p;
}

// For any pointer. Reports a double free.
[[gnu::cold]] bool hooks::release_foreign(const void* p) noexcept {
  Slot* const slot = slot_of(p);
  if (slot == nullptr) return false;
  os::CallStack stack;
  os::take_call_stack(stack);
  Slot found;
  bool is_freed = false;
  {
    const Guard guard{sampled_guard_lock};
    if (slot->is_in_use && slot->block == p) {
      slot->is_in_use = false;
      slot->is_leaving = is_freed = true;
      slot->freed = stack;
    }
    found = *slot;
  }
  if (is_freed) {
    os::protect(page_of_slot(*slot), os::page_bytes());  // if refused, less is detected
    const Guard guard{sampled_guard_lock};
    slot->is_leaving = false;
    return true;
  }
  const bool is_again = found.block == p;
  if (is_again && current_options.on_misuse != OnMisuse::silent) describe(found);
  report_misuse(is_again ? Misuse::double_free : Misuse::no_beginning, FoundBy::free, p,
                found.bytes);
  return true;
}

[[gnu::cold]] std::size_t hooks::foreign_bytes(const void* p) noexcept {
  const Slot* const slot = slot_of(p);
  return slot != nullptr && slot->is_in_use && slot->block == p ? slot->bytes : 0;
}

const void* hooks::foreign_block_around(const void* address) noexcept {
  const Slot* const slot = slot_of(address);
  const bool is_inside = slot != nullptr && slot->is_in_use &&
                         address_of(address) - address_of(slot->block) < slot->bytes;
  return is_inside ? slot->block : nullptr;
}

void forget_samples_in_progress() noexcept { is_busy.store(0, std::memory_order_relaxed); }

}  // namespace ts::engine
