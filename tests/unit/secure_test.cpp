// The parts of the hardened heap: sizes, random numbers, the quarantine, the table of large blocks.
#include "secure/secure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "os/cgroup.h"
#include "os/os.h"
#include "programs/support/seccomp.h"
#include "secure/large_block.h"
#include "secure/large_table.h"
#include "secure/mappings.h"
#include "secure/quarantine.h"
#include "secure/random.h"
#include "secure/size_classes.h"
#include "secure/slab.h"
#include "secure/slab_layout.h"
#include "secure/space.h"

namespace ts::secure {
namespace {

TEST(SecureSizes, SlabsHaveRoomForTheirSlotsAndAGuard) {
  for (const std::size_t page : {4096U, 16384U, 65536U}) {
    for (unsigned number = 0; number < class_count; ++number) {
      const SizeClass c = make_class(number, page);
      EXPECT_LE(std::size_t{c.slots} * c.slot_bytes, c.slab_bytes);
      EXPECT_LE(c.slots, max_slab_slots);
      EXPECT_EQ(c.slab_bytes % page, 0U);
      EXPECT_EQ(c.slab_bytes + page, c.pitch_bytes);
      EXPECT_GE(c.waiting, 1U);
      EXPECT_LE(c.waiting, max_waiting);
      EXPECT_TRUE(has_sound_layout(c));
    }
  }
}

// The largest region has 2^23 pages. Wrong inverses show just before a multiple of the divisor.
TEST(SecureSizes, InversesDivideExactly) {
  constexpr std::size_t end = std::size_t{1} << 23;
  for (const std::size_t page : {4096U, 16384U, 65536U}) {
    for (unsigned number = 0; number < class_count; ++number) {
      const SizeClass c = make_class(number, page);
      const std::size_t group = group_bytes(c) / min_page_bytes;
      for (std::size_t n = group; n < end; n += group) {
        ASSERT_EQ(quotient(n - 1, c.by_group), n / group - 1);
        ASSERT_EQ(quotient(n, c.by_group), n / group);
      }
      for (std::size_t offset = 0; offset < guarded_bytes(c); offset += min_page_bytes) {
        ASSERT_EQ(quotient(offset / min_page_bytes, c.by_pitch), offset / c.pitch_bytes);
        ASSERT_EQ(quotient(offset / min_page_bytes, c.by_slab), offset / c.slab_bytes);
      }
      for (std::size_t offset = 0; offset < c.slab_bytes; offset += min_alignment)
        ASSERT_EQ(quotient(offset / min_alignment, c.by_slot), offset / c.slot_bytes);
    }
  }
}

TEST(SecureZero, EachByteCounts) {
  std::vector<std::byte> memory(512);
  for (std::size_t bytes = 0; bytes + 16 <= memory.size(); bytes += 8) {
    ASSERT_TRUE(is_zero(memory.data(), bytes));
    memory[bytes] = std::byte{1};
    ASSERT_TRUE(is_zero(memory.data(), bytes));
    memory[bytes] = std::byte{0};
    for (std::size_t at = 0; at < bytes; ++at) {
      memory[at] = std::byte{0x80};
      ASSERT_FALSE(is_zero(memory.data(), bytes)) << at << " of " << bytes;
      memory[at] = std::byte{0};
    }
  }
}

// The first block of ChaCha8 under a key of zeros, as published (Strombergson, draft-strombergson-
// chacha-test-vectors-01, TC1).
TEST(SecureRandom, IsChaCha8) {
  const ChaChaKey key{};
  ChaChaBlock block;
  make_block(key, 0, block);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(block);
  std::string text;
  for (std::size_t i = 0; i < sizeof block; ++i) {
    static constexpr char digits[] = "0123456789abcdef";
    text += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
  }
  EXPECT_EQ(text,
            "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
            "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42");
}

TEST(SecureRandom, DrawsEachNumberAboutAsOften) {
  const auto random = std::make_unique<Random>();
  for (const std::uint32_t limit : {1U, 3U, 100U, 341U, 512U}) {
    std::vector<unsigned> drawn(limit);
    constexpr unsigned each = 400;
    for (unsigned i = 0; i < each * limit; ++i) ++drawn.at(random->below(limit));
    for (const unsigned count : drawn) {
      EXPECT_GT(count, each / 2);
      EXPECT_LT(count, each * 2);
    }
  }
}

TEST(SecureRandom, IsAnotherOneInEachGeneratorAndAfterAFork) {
  const auto a = std::make_unique<Random>();
  const auto b = std::make_unique<Random>();
  std::set<std::uint64_t> drawn;
  for (int i = 0; i < 1000; ++i) {
    drawn.insert(a->next_64());
    drawn.insert(b->next_64());
  }
  const Random parents = *a;
  Random::reset_after_fork();
  auto parents_own = std::make_unique<Random>(parents);
  drawn.insert(parents_own->next_64());
  drawn.insert(a->next_64());
  EXPECT_EQ(drawn.size(), 2002U);
}

// Every pointer that goes in comes out once, after at least as many others as the queue is long.
TEST(SecureQuarantine, KeepsEachForAWhile) {
  constexpr unsigned length = 16;
  const auto random = std::make_unique<Random>();
  const auto quarantine = std::make_unique<Quarantine<64>>();
  std::set<std::uint32_t> inside;
  unsigned long waited = 0;
  unsigned came = 0;
  for (std::uint32_t number = 1; number <= 5000; ++number) {
    inside.insert(number);
    const std::uint32_t out = quarantine->exchange(number, length, *random);
    ASSERT_FALSE(quarantine->find_fault(length));
    if (out == 0) continue;
    ASSERT_EQ(inside.erase(out), 1U);
    ASSERT_GE(number - out, length);
    waited += number - out;
    ++came;
  }
  EXPECT_EQ(inside.size(), 2 * length);
  std::set<std::uint32_t> visited;
  quarantine->for_each([&](std::uint32_t number) { visited.insert(number); });
  EXPECT_EQ(visited, inside);
  EXPECT_TRUE(quarantine->find_fault(length / 2)) << "numbers behind the length";
  EXPECT_NEAR(static_cast<double>(waited) / came, 2.0 * length, 3.0);
}

// A slab whose first slots are in use, followed by one waiting, and the rest free.
Slab make_slab() {
  Slab slab{};
  slab.bits[0].used = 0b0111;
  slab.bits[0].waiting = 0b1000;
  slab.used_slots = 3;
  slab.waiting_slots = 1;
  slab.canary = make_canary(0x1234'5678);
  slab.state = SlabState::partial;
  return slab;
}

TEST(SecureSlab, EachBrokenInvariantIsFound) {
  const SizeClass& c = size_class_of(class_for(1000));
  ASSERT_GT(c.slots, 4U);
  ASSERT_LT(c.slots, 64U);
  EXPECT_FALSE(find_slab_fault(make_slab(), c));
  const auto fault_of = [&](auto&& damage) {
    Slab slab = make_slab();
    damage(slab);
    const Fault fault = find_slab_fault(slab, c);
    return std::string{fault ? fault.equation : "none"};
  };
  EXPECT_EQ(fault_of([](Slab& s) { s.bits[0].waiting |= 1; }),
            "a slot is either in use or waiting");
  EXPECT_EQ(fault_of([&](Slab& s) { s.bits[0].used |= std::uint64_t{1} << c.slots; }),
            "a slab has no slot behind its last");
  EXPECT_EQ(fault_of([](Slab& s) { s.bits[7].waiting = 1; }), "a slab has no slot behind its last");
  EXPECT_EQ(fault_of([](Slab& s) { s.leaving = 1; }), "a slot that is leaving is waiting");
  EXPECT_EQ(fault_of([](Slab& s) { ++s.used_slots; }), "used_slots counts the slots in use");
  EXPECT_EQ(fault_of([](Slab& s) { --s.waiting_slots; }), "waiting_slots counts the waiting slots");
  EXPECT_EQ(fault_of([](Slab& s) { s.canary ^= 0x100; }), "a canary begins with a zero and a mark");
  for (const SlabState wrong : {SlabState::full, SlabState::empty}) {
    EXPECT_EQ(fault_of([&](Slab& s) { s.state = wrong; }), "a slab's state is that of its slots");
  }
  for (const SlabState wrong : {SlabState::given_back, SlabState::leaving}) {
    EXPECT_EQ(fault_of([&](Slab& s) { s.state = wrong; }),
              "a slab that is given back has free slots only");
  }
}

// A block as it is in its slot.
struct TailedBlock {
  TailedBlock(const SizeClass& c, std::size_t asked, std::uint64_t canary) : memory(c.slot_bytes) {
    write_tail(memory.data(), c, asked, canary);
  }
  std::vector<std::byte> memory;
};

// And at once ends a string that has no end, so that only the requested bytes are read.
TEST(SecureTail, TellsWhatWasAskedFor) {
  const auto random = std::make_unique<Random>();
  for (unsigned number = 1; number < class_count; ++number) {
    const SizeClass& c = size_class_of(number);
    for (std::size_t asked = 0; asked <= c.block_bytes;
         asked += c.block_bytes - asked > 20 + asked / 50 ? 1 + asked / 50 : 1) {
      const std::uint64_t canary = make_canary(random->next_64());
      const TailedBlock block{c, asked, canary};
      ASSERT_EQ(asked_by_tail(block.memory.data(), c, canary, asked), asked);
      ASSERT_TRUE(is_zero_around(block.memory.data(), tail_words(c, asked)));
      const TailedBlock other{c, asked, make_canary(~std::uint64_t{0})};
      ASSERT_EQ(other.memory.at(asked), std::byte{0}) << asked;
    }
  }
}

// The mark and the word detect any change. Between them: any but none.
TEST(SecureTail, EachChangedBitIsFound) {
  const auto random = std::make_unique<Random>();
  for (const std::size_t asked : {1U, 7U, 8U, 100U, 103U, 104U, 2040U, 5000U, 100'000U}) {
    const SizeClass& c = size_class_of(class_for(asked));
    const std::uint64_t canary = make_canary(random->next_64());
    TailedBlock block{c, asked, canary};
    for (std::size_t at = asked; at < c.slot_bytes; ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        const std::byte kept = block.memory[at];
        block.memory[at] ^= std::byte{1} << bit;
        ASSERT_EQ(asked_by_tail(block.memory.data(), c, canary, asked), no_size)
            << asked << ' ' << at;
        block.memory[at] = kept;
      }
    }
    EXPECT_EQ(asked_by_tail(block.memory.data(), c, canary, asked), asked);
  }
}

// One zero changes nothing, and each following one does.
TEST(SecureTail, FindsTwoZeros) {
  for (const std::size_t asked : {1U, 100U, 103U, 118U, 119U, 120U, 5000U, 20'000U, 65'536U}) {
    const SizeClass& c = size_class_of(class_for(asked));
    const std::uint64_t canary = make_canary(~std::uint64_t{0});
    TailedBlock block{c, asked, canary};
    block.memory.at(asked) = std::byte{0};
    EXPECT_EQ(asked_by_tail(block.memory.data(), c, canary, asked), asked);
    block.memory.at(asked + 1) = std::byte{0};
    EXPECT_EQ(asked_by_tail(block.memory.data(), c, canary, asked), no_size) << asked;
  }
}

TEST(SecureTail, EachChangedBitBehindALargeBlockIsFound) {
  for (const std::size_t bytes : {1U, 2U, 5U, 7U, 8U, 9U, 15U, 16U, 19U, 100U, 4095U}) {
    const std::uint64_t canary = make_canary(0x9876'5432'1012'3456);
    // A short tail is read together with the bytes before it.
    std::vector<std::byte> page(sizeof canary + bytes);
    std::byte* const tail = page.data() + sizeof canary;
    write_large_tail(tail, bytes, canary);
    ASSERT_TRUE(is_large_tail_intact(tail, bytes, canary));
    ASSERT_EQ(*tail, std::byte{0}) << "a string ends here";
    for (std::size_t i = 0; i < bytes; ++i) {
      tail[i] ^= std::byte{0x80};
      ASSERT_FALSE(is_large_tail_intact(tail, bytes, canary)) << bytes;
      tail[i] ^= std::byte{0x80};
    }
  }
}

TEST(SecureLargeBlock, EachBrokenInvariantIsFound) {
  LargeBlock right{};
  right.reserved_begin = 100 * min_page_bytes;
  right.reserved_bytes = 5 * min_page_bytes;
  right.begin = 101 * min_page_bytes;
  right.bytes = 2 * min_page_bytes + 1;
  right.canary = make_canary(0);
  EXPECT_FALSE(find_block_fault(right));
  const auto is_found = [&](auto&& damage) {
    LargeBlock block = right;
    damage(block);
    return static_cast<bool>(find_block_fault(block));
  };
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.begin += 16; }));
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.bytes += min_page_bytes; }));
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.begin -= min_page_bytes; }));
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.begin -= 2 * min_page_bytes; }));
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.reserved_bytes -= min_page_bytes; }));
  EXPECT_TRUE(is_found([](LargeBlock& b) { b.canary = 1; }));
}

