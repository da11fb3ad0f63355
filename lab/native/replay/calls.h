// One call of a plan, into the allocator.
//
// This is what is measured, so everything else (counting, touching, checking) surrounds it, and the
// clock, if any, is directly next to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "clock.h"
#include "replay/address_log.h"
#include "replay/plan.h"
#include "replay/threads.h"
#include "replay/waiting.h"

namespace ts::replay {

// What replay writes into blocks, and whether it is still there.
//
// Untouched memory is not resident, so a replay that only called malloc would measure a heap that
// no program has; and an allocator that returns a block twice, or loses content in realloc, looks
// fast. The pattern follows from the slot, so it can be recomputed; different slots have different
// patterns.

inline constexpr std::uint64_t intact = UINT64_MAX;

inline constexpr std::uint64_t end_bytes = 16;  // marked at each end
inline constexpr std::uint64_t word_bytes = 8;
inline constexpr std::uintptr_t touched_page_bytes = 4096;  // of the smallest page size

inline std::uint64_t word(std::uint32_t slot, std::uint64_t number) {
  return ((std::uint64_t{slot} << 32) + number + 1) * 0x9e37'79b9'7f4a'7c15;
}

inline unsigned char byte_of(std::uint64_t value, std::uint64_t offset) {
  return static_cast<unsigned char>(value >> (offset % word_bytes * 8));
}

inline unsigned char byte(std::uint32_t slot, std::uint64_t offset) {
  return byte_of(word(slot, offset / word_bytes), offset);
}

inline void write_range(unsigned char* block, std::uint64_t begin, std::uint64_t end,
                        std::uint32_t slot) {
  std::uint64_t i = begin;
  for (; i < end && i % word_bytes != 0; ++i) block[i] = byte(slot, i);
  for (; i + word_bytes <= end; i += word_bytes) {
    const std::uint64_t value = word(slot, i / word_bytes);
    std::memcpy(block + i, &value, sizeof value);
  }
  for (; i < end; ++i) block[i] = byte(slot, i);
}

// The first byte in the range that differs from word(number); or intact.
template <class Word>
inline std::uint64_t check_range(const unsigned char* block, std::uint64_t begin, std::uint64_t end,
                                 Word&& word_of) {
  std::uint64_t i = begin;
  while (i < end) {
    const std::uint64_t expected = word_of(i / word_bytes);
    std::uint64_t value = 0;
    const bool is_whole = i % word_bytes == 0 && i + word_bytes <= end;
    if (is_whole) std::memcpy(&value, block + i, sizeof value);
    if (is_whole && value == expected) {
      i += word_bytes;
    } else if (block[i] == byte_of(expected, i)) {
      ++i;
    } else {
      return i;
    }
  }
  return intact;
}

class Content {
 public:
  Content(Touch touch, bool is_verified) : touch_{touch}, is_verified_{is_verified} {}

  // A new block, or one that has grown from `kept` bytes: touches what is new, and marks the block.
  void write(void* block, std::uint64_t kept, std::uint64_t size, std::uint32_t slot) const {
    auto* const bytes = static_cast<unsigned char*>(block);
    if (touch_ == Touch::all) {
      if (kept < size) write_range(bytes, kept, size, slot);
      return;
    }
    if (kept == 0 && size > 0 && touch_ != Touch::none) bytes[0] = byte(slot, 0);
    if (touch_ == Touch::page) {
      const auto address = reinterpret_cast<std::uintptr_t>(block);
      const std::uintptr_t next = (address + kept) / touched_page_bytes * touched_page_bytes;
      for (std::uintptr_t page = next; page < address + size; page += touched_page_bytes) {
        if (page > address && page >= address + kept) bytes[page - address] = byte(slot, 0);
      }
    }
    if (!is_verified_) return;
    const std::uint64_t front = std::min(size, end_bytes);
    write_range(bytes, 0, front, slot);
    write_range(bytes, std::max(front, size - front), size, slot);
  }

