// Litmus tests of papers on the memory model, whose outcomes are known. Each lists all results that
// the model allows; the checker must find all of these and no others.
#include "checker.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ts::testing {
namespace {

constexpr Order relaxed = Order::relaxed;
constexpr Order acquire = Order::acquire;
constexpr Order release = Order::release;
constexpr Order acq_rel = Order::acq_rel;
constexpr Order seq_cst = Order::seq_cst;

using Results = std::set<std::vector<int>>;

// The shared memory of every program here, and what its threads read.
struct Memory {
  Atomic<int> x;
  Atomic<int> y;
  Plain<int> data;
  std::vector<int> read;
};
alignas(Memory) std::byte memory_bytes[sizeof(Memory)];
Memory& m = *reinterpret_cast<Memory*>(memory_bytes);

struct Found {
  Results results;
  std::string failure;
  bool is_complete;
};

// No bound, for small programs.
constexpr unsigned any_number = 100;

Found all_of(std::size_t reads, std::vector<std::function<void()>> threads,
             const Limits& limits = {.preemptions = any_number}) {
  Found found;
  Scenario scenario;
  scenario.set_up = [=] {
    new (memory_bytes) Memory{};
    m.read.assign(reads, -1);
    name(&m.x, sizeof m.x, "x");
    name(&m.y, sizeof m.y, "y");
    name(&m.data, sizeof m.data, "data");
  };
  scenario.threads = std::move(threads);
  scenario.end = [&] {
    std::vector<int> result = m.read;
    found.results.insert(result);
    std::vector<int>{}.swap(m.read);
  };
  const Outcome outcome = explore(scenario, limits);
  found.failure = outcome.failure;
  found.is_complete = outcome.is_complete;
  std::vector<int>{}.swap(m.read);
  return found;
}

Results results_of(std::size_t reads, std::vector<std::function<void()>> threads,
                   const Limits& limits = {.preemptions = any_number}) {
  const Found found = all_of(reads, std::move(threads), limits);
  EXPECT_EQ(found.failure, "");
  EXPECT_TRUE(found.is_complete);
  return found.results;
}

// ---- two threads ----

Results message(Order store, Order load) {
  return results_of(2, {[=] {
                          m.y.store(1, relaxed);
                          m.x.store(1, store);
                        },
                        [=] {
                          m.read[0] = m.x.load(load);
                          m.read[1] = m.y.load(relaxed);
                        }});
}

TEST(Litmus, MessagePassing) {
  const Results strong{{0, 0}, {0, 1}, {1, 1}};
  const Results weak{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(message(release, acquire), strong);
  EXPECT_EQ(message(seq_cst, seq_cst), strong);
  EXPECT_EQ(message(relaxed, acquire), weak);
  EXPECT_EQ(message(release, relaxed), weak);
  EXPECT_EQ(message(relaxed, relaxed), weak);
}

Results message_by_fences(bool releases, bool acquires) {
  return results_of(2, {[=] {
                          m.y.store(1, relaxed);
                          if (releases) detail::fence(release, Where::current());
                          m.x.store(1, relaxed);
                        },
                        [=] {
                          m.read[0] = m.x.load(relaxed);
                          if (acquires) detail::fence(acquire, Where::current());
                          m.read[1] = m.y.load(relaxed);
                        }});
}

TEST(Litmus, MessagePassingByFences) {
  const Results strong{{0, 0}, {0, 1}, {1, 1}};
  const Results weak{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(message_by_fences(true, true), strong);
  EXPECT_EQ(message_by_fences(false, true), weak);
  EXPECT_EQ(message_by_fences(true, false), weak);
}

Found plain_message(Order store, Order load) {
  return all_of(1, {[=] {
                      m.data = 1;
                      m.x.store(1, store);
                    },
                    [=] {
                      if (m.x.load(load) == 1) m.read[0] = m.data;
                    }});
}

TEST(Litmus, PlainMemoryRacesUnlessReleasedAndAcquired) {
  EXPECT_EQ(plain_message(release, acquire).failure, "");
  EXPECT_EQ(plain_message(release, acquire).results, (Results{{-1}, {1}}));
  EXPECT_NE(plain_message(relaxed, acquire).failure.find("data race: a read of data"),
            std::string::npos);
  EXPECT_NE(plain_message(release, relaxed).failure, "");
}

TEST(Litmus, AFailureNamesItsSteps) {
  const std::string failure = plain_message(relaxed, acquire).failure;
  EXPECT_NE(failure.find("thread 0: x"), std::string::npos) << failure;
  EXPECT_NE(failure.find("store relaxed"), std::string::npos) << failure;
  EXPECT_NE(failure.find("checker_test.cpp:"), std::string::npos) << failure;
}

Results store_buffering(Order order, bool with_fence) {
  const auto thread = [=](Atomic<int>& mine, Atomic<int>& other, int& read) {
    mine.store(1, order);
    if (with_fence) detail::fence(seq_cst, Where::current());
    read = other.load(order == release ? acquire : order);
  };
  return results_of(2,
                    {[=] { thread(m.x, m.y, m.read[0]); }, [=] { thread(m.y, m.x, m.read[1]); }});
}

TEST(Litmus, StoreBuffering) {
  const Results strong{{0, 1}, {1, 0}, {1, 1}};
  const Results weak{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(store_buffering(seq_cst, false), strong);
  EXPECT_EQ(store_buffering(relaxed, true), strong);
  EXPECT_EQ(store_buffering(relaxed, false), weak);
  EXPECT_EQ(store_buffering(release, false), weak);
}

// ---- one location ----

TEST(Litmus, ALocationNeverGoesBack) {
  const Results results = results_of(2,
                                     {[] {
                                        m.x.store(1, relaxed);
                                        m.x.store(2, relaxed);
                                      },
                                      [] {
                                        m.read[0] = m.x.load(relaxed);
                                        m.read[1] = m.x.load(relaxed);
                                      }},
                                     {.preemptions = 3});
  EXPECT_EQ(results, (Results{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
}

TEST(Litmus, ReadModifyWritesLoseNothing) {
  const auto add = [](int& read) { read = m.x.fetch_add(1, relaxed); };
  const Results results =
      results_of(3, {[=] { add(m.read[0]); }, [=] { add(m.read[1]); }, [=] { add(m.read[2]); }},
                 {.preemptions = 3});
  EXPECT_EQ(results, (Results{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}));
}

TEST(Litmus, OneCompareExchangeWins) {
  const auto claim = [](int& read) {
    int expected = 0;
    read = m.x.compare_exchange_strong(expected, 1, relaxed, relaxed) ? 1 : 0;
  };
  const std::vector<std::function<void()>> threads{[=] { claim(m.read[0]); },
                                                   [=] { claim(m.read[1]); }};
  EXPECT_EQ(results_of(2, threads), (Results{{0, 1}, {1, 0}}));
}

// ---- several threads ----

Results independent_reads(Order store, Order load, bool with_fence) {
  const auto reader = [=](Atomic<int>& first, Atomic<int>& second, std::size_t at) {
    m.read[at] = first.load(load);
    if (with_fence) detail::fence(seq_cst, Where::current());
    m.read[at + 1] = second.load(load);
  };
  return results_of(4,
                    {[=] { m.x.store(1, store); }, [=] { m.y.store(1, store); },
                     [=] { reader(m.x, m.y, 0); }, [=] { reader(m.y, m.x, 2); }},
                    {.preemptions = 3});
}

TEST(Litmus, IndependentReadsOfIndependentWrites) {
  const std::vector<int> disagree{1, 0, 1, 0};
  EXPECT_FALSE(independent_reads(seq_cst, seq_cst, false).contains(disagree));
  EXPECT_FALSE(independent_reads(relaxed, relaxed, true).contains(disagree));
  EXPECT_TRUE(independent_reads(release, acquire, false).contains(disagree));
  EXPECT_EQ(independent_reads(release, acquire, false).size(), 16U);
  EXPECT_EQ(independent_reads(seq_cst, seq_cst, false).size(), 15U);
}

Results through_another(Order order) {
  return results_of(3, {[=] { m.x.store(1, relaxed); },
                        [=] {
                          m.read[0] = m.x.load(relaxed);
                          m.y.store(1, order);
                        },
                        [=] {
                          m.read[1] = m.y.load(acquire);
                          m.read[2] = m.x.load(relaxed);
                        }});
}

TEST(Litmus, WriteToReadCausality) {
  EXPECT_FALSE(through_another(release).contains({1, 1, 0}));
  EXPECT_TRUE(through_another(relaxed).contains({1, 1, 0}));
}

// A read-modify-write of another thread continues a release sequence; a store ends it.
Found release_sequence(bool by_store) {
  return all_of(1, {[] {
                      m.data = 1;
                      m.x.store(1, release);
                    },
                    [=] {
                      if (by_store) {
                        if (m.x.load(relaxed) == 1) m.x.store(2, relaxed);
                      } else {
                        int expected = 1;
                        m.x.compare_exchange_strong(expected, 2, relaxed, relaxed);
                      }
                    },
                    [] {
                      if (m.x.load(acquire) == 2) m.read[0] = m.data;
                    }});
}

TEST(Litmus, ReleaseSequences) {
  EXPECT_EQ(release_sequence(false).failure, "");
  EXPECT_EQ(release_sequence(false).results, (Results{{-1}, {1}}));
  EXPECT_NE(release_sequence(true).failure, "");
}

// ---- locks ----

Found spin_lock(Order lock, Order unlock) {
  const auto thread = [=] {
    while (m.x.exchange(1, lock) != 0) m.x.wait_for(0);
    ++m.data;
    m.x.store(0, unlock);
  };
  return all_of(0, {thread, thread, [] {}});
}

TEST(Litmus, SpinLock) {
  EXPECT_EQ(spin_lock(acquire, release).failure, "");
  EXPECT_TRUE(spin_lock(acquire, release).is_complete);
  EXPECT_NE(spin_lock(acquire, relaxed).failure, "");
}

TEST(Litmus, Mutex) {
  const auto thread = [] {
    detail::lock(&m.x, Where::current());
    ++m.data;
    detail::unlock(&m.x, Where::current());
  };
  EXPECT_EQ(all_of(0, {thread, thread, thread}).failure, "");
  EXPECT_NE(all_of(0, {thread, thread, [] { ++m.data; }}).failure, "");
  const auto both = [](const void* first, const void* second) {
    detail::lock(first, Where::current());
    detail::lock(second, Where::current());
    detail::unlock(second, Where::current());
    detail::unlock(first, Where::current());
  };
  EXPECT_NE(
      all_of(0, {[=] { both(&m.x, &m.y); }, [=] { both(&m.y, &m.x); }}).failure.find("deadlock"),
      std::string::npos);
  EXPECT_EQ(all_of(0, {[=] { both(&m.x, &m.y); }, [=] { both(&m.x, &m.y); }}).failure, "");
}

// ---- a stack that is pushed one by one, and popped whole ----

struct Node {
  Plain<Node*> next;
  Plain<int> value;
};
Node nodes[2];
Atomic<Node*> stack;

std::string stack_failure(Order push, Order take, Results& results) {
  Scenario scenario;
  scenario.set_up = [] {
    for (Node& node : nodes) {
      node.next = nullptr;
      node.value = 0;
    }
    stack.store(nullptr);
    new (memory_bytes) Memory{};
    m.read.assign(1, 0);
  };
  const auto push_node = [=](int number) {
    Node& node = nodes[number];
    node.value = number + 1;
    Node* head = stack.load(relaxed);
    do {
      node.next = head;
    } while (!stack.compare_exchange_weak(head, &node, push, relaxed));
  };
  scenario.threads = {[=] { push_node(0); }, [=] { push_node(1); },
                      [=] {
                        for (Node* node = stack.exchange(nullptr, take); node != nullptr;
                             node = node->next)
                          m.read[0] = 10 * m.read[0] + node->value;
                      }};
  scenario.end = [&] {
    results.insert(m.read);
    std::vector<int>{}.swap(m.read);
  };
  const Outcome outcome = explore(scenario, {.preemptions = any_number});
  std::vector<int>{}.swap(m.read);
  return outcome.failure;
}

TEST(Litmus, TreiberStack) {
  Results results;
  EXPECT_EQ(stack_failure(release, acquire, results), "");
  EXPECT_EQ(results, (Results{{0}, {1}, {2}, {12}, {21}}));
  EXPECT_NE(stack_failure(relaxed, acquire, results), "");
  EXPECT_NE(stack_failure(release, relaxed, results), "");
  EXPECT_EQ(stack_failure(acq_rel, acq_rel, results), "");
}

// ---- the bounds ----

// A bug that takes two preemptions.
std::string bug_at(unsigned preemptions) {
  Scenario scenario;
  scenario.set_up = [] { new (memory_bytes) Memory{}; };
  scenario.threads = {[] {
                        m.x.store(1, seq_cst);
                        m.x.store(0, seq_cst);
                      },
                      [] {
                        if (m.x.load(seq_cst) != 1) return;
                        m.y.store(1, seq_cst);
                        if (m.x.load(seq_cst) == 0) fail("found");
                      }};
  return explore(scenario, {.preemptions = preemptions}).failure;
}

TEST(Bounds, PreemptionsAreCounted) {
  EXPECT_EQ(bug_at(1), "");
  EXPECT_NE(bug_at(2), "");
}

TEST(Bounds, RandomRunsFindItToo) {
  Scenario scenario;
  scenario.set_up = [] { new (memory_bytes) Memory{}; };
  scenario.threads = {[] {
                        m.y.store(1, relaxed);
                        m.x.store(1, relaxed);
                      },
                      [] {
                        if (m.x.load(acquire) == 1 && m.y.load(relaxed) == 0) fail("found");
                      }};
  EXPECT_NE(explore_at_random(scenario, {}, 1000, 1).failure, "");
}

TEST(Bounds, EndlessLoopsAreCutShort) {
  Scenario scenario;
  scenario.set_up = [] { new (memory_bytes) Memory{}; };
  scenario.threads = {[] {
    while (m.x.load(relaxed) == 0) {
    }
  }};
  EXPECT_EQ(explore(scenario).unfinished, 1U);
}

// ---- cuts ----

// The values of x, data and y that the child of a fork may find. A thread stores them in this
// order.
Results cut(bool with_fence) {
  Results results;
  for (unsigned at = 1; at <= 3; ++at) {
    Scenario scenario;
    scenario.set_up = [] { new (memory_bytes) Memory{}; };
    scenario.threads = {[=] {
      m.x.store(1, relaxed);
      m.data = 1;
      if (with_fence) detail::fence(release, Where::current());
      m.y.store(1, relaxed);
    }};
    scenario.after_cut = [&] { results.insert({m.x.load(), m.data, m.y.load()}); };
    EXPECT_EQ(explore(scenario, {.cut = at}).failure, "");
  }
  return results;
}

TEST(Cuts, LoseStoresBehindTheLastRelease) {
  EXPECT_EQ(cut(true), (Results{{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}}));
  EXPECT_EQ(cut(false).size(), 8U);
}

// ---- mistakes to be planted ----

TEST(Mutations, AreFoundAtTheirSite) {
  EXPECT_EQ(plain_message(release, acquire).failure, "");
  const std::vector<Site> sites = [] {
    collect_sites();
    EXPECT_EQ(plain_message(release, acquire).failure, "");
    return collected_sites();
  }();
  ASSERT_EQ(sites.size(), 2U);
  for (const Site& site : sites) {
    plant({{site}});
    EXPECT_NE(plain_message(release, acquire).failure, "") << text_of(site);
  }
  plant({});
}

}  // namespace
}  // namespace ts::testing
