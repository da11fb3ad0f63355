// The engine in another process: locates its structures through the note that it left
// (engine/inspection.h), and copies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/inspection.h"
#include "inspect/process.h"

namespace ts {

inline std::uintptr_t address_in(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
// Of an element; both may be any number.
template <class T>
std::uintptr_t address_in(const T* array, std::size_t index) {
  return address_in(array) + index * sizeof(T);
}

// Storage for copies of the process's objects, which are not alive here.
template <class T>
class Copy {
 public:
  explicit Copy(std::size_t count = 1)
      : objects_{static_cast<T*>(std::aligned_alloc(alignof(T) < 64 ? 64 : alignof(T),
                                                    (count * sizeof(T) + 63) / 64 * 64))} {
    if (objects_ == nullptr) std::abort();
  }
  ~Copy() { std::free(objects_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  bool read(const Process& process, std::uintptr_t address, std::size_t count = 1) const {
    return process.read(address, objects_, count * sizeof(T));
  }
  // Only this many bytes of the first object.
  bool read_beginning(const Process& process, std::uintptr_t address, std::size_t bytes) const {
    return process.read(address, objects_, bytes);
  }
  const T& operator[](std::size_t i) const { return objects_[i]; }
  const T* operator->() const { return objects_; }

 private:
  T* objects_;
};

// A flag among them, which may be damaged: any nonzero byte is true.
inline bool is_set(const void* flag) { return *static_cast<const unsigned char*>(flag) != 0; }

// The result of the search for an engine.
enum class EngineStatus : std::uint8_t {
  engine,
  none,
  unused,         // not used yet
  other_version,  // with a different structure layout
  unreadable,     // EPERM, or the process has ended
};

class EngineImage {
 public:
  // Searches the files of the opened process for an engine in use.
  EngineStatus find(const Process& process);
  // Reads the engine again that was found.
  EngineStatus reload(const Process& process) { return look_at(process, note_); }

  // Of the process.
  std::uintptr_t page_heap() const { return place(offsetof(engine::Inspection, page_heap)); }
  std::uintptr_t given_back_bytes() const {
    return place(offsetof(engine::Inspection, given_back_bytes));
  }
  std::uintptr_t options() const { return place(offsetof(engine::Inspection, options)); }
  std::uintptr_t options_were_set() const {
    return place(offsetof(engine::Inspection, options_were_set));
  }
  std::uintptr_t attention() const { return place(offsetof(engine::Inspection, attention)); }
  std::uintptr_t samples() const { return place(offsetof(engine::Inspection, samples)); }
  std::uintptr_t module_table() const { return place(offsetof(engine::Inspection, module_table)); }

  // As it was when found, and plausible.
  const engine::PageMap& map() const { return map_[0]; }
  std::size_t page_count() const { return map_->page_count.load(std::memory_order_relaxed); }
  // Including the rest of the last huge page, which is committed but not in use yet.
  std::size_t committed_pages() const {
    constexpr std::size_t huge = engine::pages_per_huge_page;
    return (page_count() + huge - 1) / huge * huge;
  }
  std::uint32_t heap_count() const { return map_->heap_count.load(std::memory_order_relaxed); }

  // The engine's tables, as far as they are in use.
  template <std::size_t Count>
  struct RangesOf {
    Range ranges[Count];
    const Range* begin() const { return ranges; }
    const Range* end() const { return ranges + Count; }
  };
  using Tables = RangesOf<6>;
  Tables tables() const;
  // Including the pages that they describe; by address.
  using Ranges = RangesOf<7>;
  Ranges ranges() const;
  bool has(const Range& range) const;

 private:
  EngineStatus look_at(const Process& process, std::uintptr_t note);
  std::uintptr_t place(std::size_t field) const;

  std::uintptr_t note_ = 0;
  engine::Inspection inspection_{};
  Copy<engine::PageMap> map_;
};

}  // namespace ts
