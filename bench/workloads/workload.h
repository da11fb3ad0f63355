// Shared by the workloads and the experiments' programs: blocks that detect damage, random numbers
// that cost little compared with a malloc, a clock, and the two lines at the end. Nothing here
// allocates, and a single-threaded program needs only libc, so that its peak is the allocator's
// rather than the C++ library's. Does not check every byte: it must cost less than the allocator.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "programs/support/arguments.h"
#include "programs/support/mapped_array.h"
#include "programs/support/random.h"

namespace ts::bench {

using test::Arguments;
using test::MappedArray;
using test::Random;
using test::seed_of;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::_Exit(1);
}

// 0 to `limit` - 1, for limits below 2^32. Random::below() divides, which is as slow as a malloc.
inline std::size_t pick(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(((random.next() >> 32) * limit) >> 32);
}

// An option that must not be 0.
inline std::size_t positive(Arguments& arguments, const char* name, std::uint64_t otherwise,
                            const char* help) {
  const std::uint64_t value = arguments.number(name, otherwise, help);
  if (value == 0) arguments.fail("must be positive, not", "0", name);
  return value;
}

// The sizes of a workload's requests: uniform from `least` to `most`.
class Sizes {
 public:
  Sizes(Arguments& arguments, std::size_t least, std::size_t most)
      : least_{positive(arguments, "least", least, "bytes of a block")},
        most_{positive(arguments, "most", most, "bytes of a block")} {
    if (most_ < least_ || most_ >= std::size_t{1} << 31) arguments.fail("is no", "range", "most");
  }

  std::size_t pick(Random& random) const {
    return least_ + bench::pick(random, most_ - least_ + 1);
  }
  std::size_t least() const { return least_; }

 private:
  std::size_t least_;
  std::size_t most_;
};

inline constexpr std::size_t touched_page_bytes = 4096;

// A block and what its holder wrote to it. All zero: no block.
struct Block {
  unsigned char* address;
  std::uint32_t bytes;
  unsigned char mark;  // never 0, unlike fresh memory
};

// Odd, and different for neighbours.
constexpr unsigned char mark_of(std::size_t number) {
  return static_cast<unsigned char>(number << 1 | 1);
}

// Writes the first byte, one byte in each page, and the last byte: enough to make the memory
// resident and to touch a cache line or two of a small block. `bytes` > 0.
inline void touch(unsigned char* address, std::size_t bytes, unsigned char mark) {
  for (std::size_t at = 0; at < bytes; at += touched_page_bytes) address[at] = mark;
  address[bytes - 1] = mark;
}

// Allocates and touches. `number` distinguishes blocks that live at the same time.
inline Block take(std::size_t bytes, std::size_t number) {
  const Block block{static_cast<unsigned char*>(std::malloc(bytes)),
                    static_cast<std::uint32_t>(bytes), mark_of(number)};
  if (block.address == nullptr) fail("malloc returned null");
  touch(block.address, bytes, block.mark);
  return block;
}

inline void check(const Block& block) {
  if (block.address[0] != block.mark || block.address[block.bytes - 1] != block.mark)
    fail("the content of a live block changed");
}

// Checks and frees; does nothing for no block.
inline void give(const Block& block) {
  if (block.address == nullptr) return;
  check(block);
  std::free(block.address);
}

class Stopwatch {
 public:
  double seconds() const { return now() - began_; }

 private:
  static double now() {
    std::timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  double began_ = now();
};

// By write(): a stream would ask malloc for its buffer. `length` is what snprintf returned.
inline void print(const char* text, int length) {
  if (::write(STDOUT_FILENO, text, static_cast<std::size_t>(length)) != length)
    fail("the result could not be written");
}

// Prints a line `name: NUMBER`, for experiments; before report().
inline void tell(const char* name, std::size_t value) {
  char text[128];
  print(text, std::snprintf(text, sizeof text, "%s: %zu\n", name, value));
}

// The same for seconds per operation, to the picosecond.
inline void tell_each(const char* name, double seconds, std::size_t operations) {
  char text[128];
  print(text, std::snprintf(text, sizeof text, "%s: %.12f\n", name,
                            seconds / static_cast<double>(operations)));
}

// Prints the end of a workload's output.
inline void report(std::size_t operations, double seconds) {
  char text[128];
  print(text,
        std::snprintf(text, sizeof text, "operations: %zu\nseconds: %.6f\n", operations, seconds));
}

}  // namespace ts::bench
