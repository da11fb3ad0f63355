// libtsmalloc-record.so: preloaded before any allocator, it writes every event of the heap into a
// ring in shared memory, from which `record` makes a trace.
//
// The requests of a program, their order and their threads are all that is needed to repeat them
// under another allocator. Calls before this library's constructor can run are not recorded, nor
// are calls of the allocator's own functions (mallocx, mi_malloc).
//
// Calls nest: libstdc++'s operator new calls malloc, its operator delete calls free. The program
// made one call, so there is one event, the innermost. A flag "inside a call" would stay set after
// a call that throws, or that a signal handler jumps out of. Instead,
// - an allocation whose block the same thread just got from a nested call belongs to that call;
// - a block that the same thread is already freeing is not freed again;
// - an operator new that needs another size than the nested call gets (0 bytes become 1, sizes are
//   rounded up to the alignment) is noted, and the nested call records that size if it fits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "interpose/next.h"
#include "record/shim.h"

namespace ts {

class Call {
 public:
  Call(Entry entry, void* block, std::size_t bytes, std::size_t alignment)
      : entry_{entry}, log2_alignment_{log2_of(alignment)}, given_{block} {
    record::ImagePlace* const image = record::own_image();
    if (image == nullptr) return;
    if (entry == Entry::free || entry == Entry::operator_delete || block != nullptr) {
      give_back(*image);
    } else {
      record::self.newest = nullptr;
      if (entry == Entry::operator_new) note_operator_request(bytes);
    }
  }

  void finish(void* block, std::size_t bytes) {
    record::ImagePlace* const image = record::own_image();
    if (image == nullptr) return;
    if (entry_ == Entry::free || entry_ == Entry::operator_delete) {
      record::self.giving = giving_before_;
    } else if (given_ != nullptr) {
      record::self.giving = giving_before_;
      if (leave_ticket_ != 0) {
        publish(*image, record::reserve(*image),
                record::Record::pack(record::RawKind::resize, number_of(block), 0), bytes,
                leave_ticket_);
      }
    } else {
      write_allocation(*image, block, bytes);
    }
  }

 private:
  // In place of blocks: the result of a refused allocation, and the argument of free(NULL).
  static const void* refusal() { return reinterpret_cast<const void*>(1); }
  static const void* nothing() { return reinterpret_cast<const void*>(2); }

  static std::uint64_t number_of(const void* block) {
    return reinterpret_cast<std::uintptr_t>(block);
  }
  // An alignment that is not a power of two is refused, or rounded up.
  static unsigned log2_of(std::size_t alignment) {
    return alignment <= 1 ? 0 : static_cast<unsigned>(std::bit_width(alignment - 1));
  }

  static record::RawKind kind_of(Entry entry, unsigned log2) {
    if (entry == Entry::aligned || log2 > 0) return record::RawKind::aligned;
    return entry == Entry::calloc ? record::RawKind::calloc : record::RawKind::malloc;
  }

  // Before the allocator gets the block: from then on another thread may get it.
  void give_back(record::ImagePlace& image) {
    giving_before_ = record::self.giving;
    const void* const giving = given_ != nullptr ? given_ : nothing();
    if (giving == giving_before_) return;  // recorded by an outer call
    record::self.giving = giving;
    if (given_ == nullptr) {
      record::note_ignored(image);
    } else {
      const bool is_resize = entry_ == Entry::realloc;
      const std::uint64_t ticket = record::write_event(
          image, is_resize ? record::RawKind::leave : record::RawKind::free, number_of(given_), 0);
      if (is_resize) leave_ticket_ = ticket;
      if (record::self.newest == given_) record::self.newest = nullptr;
    }
  }

  void note_operator_request(std::size_t bytes) const {
    const std::size_t mask = (std::size_t{1} << log2_alignment_) - 1;
    if (bytes != 0 && (bytes & mask) == 0) return;  // no request for another size has a reason
    record::self.wanted_bytes = bytes;
    record::self.wanted_log2 = log2_alignment_;
    record::self.has_operator_request = 1;
  }

  // Whether a request for this many bytes can come from the noted operator new.
  bool is_from_operator_request(std::size_t bytes) const {
    const record::Thread& self = record::self;
    const std::uint64_t more = bytes - self.wanted_bytes;
    if (self.wanted_log2 == 0) return log2_alignment_ == 0 && more <= 1;
    constexpr std::uint64_t least_alignment = 8;  // what memalign is asked for at least
    return log2_alignment_ != 0 &&
           more <= std::max(std::uint64_t{1} << self.wanted_log2, least_alignment);
  }

  // After the allocator has returned the block, and before the program has it.
  void write_allocation(record::ImagePlace& image, void* block, std::size_t bytes) const {
    record::Thread& self = record::self;
    const void* const mark = block != nullptr ? block : refusal();
    if (self.newest == mark) return;  // a nested call's
    unsigned log2 = log2_alignment_;
    if (self.has_operator_request != 0) [[unlikely]] {
      if (is_from_operator_request(bytes)) {
        bytes = self.wanted_bytes;
        log2 = self.wanted_log2;
      }
      self.has_operator_request = 0;
    }
    const record::RawKind kind =
        block != nullptr ? kind_of(entry_, log2) : record::RawKind::refused;
    record::write_event(image, kind, number_of(block), bytes, log2);
    self.newest = mark;
    if (self.giving == block) self.giving = nullptr;
  }

  Entry entry_;
  unsigned log2_alignment_;
  void* given_;
  const void* giving_before_ = nullptr;
  std::uint64_t leave_ticket_ = 0;  // of a resize: of its beginning
};

}  // namespace ts
