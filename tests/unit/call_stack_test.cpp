// Call stacks of this program, and walks over hand-built stacks. tests/unwind compares with another
// unwinder.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "unwind/call_stack_walk.h"
#include "unwind/row_cache.h"
#include "unwind/unwind.h"

namespace ts::testing {
namespace {

using os::max_stack_frames;
using os::UnwoundStack;

constexpr std::size_t page = 4096;

// This many readable pages, followed by one that is not.
class Pages {
 public:
  explicit Pages(std::size_t count) : count_{count} {
    void* const memory =
        ::mmap(nullptr, (count + 1) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    EXPECT_EQ(::mprotect(memory, count * page, PROT_READ | PROT_WRITE), 0);
    begin_ = reinterpret_cast<std::uintptr_t>(memory);
  }
  ~Pages() { ::munmap(reinterpret_cast<void*>(begin_), (count_ + 1) * page); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::uintptr_t begin() const { return begin_; }
  std::uintptr_t end() const { return begin_ + count_ * page; }
  static std::uintptr_t& word(std::uintptr_t at) { return *reinterpret_cast<std::uintptr_t*>(at); }

 private:
  std::size_t count_;
  std::uintptr_t begin_ = 0;
};

TEST(ReadableMemory, EndsWhereTheSystemSaysSo) {
  const Pages pages{3};
  errno = 7;
  os::ReadableMemory memory;
  EXPECT_TRUE(memory.holds(pages.begin(), 1));
  EXPECT_TRUE(memory.holds(pages.begin() + page - 4, 8)) << "over a border";
  EXPECT_TRUE(memory.holds(pages.end() - 8, 8));
  EXPECT_FALSE(memory.holds(pages.end() - 7, 8));
  EXPECT_FALSE(memory.holds(pages.end(), 1));
  EXPECT_TRUE(memory.holds(pages.begin() + page, page)) << "after a no";
  EXPECT_FALSE(memory.holds(0, 8));
  EXPECT_FALSE(memory.holds(8, 8));
  EXPECT_FALSE(memory.holds(~std::uintptr_t{0} - 3, 8)) << "beyond the end of all addresses";
  EXPECT_FALSE(memory.holds(std::uintptr_t{1} << 63, 8));
  std::uintptr_t word = 1;
  EXPECT_FALSE(memory.load(pages.begin() + 1, word)) << "misaligned";
  EXPECT_TRUE(memory.load(pages.begin() + 8, word));
  EXPECT_EQ(word, 0U);
  EXPECT_EQ(errno, 7);
}

TEST(RowCache, KeepsRowsUntilItIsCleared) {
  static os::RowCache cache;
  const os::FrameRow one{os::FrameRow::Kind::usual, {}, 16, {-16, -8, 0}};
  const os::FrameRow other{os::FrameRow::Kind::usual, {}, 32, {-16, -8, -24}};
  cache.add(0x1000, one);
  EXPECT_EQ(os::unpack(cache.find(0x1000)), one);
  EXPECT_EQ(cache.find(0x1001), 0U);
  cache.add(0x1000, other);
  EXPECT_EQ(os::unpack(cache.find(0x1000)), other);
  const std::uintptr_t highest = (std::uintptr_t{1} << 48) - 1;
  cache.add(highest, one);
  EXPECT_EQ(os::unpack(cache.find(highest)), one);
  cache.add(highest + 1, one);
  EXPECT_EQ(cache.find(highest + 1), 0U) << "no address of a program";
  cache.clear();
  EXPECT_EQ(cache.find(0x1000), 0U);
  // More rows than fit: every row that is found is the right one.
  unsigned found = 0;
  for (int i = 1; i <= 6000; ++i)
    cache.add(0x10000 + static_cast<std::uintptr_t>(i), {os::FrameRow::Kind::usual, {}, 8 * i, {}});
  for (int i = 1; i <= 6000; ++i) {
    const std::uint64_t packed = cache.find(0x10000 + static_cast<std::uintptr_t>(i));
    if (packed == 0) continue;
    ++found;
    ASSERT_EQ(os::unpack(packed).cfa_offset, 8 * i);
  }
  EXPECT_GT(found, 2000U);
}

// ---- frame-pointer walks through code outside any module ----

class FramePointers : public ::testing::Test {
 protected:
  // A frame whose saved pair of words is at that address.
  void put(std::uintptr_t pair, std::uintptr_t next_pair, std::uintptr_t return_to) {
    Pages::word(pair) =
        next_pair == 0 ? 0 : next_pair - static_cast<std::uintptr_t>(os::pair_offset);
    Pages::word(pair + 8) = return_to;
  }
  // How many steps a walk from the start of the first page takes.
  unsigned walk(std::uintptr_t first_pair) {
    os::Registers registers{code, stack.begin(), {}};
    registers.saved[os::frame_pointer] = first_pair - static_cast<std::uintptr_t>(os::pair_offset);
    os::StackWalk walk{registers};
    unsigned steps = 0;
    while (walk.step()) ++steps;
    is_whole = walk.is_at_outermost();
    return steps;
  }

  const Pages nowhere{1};
  const std::uintptr_t code = nowhere.begin() + 64;
  const Pages stack{600};
  bool is_whole = false;
};

TEST_F(FramePointers, LeadToTheOutermostFrame) {
  const std::uintptr_t s = stack.begin();
  put(s + 16, s + 64, code + 8);
  put(s + 64, s + 3 * page - 8, code + 16);  // across a page boundary
  put(s + 3 * page - 8, 0, code + 24);
  EXPECT_EQ(walk(s + 16), 3U);
  EXPECT_TRUE(is_whole);
  put(s + 3 * page - 8, s + 4 * page, 0);
  EXPECT_EQ(walk(s + 16), 2U) << "the outermost function has nowhere to return to";
  EXPECT_TRUE(is_whole);
}

TEST_F(FramePointers, LeadNowhereElse) {
  const std::uintptr_t s = stack.begin();
  for (const std::uintptr_t wrong :
       {s + 16, s + 8, s + 68, s + 65, s - 8, s + 80 + (1 << 20), stack.end(), stack.end() - 8,
        nowhere.end(), ~std::uintptr_t{15}, std::uintptr_t{1} << 63, std::uintptr_t{64}}) {
    put(s + 16, s + 64, code + 8);
    put(s + 64, wrong, code + 16);
    EXPECT_EQ(walk(s + 16), 2U) << "to " << std::hex << wrong << ", the stack is at " << s;
    EXPECT_FALSE(is_whole);
  }
  put(s + 64, s + 96, 64);
  EXPECT_EQ(walk(s + 16), 1U) << "no code is there";
  EXPECT_FALSE(is_whole);
}

// ---- stacks of this program ----

[[gnu::noinline]] void take_below(UnwoundStack& stack, unsigned levels, const void* caller) {
  if (levels == 0) {
    os::unwind(stack, caller);
  } else {
    take_below(stack, levels - 1, caller);
  }
  asm volatile("" : : "r"(&stack) : "memory");
}

TEST(CallStacks, HaveAtMost64Frames) {
  os::refresh_modules();
  UnwoundStack few;
  take_below(few, 10, nullptr);
  EXPECT_GT(few.depth, 11U);
  UnwoundStack many;
  take_below(many, 200, nullptr);
  EXPECT_EQ(many.depth, max_stack_frames);
  EXPECT_FALSE(many.is_whole);
  EXPECT_EQ(many.frames[5], many.frames[60]) << "a recursion";
}

TEST(CallStacks, BeginWithTheCallerThatIsNamed) {
  os::refresh_modules();
  UnwoundStack all;
  take_below(all, 10, nullptr);
  UnwoundStack some;
  take_below(some, 10, reinterpret_cast<const void*>(all.frames[10]));
  // In a recursion, the innermost frames.
  std::uint32_t left_out = 0;
  while (all.frames[left_out] != all.frames[10]) ++left_out;
  ASSERT_GT(left_out, 0U);
  EXPECT_EQ(some.depth, all.depth - left_out);
  UnwoundStack unknown;
  take_below(unknown, 10, &unknown);
  EXPECT_EQ(unknown.depth, all.depth);
}

// Threads take stacks of the same shape while others drop all rows and look up modules.
TEST(CallStacks, AreTheSameInThreads) {
  os::refresh_modules();
  constexpr unsigned levels = 20;
  std::atomic<bool> stops{false};
  std::atomic<unsigned> different{0};
  const auto take = [&different] {
    UnwoundStack first;
    for (int i = 0; i < 2000 / TS_TEST_SLOWNESS; ++i) {
      UnwoundStack stack;
      take_below(stack, levels, nullptr);
      if (i == 0) first = stack;
      if (stack.depth < levels || stack.depth != first.depth || stack.frames[3] != first.frames[4])
        ++different;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(take);
  std::thread disturbs{[&stops] {
    while (!stops) {
      os::row_cache.clear();
      os::refresh_modules();
    }
  }};
  for (std::thread& thread : threads) thread.join();
  stops = true;
  disturbs.join();
  EXPECT_EQ(different, 0U);
}

}  // namespace
}  // namespace ts::testing
