// Records which addresses a replay got and freed, and in which order, from which the lab draws the
// heap over time. docs/formats/trace.md describes the file.
//
// The file is mapped, and none of it is anonymous memory, which replay measures.
#pragma once

#include <atomic>
#include <cstdint>

#include "replay/frames.h"

namespace ts::replay {

struct LoggedAddress {
  std::uint64_t address;
  std::uint64_t size : 40;  // requested; 0: the block at this address is freed
  std::uint64_t thread : 24;
};
static_assert(sizeof(LoggedAddress) == 16);

class AddressLog {
 public:
  // path: null for no log. most: the maximum number of entries. frames: how often to query which
  // pages are resident. Returns an error number.
  int open(const char* path, std::uint64_t maximum, std::uint64_t frames);

  void add(const void* block, std::uint64_t size, std::uint32_t thread) {
    if (entries_ == nullptr || block == nullptr) return;
    // relaxed: each gets a place of its own, and they are read when all threads have ended
    const std::uint64_t place = count_.fetch_add(1, std::memory_order_relaxed);
    if (frames_.is_due(place)) frames_.take(place);
    entries_[place] = {reinterpret_cast<std::uintptr_t>(block), size & 0xff'ffff'ffff,
                       thread & 0xff'ffff};
  }

  int close();  // truncates the file to its contents

 private:
  LoggedAddress* entries_ = nullptr;
  std::uint64_t bytes_ = 0;
  int file_ = -1;
  Frames frames_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace ts::replay
