// When a process gets a housekeeper. What it does is tested in page_heap_test.cpp, without a thread,
// and in tests/footprint/housekeeper.c.
#include "engine/housekeeping.h"

#include <cerrno>

#include "engine/fork.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

using engine::start_housekeeper_if_due;
using engine::ThreadHeap;

// How often a thread was asked for. All are refused.
unsigned asked = 0;

void refuse_threads() {
  current_options.background = Background::automatic;
  fake_os::refuse_if([](const fake_os::Request& request) {
    const bool is_thread = request.call == fake_os::Call::start_thread;
    asked += is_thread ? 1 : 0;
    return is_thread;
  });
}

TS_ENGINE_TEST(Housekeeping, BeginsWithTheSecondThreadAndIsAskedForOnce) {
  refuse_threads();
  start_housekeeper_if_due();
  EXPECT_EQ(asked, 0U);
  errno = 7;
  for (int i = 0; i < 3; ++i) start_housekeeper_if_due();
  EXPECT_EQ(asked, 1U);
  EXPECT_EQ(errno, 7);
}

TS_ENGINE_TEST(Housekeeping, BeginsWithTheFirstThreadOrNeverIfToldSo) {
  refuse_threads();
  current_options.background = Background::off;
  for (int i = 0; i < 3; ++i) start_housekeeper_if_due();
  EXPECT_EQ(asked, 0U);
  current_options.background = Background::on;
  start_housekeeper_if_due();
  EXPECT_EQ(asked, 1U);
}

TS_ENGINE_TEST(Housekeeping, TheChildOfAForkCountsItsOwnThreads) {
  refuse_threads();
  ThreadHeap& heap = make_heap();
  {
    const As as{heap};  // the thread that forks has one
    engine::fork_prepare();
    engine::fork_child();
  }
  start_housekeeper_if_due();
  EXPECT_EQ(asked, 1U);
  engine::fork_prepare();
  engine::fork_child();
  start_housekeeper_if_due();
  EXPECT_EQ(asked, 1U) << "the child's first thread";
  start_housekeeper_if_due();
  EXPECT_EQ(asked, 2U);
}

}  // namespace
}  // namespace ts::testing