  // Checks the bytes that write() marked, both ends or all, in the `kept` bytes that remain of a
  // block of `written`. Returns the offset of the first byte that differs, or `intact`.
  std::uint64_t check(const void* block, std::uint64_t written, std::uint64_t kept,
                      std::uint32_t slot) const {
    const auto* const bytes = static_cast<const unsigned char*>(block);
    const auto of_slot = [slot](std::uint64_t number) { return word(slot, number); };
    if (touch_ == Touch::all) return check_range(bytes, 0, std::min(written, kept), of_slot);
    const std::uint64_t front = std::min(written, end_bytes);
    const std::uint64_t wrong = check_range(bytes, 0, std::min(front, kept), of_slot);
    if (wrong != intact) return wrong;
    return check_range(bytes, std::max(front, written - front), std::min(written, kept), of_slot);
  }

  // The same for a block that must be zero.
  static std::uint64_t check_zero(const void* block, std::uint64_t size) {
    return check_range(static_cast<const unsigned char*>(block), 0, size,
                       [](std::uint64_t /*number*/) { return std::uint64_t{0}; });
  }

  bool is_verified() const { return is_verified_; }

 private:
  Touch touch_;
  bool is_verified_;
};

using plan::Kind;
using plan::Operation;

class Calls {
 public:
  // log: null, or where to record addresses.
  Calls(const Content& content, const Clock& clock, Slot* slots, AddressLog* log)
      : content_{content}, clock_{clock}, slots_{slots}, log_{log} {}

  // Returns the change in live bytes.
  std::int64_t make(ThreadRun& thread, const Operation& operation) const {
    thread.totals.add(operation.kind, operation.size);
    if (operation.kind == Kind::refused) return refused(thread, operation);
    if (operation.kind == Kind::free) return release(thread, operation.slot);
    Slot& slot = slots_[operation.slot];
    if (operation.kind == Kind::realloc) return resize(thread, slot, operation);
    void* const block = timed(thread, operation.kind, [&] { return allocate(operation); });
    slot.set(block, operation.size);
    if (block == nullptr) {
      ++thread.null_results;
      return 0;
    }
    note(thread, block, operation.size);
    if (content_.is_verified()) check_new(thread, block, operation);
    content_.write(block, 0, operation.size, operation.slot);
    return static_cast<std::int64_t>(operation.size);
  }

  // Frees the slot's block, as `free` does; also used for those left at the end.
  std::int64_t release(ThreadRun& thread, std::uint32_t number) const {
    Slot& slot = slots_[number];
    void* const block = slot.pointer();
    const std::uint64_t size = slot.size();
    constexpr auto kind = Kind::free;
    thread.totals.bytes[static_cast<std::size_t>(kind)] += size;
    if (block == nullptr) return 0;  // it has never been granted
    if (content_.is_verified()) check(thread, block, size, size, number, kind);
    if (log_ != nullptr) log_->add(block, 0, thread.number);
    timed(thread, kind, [&]() -> void* {
      std::free(block);
      return &slot;  // no null result
    });
    slot.set(nullptr, 0);
    return -static_cast<std::int64_t>(size);
  }

  // Order matters: the same addresses in another order give another sum.
  static std::uint64_t combine(std::uint64_t sum, std::uint64_t value) {
    const std::uint64_t mixed = (sum ^ value) * 0x9e37'79b9'7f4a'7c15;
    return mixed ^ (mixed >> 32);
  }

 private:
  static void* allocate(const Operation& operation) {
    const std::size_t size = operation.size;
    switch (operation.kind) {
      case Kind::calloc:
        return std::calloc(1, size);
      case Kind::aligned: {
        void* block = nullptr;
        const std::size_t alignment = std::size_t{1} << operation.log2_alignment;
        const std::size_t granted = alignment < sizeof(void*) ? sizeof(void*) : alignment;
        return posix_memalign(&block, granted, size) == 0 ? block : nullptr;
      }
      default:
        return std::malloc(size);
    }
  }

