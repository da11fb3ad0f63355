// A stateless model checker: runs the few threads of a scenario again and again, in one system
// thread. Each time it chooses the thread that makes the next atomic access, and the store that a
// load reads.
//
// The memory model is C++20's without loads that read from the future (load buffering), and with the
// order of execution as each location's modification order. A load may return any store that
// coherence and happens-before allow. Vector clocks track releases, acquires, release sequences and
// fences.
// Plain<T> is memory that only one thread may access at a time: an access that is not ordered by
// happens-before is a data race, and a failure. Seq_cst is modelled exactly if a scenario uses only
// fences or only accesses of that order; mixtures follow the rules of C++11.
//
// explore() searches all choices depth first, with a bound on preemptions: switches away from a
// thread that could continue. explore_at_random() has no such bound. A failure lists each step.
//
// Atomic and Plain keep their history elsewhere, by address. They have the size of their value, and
// act as plain memory outside a run: while a scenario is set up, and while its end is checked.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ts::testing {

using Order = std::memory_order;
using Where = std::source_location;
using Word = std::uint64_t;

inline constexpr unsigned most_threads = 5;

struct Scenario {
  std::function<void()> set_up;
  std::vector<std::function<void()>> threads;
  std::function<void()> end = [] {};        // all threads have ended
  std::function<void()> after_cut = [] {};  // see Limits::cut
  // Around each switch, for thread_local variables.
  std::function<void(unsigned thread)> leave = [](unsigned) {};
  std::function<void(unsigned thread)> enter = [](unsigned) {};
};

struct Limits {
  unsigned preemptions = 2;
  std::uint64_t executions = 10'000'000;
  // An execution with more accesses than this, plain loads included, counts as an endless loop.
  unsigned steps = 20'000;
  // How often a thread may read a store that is not the latest of its location.
  unsigned stale_reads = 3;
  // If not 0: all threads stop for good after this many stores, plain ones included, as they do in
  // the child of a fork. A fork holds all mutexes, so there is no cut while another thread has one.
  unsigned cut = 0;
  // Any of this many last stores of each thread since its last release may be missing at a cut: the
  // compiler may have moved them later. Read-modify-writes stay where they are.
  unsigned missing_stores = 6;
};

struct Outcome {
  std::string failure;  // empty if there is none
  std::uint64_t executions = 0;
  std::uint64_t unfinished = 0;  // of those, how many ended at the step limit,
  std::uint64_t cuts = 0;        // by a cut,
  std::uint64_t skipped = 0;     // or where a mutex was held at a cut
  bool is_complete = false;      // no choice is left within the bounds
};

Outcome explore(const Scenario& scenario, const Limits& limits = {});
Outcome explore_at_random(const Scenario& scenario, const Limits& limits, std::uint64_t executions,
                          std::uint64_t seed);

// Ends the execution as a failure.
void fail(std::string_view what);
// What to call this memory in listed steps.
void name(const void* begin, std::size_t bytes, std::string_view name);
// The calling thread ends the lifetime of atomic objects: all stores to them must happen before.
void destroy(const void* begin, std::size_t bytes, std::size_t stride);

enum class Kind : std::uint8_t {
  load,
  store,
  exchange,
  fetch_add,
  fetch_or,
  fetch_and,
  compare_exchange,
  fence,
  lock,
  try_lock,
  unlock,
};

// An atomic access in the source that executions reached.
struct Site {
  Where where;
  Kind kind;
  Order order;
  bool operator==(const Site& other) const;
};
std::string text_of(const Site& site);
std::string_view text_of(Order order);
// The sites reached between collect_sites() and collected_sites().
void collect_sites();
std::vector<Site> collected_sites();

// A mistake to plant at a site: another memory order, or no access at all. (Without the access, a
// load returns 0, a compare-exchange true, another read-modify-write the latest value, and nothing
// is stored.)
struct Mutation {
  Site site;
  Order order = Order::relaxed;
  bool omits = false;
};
void plant(std::vector<Mutation> mutations);  // instead of the earlier ones