TEST(SecureLargeTable, AgreesWithAMap) {
  const auto random = std::make_unique<Random>();
  LargeTable table{};
  std::map<std::uintptr_t, std::size_t> model;
  for (unsigned step = 0; step < 30'000; ++step) {
    // Few addresses, many of them repeated, so that they collide.
    const std::uintptr_t begin = (1 + random->below(3000)) * min_page_bytes;
    LargeBlock* const found = table.find(begin);
    ASSERT_EQ(found != nullptr, model.contains(begin));
    const bool grows = random->below(2000) < 2000 - model.size();
    if (found != nullptr) {
      ASSERT_EQ(found->bytes, model[begin]);
      if (grows) continue;
      table.erase(*found);
      model.erase(begin);
    } else if (grows) {
      ASSERT_TRUE(table.promise_place());
      LargeBlock block{};
      block.begin = begin;
      block.bytes = step;
      block.reserved_begin = begin - 16;
      block.reserved_bytes = min_page_bytes;
      table.insert(block);
      model[begin] = step;
      ASSERT_EQ(table.find_around(begin + 100)->begin, begin);
    }
    if (step % 1000 == 0) {
      ASSERT_FALSE(table.find_fault());
    }
  }
  std::size_t count = 0;
  table.for_each([&](const LargeBlock& block) { count += model.contains(block.begin) ? 1 : 0; });
  EXPECT_EQ(count, model.size());
}