  template <class Call>
  void* timed(ThreadRun& thread, Kind kind, Call&& call) const {
    Latency* const latency = thread.resources->latency;
    if (latency == nullptr) return call();
    const std::uint64_t begin = clock_.read();
    void* const block = call();
    const std::uint64_t ticks = clock_.read() - begin;
    (block != nullptr ? latency->kinds[static_cast<std::size_t>(kind)] : latency->nulls).add(ticks);
    return block;
  }

  std::int64_t resize(ThreadRun& thread, Slot& slot, const Operation& operation) const {
    constexpr auto kind = Kind::realloc;
    void* const old = slot.pointer();
    const std::uint64_t old_size = old != nullptr ? slot.size() : 0;  // null: never granted
    const bool is_checked = content_.is_verified() && old != nullptr;
    if (is_checked) check(thread, old, old_size, old_size, operation.slot, kind);
    // Resizing to nothing frees in some libraries and not in others; for that the plan has `free`.
    const std::size_t size = operation.size != 0 ? std::size_t{operation.size} : 1;
    void* const block = timed(thread, kind, [&] { return std::realloc(old, size); });
    if (block == nullptr) {
      ++thread.null_results;  // and the old block still exists
      return 0;
    }
    if (log_ != nullptr) log_->add(old, 0, thread.number);
    note(thread, block, size);
    const std::uint64_t kept = old_size < operation.size ? old_size : operation.size;
    if (is_checked) check(thread, block, old_size, kept, operation.slot, kind);
    slot.set(block, operation.size);
    content_.write(block, kept, operation.size, operation.slot);
    return static_cast<std::int64_t>(operation.size) - static_cast<std::int64_t>(old_size);
  }

  std::int64_t refused(ThreadRun& thread, const Operation& operation) const {
    const bool is_cut = (operation.flags & plan::flag_cut) != 0;
    const std::size_t size = is_cut ? std::size_t{PTRDIFF_MAX} : std::size_t{operation.size};
    void* const block = timed(thread, Kind::refused, [size] { return std::malloc(size); });
    if (block != nullptr) {
      ++thread.granted;
      std::free(block);
    }
    return 0;
  }

  void note(ThreadRun& thread, const void* block, std::uint64_t size) const {
    if (log_ != nullptr) log_->add(block, size != 0 ? size : 1, thread.number);
    thread.checksum = combine(thread.checksum, reinterpret_cast<std::uintptr_t>(block));
  }

  void check_new(ThreadRun& thread, void* block, const Operation& operation) const {
    const Kind kind = operation.kind;
    // A block of up to 8 bytes needs no more than their alignment.
    std::uint64_t alignment = operation.size < 16 ? 8 : 16;
    if (kind == Kind::aligned) alignment = std::uint64_t{1} << operation.log2_alignment;
    if ((reinterpret_cast<std::uintptr_t>(block) & (alignment - 1)) != 0) {
      ++thread.misaligned;
      fault(thread, block, operation.size, intact, kind);
    }
    if (kind != Kind::calloc) return;
    const std::uint64_t wrong = Content::check_zero(block, operation.size);
    if (wrong == intact) return;
    ++thread.corrupt;
    fault(thread, block, operation.size, wrong, kind);
  }

  void check(ThreadRun& thread, const void* block, std::uint64_t written, std::uint64_t kept,
             std::uint32_t slot, Kind kind) const {
    const std::uint64_t wrong = content_.check(block, written, kept, slot);
    if (wrong == intact) return;
    ++thread.corrupt;
    fault(thread, block, written, wrong, kind);
  }

  static void fault(ThreadRun& thread, const void* block, std::uint64_t size, std::uint64_t offset,
                    Kind kind) {
    if (thread.fault.address != 0) return;
    thread.fault = {thread.next,   size, offset, reinterpret_cast<std::uintptr_t>(block),
                    thread.number, kind};
  }

  Content content_;
  const Clock& clock_;
  Slot* slots_;
  AddressLog* log_;
};

}  // namespace ts::replay
