// The engine's remote frees, reclaims, holds and forks under every interleaving, within the bounds
// of engine_scenarios.cpp; then again with one planted mistake at a time, which some scenario must
// detect.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine_scenarios.h"

namespace ts::testing {
namespace {

TEST(EngineModel, IsSoundInEveryInterleaving) {
  for (const NamedScenario& scenario : engine_scenarios()) {
    const Outcome outcome = run(scenario);
    EXPECT_EQ(outcome.failure, "") << scenario.name;
    EXPECT_TRUE(outcome.is_complete) << scenario.name;
    std::printf("%-55s %8ju executions\n", std::string{scenario.name}.c_str(),
                static_cast<std::uintmax_t>(outcome.executions));
  }
}

TEST(EngineModel, IsSoundInRandomRuns) {
  for (const NamedScenario& scenario : engine_scenarios()) {
    if (scenario.cuts != 0) continue;
    EXPECT_EQ(explore_at_random(scenario.scenario, scenario.limits, 3'000, 7).failure, "")
        << scenario.name;
  }
}

// ---- mistakes ----

// Every access in the engine's sources that the scenarios reach.
std::vector<Site> engine_sites() {
  collect_sites();
  for (NamedScenario scenario : engine_scenarios()) {
    scenario.limits.preemptions = std::min(scenario.limits.preemptions, 1U);
    run(scenario);
  }
  std::vector<Site> sites;
  for (const Site& site : collected_sites()) {
    if (std::string_view{site.where.file_name()}.find("/src/") != std::string_view::npos)
      sites.push_back(site);
  }
  return sites;
}

std::vector<Mutation> mutations_of(const Site& site) {
  std::vector<Mutation> mutations;
  const bool is_lock =
      site.kind == Kind::lock || site.kind == Kind::try_lock || site.kind == Kind::unlock;
  if (!is_lock && site.order != Order::relaxed) mutations.push_back({site, Order::relaxed, false});
  if (site.order == Order::acq_rel) {
    mutations.push_back({site, Order::acquire, false});
    mutations.push_back({site, Order::release, false});
  }
  if (site.kind != Kind::load && site.kind != Kind::fence && site.kind != Kind::unlock)
    mutations.push_back({site, site.order, true});
  return mutations;
}

std::string text_of(const Mutation& mutation) {
  const std::string site = testing::text_of(mutation.site);
  if (mutation.omits) return site + " left out";
  return site + " -> " + std::string{testing::text_of(mutation.order)};
}

// A site's function, its access, and the outcome. No line number, which would change.
std::string short_text(const Mutation& mutation) {
  const std::string text = text_of(mutation);
  return text.substr(text.find(' ') + 1);
}

// Mistakes that no execution can detect, and why.
const std::map<std::string, std::string>& equivalent() {
  static const std::map<std::string, std::string> reasons{
      {"count_given_back fetch_add relaxed left out", "a number for reports"},
      {"note_reclaimable fetch_add relaxed left out", "a hint: fewer reclaims"},
      {"collect store relaxed left out", "a hint: more reclaims"},
      {"take_from_stack store relaxed left out", "a hint: more reclaims"},
      {"collect_from_queue store relaxed left out", "a hint: a look at an empty queue"},
      {"empty store relaxed left out", "a hint: more reclaims"},
      {"DeferredCall store relaxed left out",
       "only a call within a replaced function meets another"},
      {"~DeferredCall store relaxed left out",
       "only a call within a replaced function meets another"},
      {"pop_large_block lock acquire left out", "no block is large"},
      {"take_out store relaxed left out",
       "only a call within a replaced function meets it; dev/planted-faults has it"},
      {"HeapHold fence release -> relaxed",
       "the compare-exchange before it acquires, and no store moves ahead of it"},
      {"begin_batch fence release -> relaxed", "the fence of the mark of being busy comes before"},
      {"BusyMark fence release -> relaxed", "the fence in begin_batch comes before the new slab"},
  };
  return reasons;
}

struct Notice {
  std::string by;
  std::uint64_t executions = 0;
};

// First with few preemptions, which is enough for most mistakes.
Notice first_notice() {
  Notice notice;
  for (const bool few : {true, false}) {
    for (NamedScenario scenario : engine_scenarios()) {
      if (few && scenario.cuts == 0) scenario.limits.preemptions = 1;
      if (few && scenario.cuts != 0) scenario.limits.preemptions = 0;
      const Outcome outcome = run(scenario);
      notice.executions += outcome.executions;
      if (outcome.failure.empty()) continue;
      notice.by = std::string{scenario.name} + ": " +
                  outcome.failure.substr(0, std::min(outcome.failure.find('\n'), std::size_t{70}));
      return notice;
    }
  }
  return notice;
}

// In a child process, since a mistake may leave any state behind.
Notice notice_of(const std::vector<Mutation>& mutations) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    plant(mutations);
    const Notice notice = first_notice();
    const std::string text = std::to_string(notice.executions) + " " + notice.by;
    _exit(write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  std::array<char, 200> text{};
  const ssize_t length = read(ends[0], text.data(), text.size() - 1);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (length <= 0 || status != 0) return {"the process ends with status " + std::to_string(status)};
  const std::string_view all{text.data(), static_cast<std::size_t>(length)};
  return {std::string{all.substr(all.find(' ') + 1)}, std::strtoull(text.data(), nullptr, 10)};
}

TEST(EngineModelMistakes, AreNoticedEach) {
  std::set<std::string> argued;
  for (const Site& site : engine_sites()) {
    for (const Mutation& mutation : mutations_of(site)) {
      const auto reason = equivalent().find(short_text(mutation));
      if (reason != equivalent().end()) {
        argued.insert(reason->first);
        std::printf("%-75s not run: %s\n", text_of(mutation).c_str(), reason->second.c_str());
        continue;
      }
      const Notice notice = notice_of({mutation});
      EXPECT_NE(notice.by, "") << text_of(mutation);
      std::printf("%-75s %6ju  %s\n", text_of(mutation).c_str(),
                  static_cast<std::uintmax_t>(notice.executions), notice.by.c_str());
    }
  }
  EXPECT_EQ(argued.size(), equivalent().size()) << "an argument has no access any more";
}

TEST(EngineModelMistakes, ABatchThatChangesWithoutAFenceIsNoticed) {
  std::vector<Mutation> both;
  for (const Site& site : engine_sites()) {
    const Mutation weak{site};
    if (short_text(weak) == "begin_batch fence release -> relaxed" ||
        short_text(weak) == "BusyMark fence release -> relaxed")
      both.push_back(weak);
  }
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(notice_of(both).by, "");
}

}  // namespace
}  // namespace ts::testing
