// The purge policy as a function of time and two sizes: no clock, no memory.
#include "core/purge_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ts::engine {
namespace {

using Policy = PurgePolicy;
constexpr std::size_t keep_all = Policy::keep_all;
constexpr std::size_t idle_limit = Policy::min_idle_limit;
constexpr std::size_t peak_limit = Policy::min_peak_limit;
constexpr std::size_t rest_limit = Policy::min_rest_limit;

TEST(PurgePolicy, SurplusIsMoreThanFourMebibytesAndThanAQuarterInUse) {
  struct Row {
    std::size_t in_use, dirty;
    bool is_surplus;
  };
  for (const Row& row : {Row{0, 0, false},
                         {0, idle_limit, false},
                         {0, idle_limit + 1, true},
                         {4 * idle_limit, idle_limit, false},
                         {4 * idle_limit, idle_limit + 1, true},
                         {4 * idle_limit + 3, idle_limit + 1, true},
                         {4 * idle_limit + 4, idle_limit + 1, false},
                         {4 * idle_limit + 4, idle_limit + 2, true},
                         {1'000'000, 250'000, false},
                         {1'000'000, 250'001, true}})
    EXPECT_EQ(Policy::is_surplus(row.in_use, row.dirty), row.is_surplus)
        << row.in_use << ", " << row.dirty;
}

// One call of the policy in a scripted table.
struct Call {
  enum Kind { keep, end_round, purge, dirty, growth, watches } kind;
  std::uint64_t now = 0;
  std::size_t in_use = 0;
  std::size_t pages = 0;     // dirty ones
  std::size_t expected = 0;  // of keep and watches
};
constexpr Call keep(std::uint64_t now, std::size_t in_use, std::size_t pages,
                    std::size_t expected) {
  return {Call::keep, now, in_use, pages, expected};
}
constexpr Call end_round(std::uint64_t now, std::size_t in_use, std::size_t pages,
                         std::size_t expected) {
  return {Call::end_round, now, in_use, pages, expected};
}
constexpr Call purge(std::uint64_t now, std::size_t pages) {
  return {Call::purge, now, 0, pages, 0};
}
constexpr Call dirty(std::size_t pages) { return {Call::dirty, 0, 0, pages, 0}; }
constexpr Call growth(std::uint64_t now) { return {Call::growth, now, 0, 0, 0}; }
constexpr Call watches(bool expected) { return {Call::watches, 0, 0, 0, expected ? 1U : 0U}; }

struct Script {
  std::string name;
  std::vector<Call> calls;
};

void run(const Script& script) {
  SCOPED_TRACE(script.name);
  Policy policy;
  for (std::size_t i = 0; i < script.calls.size(); ++i) {
    const Call& call = script.calls[i];
    SCOPED_TRACE("call " + std::to_string(i));
    switch (call.kind) {
      case Call::keep:
        EXPECT_EQ(policy.pages_to_keep(call.now, call.in_use, call.pages), call.expected);
        break;
      case Call::end_round:
        EXPECT_EQ(policy.pages_to_keep_in_round(call.now, call.in_use, call.pages), call.expected);
        break;
      case Call::purge:
        policy.note_purge(call.now, call.pages, keep_all);
        break;
      case Call::dirty:
        policy.note_dirty(call.pages);
        break;
      case Call::growth:
        policy.note_growth(call.now);
        break;
      case Call::watches:
        EXPECT_EQ(policy.watches_growth(), call.expected != 0);
        break;
    }
  }
}

TEST(PurgePolicy, RoundsGiveBackHalfOfWhatWasIdleAndThenAll) {
  constexpr std::size_t much = rest_limit + 1000;
  for (const Script& script :
       {Script{"the first round has seen nothing", {end_round(1000, 0, much, keep_all)}},
        Script{"half, half of the rest, all",
               {end_round(1000, 0, much, keep_all), end_round(1200, 0, much, rest_limit + 500),
                dirty(rest_limit + 500), end_round(1400, 0, rest_limit + 500, rest_limit + 250),
                dirty(rest_limit + 250), end_round(1600, 0, rest_limit + 250, rest_limit)}},
        Script{"what was in use for a moment stays",
               {end_round(1000, 0, much, keep_all), dirty(rest_limit),
                end_round(1200, 0, much, keep_all)}},
        Script{
            "what came later stays",
            {end_round(1000, 0, much, keep_all), end_round(1200, 0, much + 100, rest_limit + 600)}},
        Script{"a part of what is in use may be dirty",
               {end_round(1000, 32 * rest_limit, 2 * rest_limit, keep_all),
                end_round(1200, 32 * rest_limit, 2 * rest_limit, keep_all),
                end_round(1400, 32 * rest_limit, 2 * rest_limit + 2, keep_all),
                end_round(1600, 32 * rest_limit, 2 * rest_limit + 2, 2 * rest_limit + 1)}},
        Script{"a busy round begins anew",
               {end_round(1000, 0, much, keep_all), end_round(1200, 0, much, rest_limit + 500),
                dirty(0), end_round(1400, 0, much, keep_all),
                end_round(1600, 0, much, rest_limit + 500)}},
        Script{"after a purge that was too early, only what stays idle",
               {purge(900, much), growth(950), end_round(1000, 0, much, keep_all),
                end_round(1200, 0, much, keep_all), end_round(1400, 0, much, keep_all),
                end_round(1600, 0, much, rest_limit)}}})
    run(script);
}

constexpr PurgeDelay delay_of(std::uint64_t ms) {
  return PurgeDelay{SizeOption{SizeOption::bytes_bit | ms}};
}
constexpr PurgeDelay never{SizeOption{1}};
constexpr std::size_t little = 16;  // 256 KiB

TEST(PurgePolicy, WithoutDelayAllGoesAtOnce) {
  EXPECT_FALSE(Policy::is_surplus(1000, 0, delay_of(0)));
  EXPECT_TRUE(Policy::is_surplus(1'000'000, 1, delay_of(0)));
  EXPECT_EQ(Policy::rest_limit(1'000'000, delay_of(0)), 0U);
  Policy policy;
  EXPECT_EQ(policy.pages_to_keep(1, 1'000'000, 1, delay_of(0)), 0U);
  EXPECT_EQ(policy.pages_to_keep(1, 1'000'000, 5, delay_of(0)), 0U);
  EXPECT_EQ(policy.pages_to_keep_in_round(1, 1'000'000, 5, delay_of(0)), 0U);
  EXPECT_TRUE(policy.is_settled()) << "short spans, too";
}

TEST(PurgePolicy, WithANegativeDelayNothingGoes) {
  for (const SizeOption option : {SizeOption{1}, SizeOption{2}}) {
    const PurgeDelay delay{option};
    EXPECT_FALSE(Policy::is_surplus(0, 1'000'000'000, delay));
    EXPECT_GT(Policy::rest_limit(0, delay), 1'000'000'000U);
    Policy policy;
    for (std::uint64_t now = 1000; now < 100'000; now += 200) {
      EXPECT_EQ(policy.pages_to_keep(now, 0, 1'000'000, delay), keep_all);
      EXPECT_EQ(policy.pages_to_keep_in_round(now, 0, 1'000'000, delay), keep_all);
    }
    EXPECT_FALSE(policy.is_settled());
  }
  EXPECT_FALSE(delay_of(0).is_never());
  EXPECT_TRUE(PurgeDelay{}.is_automatic());
}

// Even for a lot of memory, or little of a large process: only time counts.
TEST(PurgePolicy, ADelayIsHowLongMemoryIsIdle) {
  for (const std::uint64_t ms : {300, 1000, 10'000}) {
    for (const std::size_t in_use : {0, 10'000'000}) {
      const PurgeDelay delay = delay_of(ms);
      Policy policy;
      EXPECT_EQ(policy.pages_to_keep(100'000, in_use, 5000, delay), keep_all) << "begins a window";
      EXPECT_EQ(policy.pages_to_keep(100'000 + ms - 1, in_use, 5000, delay), keep_all);
      policy.note_dirty(4000);
      EXPECT_EQ(policy.pages_to_keep(100'000 + ms, in_use, 6000, delay), 2000 + little)
          << "4000 were idle";
      policy.note_dirty(2000 + little);
      EXPECT_EQ(policy.pages_to_keep(100'000 + 2 * ms - 1, in_use, 6000, delay), keep_all);
      EXPECT_EQ(policy.pages_to_keep_in_round(100'000 + 2 * ms, in_use, 2000 + little, delay),
                little)
          << "rounds and releases share the window";
      EXPECT_EQ(policy.pages_to_keep(100'000 + 9 * ms, in_use, little, delay), keep_all);
      EXPECT_EQ(policy.pages_to_keep(100'000 + 9 * ms, in_use, 5000, delay), keep_all)
          << "no call closed a window for long";
    }
  }
}

TEST(PurgePolicy, AProcessIsSettledAfterQuietRounds) {
  Policy policy;
  constexpr std::size_t much = rest_limit + 1000;
  for (unsigned round = 0; round <= Policy::rounds_to_settle; ++round) {
    EXPECT_FALSE(policy.is_settled());
    policy.pages_to_keep_in_round(1000 + 200 * round, 0, much);
  }
  EXPECT_TRUE(policy.is_settled());
  policy.note_dirty(0);
  policy.pages_to_keep_in_round(2000, 0, much);
  EXPECT_FALSE(policy.is_settled());
}

// If memory stays dirty for a whole window, half of the threshold stays.
constexpr std::size_t after_idle(std::size_t pages, std::size_t idle, std::size_t limit) {
  return pages - idle + limit / 2;
}

TEST(PurgePolicy, IdleRule) {
  constexpr std::size_t much = idle_limit + 44;
  for (const Script& script : {
           Script{"a window has to pass",
                  {keep(1000, 0, much, keep_all), keep(1249, 0, much, keep_all),
                   keep(1250, 0, much, after_idle(much, much, idle_limit))}},
           Script{"what came later is not idle",
                  {keep(1000, 0, much, keep_all),
                   keep(1250, 0, much + 100, after_idle(much + 100, much, idle_limit))}},
           Script{"what was in use for a moment is not idle",
                  {keep(1000, 0, much, keep_all), dirty(idle_limit + 1),
                   keep(1250, 0, much, after_idle(much, idle_limit + 1, idle_limit))}},
           Script{
               "exactly what is allowed stays",
               {keep(1000, 0, much, keep_all), dirty(idle_limit), keep(1250, 0, much, keep_all)}},
           Script{"the fewest dirty pages count, not the last number of them",
                  {keep(1000, 0, much, keep_all), dirty(7), dirty(idle_limit + 1),
                   keep(1250, 0, much, keep_all)}},
           Script{"a window that is closed begins the next one",
                  {keep(1000, 0, much, keep_all), dirty(7), keep(1250, 0, much, keep_all),
                   keep(1499, 0, much, keep_all),
                   keep(1500, 0, much, after_idle(much, much, idle_limit))}},
           Script{"the last moment of a window that counts",
                  {keep(1000, 0, much, keep_all),
                   keep(1499, 0, much, after_idle(much, much, idle_limit))}},
           Script{"a window of twice its length says nothing",
                  {keep(1000, 0, much, keep_all), keep(1500, 0, much, keep_all),
                   keep(1750, 0, much, after_idle(much, much, idle_limit))}},
           Script{"a quarter of what is in use is allowed",
                  {keep(1000, 4000, 1001, keep_all),
                   keep(1250, 4000, 1001, after_idle(1001, 1001, 1000))}},
           Script{"no surplus closes no window",
                  {keep(1000, 0, much, keep_all), keep(1250, 0, idle_limit, keep_all),
                   keep(1260, 0, much, after_idle(much, much, idle_limit))}},
           Script{"a clock that does not advance closes no window",
                  {keep(1000, 0, much, keep_all), keep(1000, 0, much, keep_all),
                   keep(1000, 0, peak_limit, keep_all)}},
       })
    run(script);
}

TEST(PurgePolicy, PeakRule) {
  for (const Script& script : {
           Script{"exactly the limit stays", {keep(1, 0, peak_limit, keep_all)}},
           Script{"half of the limit is kept", {keep(1, 0, peak_limit + 1, peak_limit / 2)}},
           Script{"half of what is in use is allowed",
                  {keep(1, 2 * peak_limit, peak_limit + 1, peak_limit / 2),
                   keep(1, 2 * peak_limit + 2, peak_limit + 1, keep_all),
                   keep(1, 10'000, 5000, keep_all), keep(1, 10'000, 5001, 2500)}},
           Script{"it needs no time",
                  {keep(1, 0, 100'000, peak_limit / 2), keep(1, 0, 100'000, peak_limit / 2)}},
           Script{
               "the idle rule comes first",
               {keep(1000, 0, peak_limit, keep_all),
                keep(1250, 0, peak_limit + 1, after_idle(peak_limit + 1, peak_limit, idle_limit))}},
       })
    run(script);
}

TEST(PurgePolicy, Backoff) {
  constexpr std::size_t purged = 2000;
  constexpr std::size_t allowed = 2 * purged;
  for (const Script& script : {
           Script{
               "growth is watched after a purge, once",
               {watches(false), purge(5000, purged), watches(true), growth(5001), watches(false)}},
           Script{"growth within a second doubles what is allowed",
                  {purge(5000, purged), growth(6000), keep(6000, 0, allowed, keep_all),
                   keep(6250, 0, allowed, keep_all), keep(6500, 0, allowed, keep_all)}},
           Script{"growth after a second does not",
                  {purge(5000, purged), growth(6001), keep(6001, 0, allowed, peak_limit / 2)}},
           Script{"it holds for the peak rule, too",
                  {purge(5000, purged), growth(5000), keep(5000, 0, allowed + 1, allowed / 2)}},
           Script{"and for the idle rule",
                  {purge(5000, 200), growth(5000), keep(5000, 0, 401, keep_all),
                   keep(5250, 0, 401, after_idle(401, 401, 400))}},
           Script{"less than the limits is no backoff",
                  {purge(5000, 100), growth(5000), keep(5000, 0, idle_limit + 1, keep_all),
                   keep(5250, 0, idle_limit + 1,
                        after_idle(idle_limit + 1, idle_limit + 1, idle_limit))}},
           Script{"it is remembered for ten seconds",
                  {purge(5000, purged), growth(5000), keep(15000, 0, allowed, keep_all)}},
           Script{"and then forgotten",
                  {purge(5000, purged), growth(5000), keep(15001, 0, allowed, peak_limit / 2)}},
           Script{"what is forgotten stays so",
                  {purge(5000, purged), growth(5000), keep(15001, 0, 0, keep_all),
                   keep(15002, 0, allowed, peak_limit / 2)}},
           Script{"a later purge that was not too early keeps it for longer",
                  {purge(5000, purged), growth(5000), purge(9000, 5000), growth(12000),
                   keep(19000, 0, allowed, keep_all), keep(19001, 0, allowed, peak_limit / 2)}},
       })
    run(script);
}

// A program that frees `pages` and allocates them again, each for half of `period` milliseconds,
// with a release every 10 ms. Returns how often memory was purged within a minute.
int purges_within_a_minute(std::size_t pages, std::uint64_t period) {
  Policy policy;
  std::size_t dirty_pages = 0;
  int purges = 0;
  bool is_taken = true;
  for (std::uint64_t now = 1000; now < 61000; now += 10) {
    const bool takes = now % period < period / 2;
    if (takes && !is_taken) {  // takes all of it, fresh memory for purged parts
      if (dirty_pages < pages && policy.watches_growth()) policy.note_growth(now);
      dirty_pages = 0;
      policy.note_dirty(0);
    } else if (!takes && is_taken) {
      dirty_pages = pages;
    }
    is_taken = takes;
    if (!Policy::is_surplus(0, dirty_pages)) continue;
    const std::size_t keeps = policy.pages_to_keep(now, 0, dirty_pages);
    if (keeps == keep_all) continue;
    EXPECT_LT(keeps, dirty_pages);
    policy.note_purge(now, dirty_pages, keeps);
    dirty_pages = keeps;
    policy.note_dirty(keeps);
    ++purges;
  }
  return purges;
}

TEST(PurgePolicy, ASawtoothOfShortPeriodsKeepsItsMemory) {
  EXPECT_EQ(purges_within_a_minute(peak_limit, 100), 0);  // never idle for a window
  // Above the peak limit: one purge, then one every ten seconds, when the backoff expires.
  const int high = purges_within_a_minute(2 * peak_limit, 100);
  EXPECT_GE(high, 5);
  EXPECT_LE(high, 7);
}

TEST(PurgePolicy, ASawtoothOfLongPeriodsGivesItBackEachTime) {
  EXPECT_GE(purges_within_a_minute(peak_limit, 6000), 9);
  EXPECT_LE(purges_within_a_minute(peak_limit, 6000), 10);
}

TEST(PurgePolicy, WhatAPurgeLeavesIsForgottenOnceSoLittleIsDirty) {
  Policy policy;
  EXPECT_EQ(policy.pages_left(1000), 0U);
  policy.note_purge(1000, 900, 100);
  policy.note_dirty(700);
  EXPECT_EQ(policy.pages_left(700), 600U);
  policy.note_dirty(100);
  EXPECT_EQ(policy.pages_left(5000), 0U);
}

}  // namespace
}  // namespace ts::engine
