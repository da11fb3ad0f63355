// Memory for replay's own arrays, in separate mappings.
//
// The allocator under test must get the plan's calls and nothing else, and replay's own memory must
// not be counted as the allocator's. Shared mappings count as shared memory, never as anonymous; a
// forked child sees them too. Private ones, of which a forked child gets a copy, are made resident
// at once, with small pages, so that their size is known: own_bytes(). Replay exits if it gets no
// memory for its tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace ts::replay {

enum class Backing : std::uint8_t { shared, resident_private, private_on_demand };

// Zeroed pages; exits when there are none.
void* map_pages(std::size_t bytes, Backing backing);
void unmap_pages(void* pages, std::size_t bytes, Backing backing);

// Makes part of private pages resident, and counts it as own.
void make_resident(void* pages, std::size_t bytes);

// Resident anonymous bytes of replay's own.
std::uint64_t own_bytes();

// Private pages mapped since remember_own(): for up to some thousand mappings, including those
// unmapped by now.
struct PageRange {
  std::uint64_t begin;
  std::uint64_t end;
};
void remember_own();
std::span<const PageRange> own_ranges();

// An array that begins as zero bytes, which must be a valid T.
template <class T>
class Mapped {
 public:
  Mapped(std::size_t count, Backing backing)
      : items_{static_cast<T*>(map_pages(count * sizeof(T), backing))},
        count_{count},
        backing_{backing} {}
  ~Mapped() { unmap_pages(items_, count_ * sizeof(T), backing_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  T& operator[](std::size_t index) const { return items_[index]; }
  T* begin() const { return items_; }
  T* end() const { return items_ + count_; }
  std::size_t size() const { return count_; }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  T* items_;
  std::size_t count_;
  Backing backing_;
};

}  // namespace ts::replay
