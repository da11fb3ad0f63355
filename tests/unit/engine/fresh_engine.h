// Fixtures for tests of the engine's parts. There is one engine per process, with its state spread
// over its files, so each test runs in a child that starts with an untouched engine on a system
// that refuses nothing (unit/fake_os.h).
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/cache_bins.h"
#include "core/heap_lifecycle.h"
#include "core/remote_frees.h"
#include "engine/engine.h"
#include "os/os.h"
#include "unit/fake_os.h"

namespace ts::testing {

// No part of the engine is damaged.
inline void expect_sound(const char* when = "") {
  const Fault fault = engine::find_engine_fault();
  ASSERT_FALSE(fault) << fault.equation << ' ' << when << " at " << fault.where;
}

inline void expect_no_misuse() { EXPECT_TRUE(fake_os::take_misuses().empty()); }

// Runs `body` in a child. Failures there are printed and fail the test here.
template <class Body>
void in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    fake_os::reset();
    body();
    std::fflush(nullptr);
    // _Exit would lose the counters of a coverage build.
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child ended with status " << status;
}

// False in a test that leaves the engine damaged.
inline bool ends_sound = true;

// For a whole test: at its end the engine must be sound, and the test must have checked each
// misuse.
template <class Body>
void run_engine_test(Body body) {
  in_child([&] {
    body();
    if (!ends_sound) return;
    expect_sound("at the end");
    expect_no_misuse();
  });
}

}  // namespace ts::testing

#define TS_ENGINE_TEST(suite, name)                           \
  static void suite##_##name();                               \
  TEST(suite, name) {                                         \
    ::ts::testing::run_engine_test([] { suite##_##name(); }); \
  }                                                           \
  static void suite##_##name()

// The same for a thread with a heap; the body has names for both.
#define TS_HEAP_TEST(suite, name)                                                          \
  static void suite##_##name(::ts::engine::ThreadHeap& heap, ::ts::engine::Engine engine); \
  TEST(suite, name) {                                                                      \
    ::ts::testing::run_engine_test([] {                                                    \
      ::ts::engine::ThreadHeap& heap = ::ts::testing::make_heap();                         \
      const ::ts::testing::As as{heap};                                                    \
      suite##_##name(heap, {});                                                            \
    });                                                                                    \
  }                                                                                        \
  static void suite##_##name([[maybe_unused]] ::ts::engine::ThreadHeap& heap,              \
                             [[maybe_unused]] ::ts::engine::Engine engine)

namespace ts::testing {

using engine::Block;
using engine::CacheBin;
using engine::class_count;
using engine::class_for;
using engine::HeapHold;
using engine::page_bytes;
using engine::page_heap;
using engine::page_map;
using engine::size_classes;
using engine::SizeClass;
using engine::Span;
using engine::SpanState;
using engine::ThreadHeap;

// How many of the engine's pages an OS page holds, or 1 if it is shorter.
inline std::size_t pages_per_os_page() {
  return os::page_bytes() <= page_bytes ? 1 : os::page_bytes() / page_bytes;
}
// A shorter free span may not contain a whole OS page, and is not purged.
inline std::size_t least_purged_pages() { return 2 * pages_per_os_page() - 1; }

// The calling thread uses this heap, or this stand-in for no heap, during the object's life.
class As {
 public:
  explicit As(engine::HeapFront* heap) : before_{engine::this_thread.heap} {
    engine::this_thread.heap = heap;
  }
  explicit As(ThreadHeap& heap) : As{&heap} {}
  ~As() { engine::this_thread.heap = before_; }
  As(const As&) = delete;
  As& operator=(const As&) = delete;

 private:
  engine::HeapFront* before_;
};

inline ThreadHeap& make_heap() {
  ThreadHeap* const heap = engine::new_heap();
  EXPECT_NE(heap, nullptr);
  return *heap;
}

inline void* allocate(ThreadHeap& heap, std::size_t bytes, std::size_t alignment = 16) {
  const As as{heap};
  return engine::Engine{}.allocate(bytes, alignment);
}

// This many blocks.
inline std::vector<void*> allocate_many(ThreadHeap& heap, std::size_t count, std::size_t bytes) {
  std::vector<void*> blocks(count);
  for (void*& p : blocks) p = allocate(heap, bytes);
  return blocks;
}

// Not inlined, like Engine::release(): coverage counts the branches of each copy.
[[gnu::noinline]] inline void release(void* p) { engine::Engine{}.release(p); }

inline void release(ThreadHeap& heap, void* p) {
  const As as{heap};
  release(p);
}

inline bool collect_from(ThreadHeap& heap) {
  const HeapHold hold{heap};
  return engine::collect(heap);
}
inline void flush_heap(ThreadHeap& heap) {
  const HeapHold hold{heap};
  engine::flush(heap);
}
inline void flush_bin_of(ThreadHeap& heap, unsigned size_class) {
  const HeapHold hold{heap};
  engine::flush_bin(heap, size_class);
}

inline void abandon(ThreadHeap& heap, bool keeps_bins) {
  const std::uint32_t pages = engine::pages_of_slabs(heap);
  const Guard guard{engine::abandoned_lock};
  engine::abandon(heap, keeps_bins, pages);
}

// The heap keeps no spare lists from bursts of frees: they bypass the bin.
inline void have_no_spare_lists(ThreadHeap& heap) { heap.bursts_without_lists = 60'000; }

// An alignment at which a large block starts with its span, for tests that count in pages.
inline constexpr std::size_t without_colour = page_bytes;

// From now on the heap allocates blocks of this size, and its bin is empty.
inline void use_class_of(ThreadHeap& heap, std::size_t bytes) {
  release(heap, allocate(heap, bytes));
  flush_bin_of(heap, class_for(bytes));
}

inline std::uint32_t used_by(const Span& slab) { return used(slab); }
inline std::uint32_t pending_of(const Span& slab) {
  return engine::remote_frees_of(&slab).pending.load();
}

inline std::size_t list_length(const Block* block) {
  std::size_t length = 0;
  for (; block != nullptr; block = block->next) ++length;
  return length;
}

// The first class from this one on whose slabs are long.
inline unsigned long_class(unsigned from = 1) {
  while (size_classes[from].slab_pages == 1) ++from;
  return from;
}

inline Span& span_of(const void* p) { return page_map.spans[engine::page_of(p)]; }

// The only misuse reported since the last check is of this kind.
inline void expect_misuse(Misuse kind, FoundBy found_by, const void* where) {
  const std::vector<fake_os::ReportedMisuse> misuses = fake_os::take_misuses();
  ASSERT_EQ(misuses.size(), 1U);
  EXPECT_EQ(misuses[0].kind, kind);
  EXPECT_EQ(misuses[0].found_by, found_by);
  EXPECT_EQ(misuses[0].where, where);
}

// Fewer rounds where a sanitizer makes each slow.
constexpr int rounds(int full) { return full / TS_TEST_SLOWNESS > 0 ? full / TS_TEST_SLOWNESS : 1; }

}  // namespace ts::testing
