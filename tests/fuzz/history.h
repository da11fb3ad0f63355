// The last inputs of a process, in a file that outlives it: a heap that exists once per process
// carries state from input to input, so the last input may not reproduce a failure by itself.
// Written only if the environment variable FUZZ_HISTORY names a file; read by generated_inputs
// --history.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ts::fuzz {

struct History {
  static constexpr std::size_t most_inputs = 256;
  static constexpr std::size_t most_bytes = 4096;  // longer ones are truncated, and never occur

  struct Entry {
    std::uint64_t bytes;
    std::uint8_t data[most_bytes];
  };

  std::uint64_t inputs;        // so far,
  Entry entries[most_inputs];  // the last of them by number modulo most_inputs

  void add(const std::uint8_t* data, std::size_t bytes) {
    Entry& entry = entries[inputs++ % most_inputs];
    entry.bytes = std::min(bytes, most_bytes);
    if (bytes != 0) std::memcpy(entry.data, data, entry.bytes);
  }

  // The inputs in the file, oldest first.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const std::uint64_t first = inputs > most_inputs ? inputs - most_inputs : 0;
    for (std::uint64_t i = first; i < inputs; ++i) {
      const Entry& entry = entries[i % most_inputs];
      visit(entry.data, std::min<std::uint64_t>(entry.bytes, most_bytes));
    }
  }

  // The history in a file, created if missing; null on failure.
  static History* open(const char* path) {
    const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return nullptr;
    void* mapped = MAP_FAILED;
    if (::ftruncate(file, sizeof(History)) == 0)
      mapped = ::mmap(nullptr, sizeof(History), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return mapped != MAP_FAILED ? static_cast<History*>(mapped) : nullptr;
  }

  // Records an input if a history is wanted.
  static void note(const std::uint8_t* data, std::size_t bytes) {
    static History* const history = [] {
      const char* const path = std::getenv("FUZZ_HISTORY");
      return path != nullptr ? open(path) : nullptr;
    }();
    if (history != nullptr) history->add(data, bytes);
  }
};

}  // namespace ts::fuzz