namespace detail {
Word load(const void* at, unsigned bytes, Order order, const Where& where);
void store(void* at, unsigned bytes, Word value, Order order, const Where& where);
Word update(Kind kind, void* at, unsigned bytes, Word operand, Order order, const Where& where);
bool compare_exchange(void* at, unsigned bytes, Word& expected, Word desired, Order success,
                      Order failure, const Where& where);
void fence(Order order, const Where& where);
void wait_for(const void* at, unsigned bytes, Word value, const Where& where);
void before_read(const void* at);
void before_write(void* at, unsigned bytes);
void after_write();
void lock(const void* at, const Where& where);
bool try_lock(const void* at, const Where& where);
void unlock(const void* at, const Where& where);
void publish(const Where& where);

template <class T>
Word word_of(T value) {
  Word word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
T value_of(Word word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
}  // namespace detail

template <class T>
class Atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Word));

 public:
  constexpr Atomic() noexcept = default;
  constexpr Atomic(T value) noexcept : value_{value} {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(Order order = Order::seq_cst, Where where = Where::current()) const noexcept {
    return detail::value_of<T>(detail::load(this, sizeof(T), order, where));
  }
  void store(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    detail::store(this, sizeof(T), detail::word_of(value), order, where);
  }
  T exchange(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    return update(Kind::exchange, value, order, where);
  }
  T fetch_add(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    return update(Kind::fetch_add, value, order, where);
  }
  T fetch_sub(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    return update(Kind::fetch_add, static_cast<T>(T{0} - value), order, where);
  }
  T fetch_or(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    return update(Kind::fetch_or, value, order, where);
  }
  T fetch_and(T value, Order order = Order::seq_cst, Where where = Where::current()) noexcept {
    return update(Kind::fetch_and, value, order, where);
  }
  bool compare_exchange_strong(T& expected, T desired, Order success = Order::seq_cst,
                               Order failure = Order::seq_cst,
                               Where where = Where::current()) noexcept {
    Word word = detail::word_of(expected);
    const bool won = detail::compare_exchange(this, sizeof(T), word, detail::word_of(desired),
                                              success, failure, where);
    expected = detail::value_of<T>(word);
    return won;
  }
  // Fails for no reason in no execution.
  bool compare_exchange_weak(T& expected, T desired, Order success = Order::seq_cst,
                             Order failure = Order::seq_cst,
                             Where where = Where::current()) noexcept {
    return compare_exchange_strong(expected, desired, success, failure, where);
  }
  // Sleeps until the latest store is this value, then reads it (acquire).
  void wait_for(T value, Where where = Where::current()) const noexcept {
    detail::wait_for(this, sizeof(T), detail::word_of(value), where);
  }

 private:
  T update(Kind kind, T operand, Order order, const Where& where) noexcept {
    return detail::value_of<T>(
        detail::update(kind, this, sizeof(T), detail::word_of(operand), order, where));
  }

  T value_{};
};

template <class T>
class Plain {
 public:
  constexpr Plain() noexcept = default;
  constexpr Plain(T value) noexcept : value_{value} {}
  Plain(const Plain& other) noexcept : value_{other} {}
  Plain& operator=(const Plain& other) noexcept { return *this = static_cast<T>(other); }
  Plain& operator=(T value) noexcept {
    detail::before_write(this, sizeof(T));
    value_ = value;
    detail::after_write();
    return *this;
  }
  operator T() const noexcept {
    detail::before_read(this);
    return value_;
  }
  T operator->() const noexcept
    requires std::is_pointer_v<T>
  {
    return *this;
  }
  Plain& operator++() noexcept { return *this = static_cast<T>(*this + 1); }
  Plain& operator--() noexcept { return *this = static_cast<T>(*this - 1); }
  template <class U>
  Plain& operator+=(U more) noexcept {
    return *this = static_cast<T>(static_cast<T>(*this) + more);
  }
  template <class U>
  Plain& operator-=(U less) noexcept {
    return *this = static_cast<T>(static_cast<T>(*this) - less);
  }
  template <class U>
  Plain& operator|=(U bits) noexcept {
    return *this = static_cast<T>(static_cast<T>(*this) | bits);
  }

 private:
  T value_{};
};

}  // namespace ts::testing