// Runs in a child, since it uses up addresses of the whole process.
template <class Body>
void in_child(Body body) {
  EXPECT_EXIT(
      {
        body();
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

std::size_t mapping_count() {
  std::ifstream maps{"/proc/self/maps"};
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// A process may have about 65,000 mappings.
TEST(SecureHeap, NeedsFewMappingsForManyBlocks) {
  Secure heap;
  const std::size_t before = mapping_count();
  std::vector<void*> blocks(100'000);
  for (void*& block : blocks) block = heap.allocate(500, 16);
  EXPECT_LT(mapping_count() - before, 1000U);  // 3,125 slabs, and as many guard pages
  EXPECT_TRUE(heap.is_valid());
  for (void* const block : blocks) heap.release(block);
  EXPECT_TRUE(heap.is_valid());
}

// Mappings run out early: blocks of all sizes and alignments, resized, moved, freed and allocated
// again, keep their contents, need few further mappings, and are zeroed when allocated.
TEST(SecureHeap, GoesOnWithoutFurtherMappings) {
  in_child([] {
    Secure heap;
    heap.release(heap.allocate(100, 16));
    constexpr std::int64_t few = 200;
    roots.counts->mappings.fewer = max_mappings - few;
    [[maybe_unused]] const std::size_t before = mapping_count();
    const auto random = std::make_unique<Random>();
    struct Block {
      char* begin;
      std::size_t bytes;
    };
    constexpr std::size_t count = 600;
    std::vector<Block> blocks(count);
    const auto is_intact = [](const Block& b) {
      return b.begin[0] == static_cast<char>(b.bytes) &&
             b.begin[b.bytes - 1] == static_cast<char>(b.bytes);
    };
    const auto mark_ends = [](Block& b) {
      b.begin[0] = static_cast<char>(b.bytes);
      b.begin[b.bytes - 1] = static_cast<char>(b.bytes);
    };
    for (unsigned step = 0; step < 8 * count; ++step) {
      Block& block = blocks[random->below(count)];
      if (block.begin != nullptr && step % 4 == 0) {
        ASSERT_TRUE(is_intact(block));
        const std::size_t bytes = block.bytes * (50 + random->below(100)) / 100 + 1;
        const char first = block.begin[0];
        if (heap.resize(block.begin, bytes)) {
          ASSERT_EQ(block.begin[0], first);
        } else if (void* const moved = heap.move(block.begin, bytes); moved != nullptr) {
          block.begin = static_cast<char*>(moved);
        } else {
          continue;
        }
        block.bytes = bytes;
      } else if (block.begin != nullptr && step % 4 == 1) {
        ASSERT_TRUE(is_intact(block));
        heap.release(block.begin);
        block = {};
        continue;
      } else if (block.begin == nullptr) {
        const unsigned width = 15 + random->below(7);
        block.bytes = (std::size_t{1} << width) + random->below(1 << 15);
        if (step % 5 == 0) block.bytes = align_up(block.bytes, page_bytes());
        const std::size_t alignment = std::size_t{16} << random->below(16);
        block.begin = static_cast<char*>(heap.allocate(block.bytes, alignment));
        ASSERT_NE(block.begin, nullptr);
        ASSERT_EQ(address_of(block.begin) % alignment, 0U);
        for (std::size_t at = 0; at < block.bytes; at += 1000) ASSERT_EQ(block.begin[at], 0);
        ASSERT_EQ(block.begin[block.bytes - 1], 0);
      } else {
        continue;
      }
      ASSERT_EQ(Secure::usable_size(block.begin), block.bytes);
      mark_ends(block);
      if (step % 500 == 0) {
        ASSERT_TRUE(heap.is_valid());
#if !defined(__SANITIZE_THREAD__)  // which maps memory of its own
        EXPECT_LT(mapping_count(), before + 3 * few);
#endif
      }
    }
    // Part of a group also ends with a tail.
    void* pages = nullptr;
    for (int i = 0; i < 20; ++i) pages = heap.allocate(64 * page_bytes(), 16);
    static_cast<char*>(pages)[64 * page_bytes()] = 1;
    EXPECT_FALSE(heap.is_valid());
    static_cast<char*>(pages)[64 * page_bytes()] = 0;
    for (const Block& block : blocks) heap.release(block.begin);
    heap.trim(0);
    EXPECT_TRUE(heap.is_valid());
    EXPECT_LT(roots.counts->mappings.of_slabs, few);
  });
}

// A range is reused after its quarantine: few mappings are made, and each block is zeroed.
TEST(SecureHeap, UsesRangesOfLargeBlocksAgain) {
  Secure heap;
  constexpr std::size_t bytes = 200'000;
  std::size_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 200) before = heap.measures().grow_calls;
    auto* const block = static_cast<char*>(heap.allocate(bytes + i, 16));
    ASSERT_NE(block, nullptr);
    for (std::size_t at = 0; at < bytes; at += 1000) ASSERT_EQ(block[at], 0);
    std::memset(block, 1, bytes);
    heap.release(block);
    if (i % 100 == 0) {
      ASSERT_TRUE(heap.is_valid());
    }
  }
  EXPECT_LT(heap.measures().grow_calls - before, 40U);
}

TEST(SecureHeap, ResizesInPlaceToWhatIsAskedFor) {
  Secure heap;
  auto* const block = static_cast<char*>(heap.allocate(110, 16));
  std::size_t kept = 110;
  std::memset(block, 'x', kept);
  for (const std::size_t bytes :
       {std::size_t{120}, std::size_t{105}, std::size_t{119}, std::size_t{112}}) {
    ASSERT_TRUE(heap.resize(block, bytes));
    EXPECT_EQ(Secure::usable_size(block), bytes);
    kept = std::min(kept, bytes);
    for (std::size_t at = 0; at < bytes; ++at) ASSERT_EQ(block[at], at < kept ? 'x' : 0) << at;
    EXPECT_TRUE(heap.is_valid());
  }
  EXPECT_FALSE(heap.resize(block, 121));
  heap.release(block);
}

// Until it grows, or another block gets its addresses: with the old contents after it, that would
// look damaged, and expose them.
TEST(SecureHeap, ALargeBlockShrinksWhereTheSystemTakesNoPages) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer maps memory of its own, and aborts if that is refused";
#endif
  in_child([] {
    Secure heap;
    constexpr std::size_t bytes = 60 * 4096 - 100;
    void* const block = heap.allocate(bytes, 16);
    std::memset(block, 'x', bytes);
    if (stop_calls(SYS_mmap, SYS_madvise, SECCOMP_RET_ERRNO | ENOMEM) != 0) return;
    ASSERT_TRUE(heap.resize(block, 40 * 4096));
    EXPECT_FALSE(heap.resize(block, bytes));
    EXPECT_EQ(Secure::usable_size(block), 40U * 4096);
    EXPECT_TRUE(heap.resize(block, 39 * 4096));
    heap.release(block);
    EXPECT_TRUE(heap.is_valid());
  });
}

// Takes all addresses from a given one on, leaving gaps of less than 64 KiB.
void take_addresses_above(std::uintptr_t lowest) {
  for (std::size_t bytes = std::size_t{1} << 46; bytes >= std::size_t{64} << 10;) {
    void* const begin = os::reserve(bytes);
    if (begin != nullptr && address_of(begin) >= lowest) continue;
    if (begin != nullptr) os::unmap(begin, bytes);
    bytes /= 2;
  }
}

// Then the system places the next mapping in a region.
TEST(SecureHeap, LargeBlocksLieOutsideOfTheRegions) {
  Secure heap;
  heap.release(heap.allocate(100, 16));
  if (roots.is_reserved) GTEST_SKIP() << "the regions are mapped as a whole";
  in_child([&] {
    const std::uintptr_t end = region_begin(roots.arenas * regions_per_arena);
    take_addresses_above(end);
    std::vector<void*> blocks;
    const std::size_t most =
        os::machine_memory() / 2;  // of one request; else the system refuses it
    for (const std::size_t bytes :
         {std::size_t{300'000}, std::size_t{10'000'000}, most / 8, most}) {
      for (int i = 0; i < 40; ++i) {
        void* const block = heap.allocate(bytes, i % 2 == 0 ? 16 : 1 << 20);
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(address_of(block) >= end || address_of(block) + bytes < roots.tables);
        blocks.push_back(block);
      }
    }
    EXPECT_EQ(heap.allocate(std::size_t{1} << 46, 16), nullptr);
    for (void* const block : blocks) heap.release(block);
    EXPECT_TRUE(heap.is_valid());
  });
}

// A mapping of the program takes a slab's place, but the program loses no memory.
TEST(SecureHeap, GoesOnWhereARegionIsTaken) {
  Secure heap;
  constexpr std::size_t bytes = 3000;
  void* const first = heap.allocate(bytes, 16);
  if (roots.is_reserved) GTEST_SKIP() << "the regions are mapped as a whole";
  in_child([&] {
    const std::uintptr_t behind = align_up(address_of(first), page_bytes()) + (128U << 10);
    ASSERT_TRUE(os::reserve_at(reinterpret_cast<void*>(behind), std::size_t{1} << 30));
    std::vector<void*> blocks{first};
    for (int i = 0; i < 300; ++i) {
      void* const block = heap.allocate(bytes, 16);
      ASSERT_NE(block, nullptr);
      std::memset(block, i, bytes);
      blocks.push_back(block);
    }
    EXPECT_TRUE(heap.is_valid());
    for (void* const block : blocks) heap.release(block);
    EXPECT_TRUE(heap.is_valid());
  });
}

}  // namespace
}  // namespace ts::secure
