// Aligned allocation: every power of two from 1 byte to 1 GB, by every function that takes one.
// Blocks are aligned and long enough, and the memory lost to alignment is bounded.
// (conformance/aligned.c has many blocks at once.)
#include <malloc.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include "check.h"

namespace {

constexpr std::size_t gigabyte = std::size_t{1} << 30;

struct Function {
  const char* name;
  void* (*allocate)(std::size_t alignment, std::size_t bytes);
  void (*release)(void* block, std::size_t alignment);
};

void release_by_free(void* block, std::size_t) { std::free(block); }

void* by_posix(std::size_t alignment, std::size_t bytes) {
  void* block = nullptr;
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  const int error = posix_memalign(&block, alignment, bytes);
  EXPECT(error == 0 || error == ENOMEM, "posix_memalign(%zu, %zu) returned %d", alignment, bytes,
         error);
  return block;
}

const Function functions[] = {
    {"posix_memalign", by_posix, release_by_free},
    {"aligned_alloc", [](std::size_t a, std::size_t n) { return std::aligned_alloc(a, n); },
     release_by_free},
    {"memalign", [](std::size_t a, std::size_t n) { return memalign(a, n); }, release_by_free},
    {"operator new",
     [](std::size_t a, std::size_t n) {
       return ::operator new(n, std::align_val_t{a}, std::nothrow);
     },
     [](void* block, std::size_t a) { ::operator delete(block, std::align_val_t{a}); }},
};

// Both ends of the range: what lies between costs memory and proves nothing more.
void expect_writable(char* begin, std::size_t bytes) {
  const std::size_t end = bytes < 2048 ? bytes : 2048;
  fill(begin, end, 1);
  fill(begin + bytes - end, end, 2);
  EXPECT_FILLED(begin + bytes - end, end, 2);
  if (bytes >= 2 * end) EXPECT_FILLED(begin, end, 1);
}

// One block at a time, because of the address space each needs.
CHECK("alignments to 1 GB") {
  std::size_t refused = 0;
  for (std::size_t alignment = 1; alignment <= gigabyte; alignment *= 2) {
    for (const Function& function : functions) {
      for (const std::size_t bytes : {std::size_t{1}, alignment / 2 + 1, alignment}) {
        auto* const block = static_cast<char*>(function.allocate(alignment, bytes));
        if (block == nullptr && alignment > gigabyte / 16 && !library_is_engine()) {
          ++refused;
          continue;
        }
        REQUIRE(block != nullptr, "%s(%zu, %zu) is null", function.name, alignment, bytes);
        EXPECT(reinterpret_cast<std::uintptr_t>(block) % alignment == 0, "%s(%zu, %zu) is %p",
               function.name, alignment, bytes, static_cast<void*>(block));
        const std::size_t usable = malloc_usable_size(block);
        EXPECT(usable >= bytes, "%s(%zu, %zu): usable size %zu", function.name, alignment, bytes,
               usable);
        expect_writable(block, usable);
        function.release(block, alignment);
      }
    }
  }
  if (refused != 0) report_figure("%zu requests of 128 MB and more were refused", refused);
}

// Written memory, and address space, of many blocks of one alignment and size.
CHECK("what alignment costs is bounded") {
  enum { most_blocks = 4000 };
  static char* block[most_blocks];
  double worst_memory = 0;
  std::size_t worst_alignment = 0;
  std::size_t worst_bytes = 0;
  double worst_addresses = 0;
  for (std::size_t alignment = 32; alignment <= std::size_t{1} << 20; alignment *= 2) {
    for (const std::size_t bytes : {alignment / 2, alignment, alignment + alignment / 4}) {
      const std::size_t wanted = bytes > alignment ? 2 * alignment : alignment;
      std::size_t count = (std::size_t{24} << 20) / wanted;
      if (count > most_blocks) count = most_blocks;
      const std::size_t written = anonymous_bytes();
      const std::size_t addresses = address_space_bytes();
      for (std::size_t i = 0; i < count; ++i) {
        block[i] = static_cast<char*>(memalign(alignment, bytes));
        REQUIRE(block[i] != nullptr, "memalign(%zu, %zu) is null", alignment, bytes);
        std::memset(block[i], 1, bytes);
      }
      const auto least = static_cast<double>(count * wanted);
      const double memory = static_cast<double>(anonymous_bytes()) - static_cast<double>(written);
      const double space =
          static_cast<double>(address_space_bytes()) - static_cast<double>(addresses);
      // Compared with blocks at every multiple of the alignment, which no allocator can beat by
      // much.
      if (memory / least > worst_memory) {
        worst_memory = memory / least;
        worst_alignment = alignment;
        worst_bytes = bytes;
      }
      if (space / least > worst_addresses) worst_addresses = space / least;
      for (std::size_t i = 0; i < count; ++i) std::free(block[i]);
      malloc_trim(0);
    }
  }
  report_figure("at most %.2f times the memory and %.2f times the addresses of blocks side by side",
                worst_memory, worst_addresses);
  EXPECT(worst_memory < 1.75 || !library_is_engine(),
         "%.2f times the memory, of %zu bytes at multiples of %zu", worst_memory, worst_bytes,
         worst_alignment);
  EXPECT(worst_addresses < 6 || !library_is_engine(), "%.2f times the addresses", worst_addresses);
}

}  // namespace
