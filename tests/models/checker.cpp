#include "checker.h"

#include <ucontext.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <utility>

namespace ts::testing {
namespace {

// How much of each thread's execution is known: up to which of its times.
using Clock = std::array<std::uint32_t, most_threads>;

void join(Clock& clock, const Clock& other) {
  for (unsigned i = 0; i < most_threads; ++i) clock[i] = std::max(clock[i], other[i]);
}
bool is_within(const Clock& clock, const Clock& other) {
  for (unsigned i = 0; i < most_threads; ++i) {
    if (clock[i] > other[i]) return false;
  }
  return true;
}

bool acquires(Order order) {
  return order == Order::acquire || order == Order::acq_rel || order == Order::seq_cst ||
         order == Order::consume;
}
bool releases(Order order) {
  return order == Order::release || order == Order::acq_rel || order == Order::seq_cst;
}

struct Store {
  Word value = 0;
  Clock released{};          // what an acquire load that reads it learns
  Clock seen{};              // when each thread first read or wrote it; 0: not yet
  std::uint32_t number = 0;  // in the order of execution
  bool is_seq_cst = false;
};

struct Location {
  const void* address = nullptr;
  std::uint64_t execution = 0;  // all below but `users` is of this one
  std::uint8_t users = 0;       // one bit for each thread that ever accessed it
  std::vector<Store> stores;    // in modification order, that of execution
  Clock written{};              // each thread's last plain write,
  Clock read{};                 // plain read,
  Clock stored{};               // and atomic store
  std::array<std::uint8_t, most_threads> stale_reads{};
  int holder = -1;  // of a mutex
  Clock released{};
};

struct Write {
  void* at;
  unsigned bytes;
  Word before;
};

struct Thread {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  Clock clock{};
  Clock to_acquire{};              // of relaxed loads, for the next acquire fence
  Clock fence_released{};          // at the last release fence
  Clock fence_seq_cst{};           // of other threads' seq_cst fences before the last own one
  std::uint32_t fence_number = 0;  // of that: how many steps came before it
  const void* waits_at = nullptr;
  unsigned waits_bytes = 0;  // 0: for a mutex
  Word waits_value = 0;
  bool is_done = false;
  std::vector<Write> writes;  // since its last release, if cuts are possible
};

struct Step {
  unsigned thread;
  Kind kind;
  Order order;
  const void* at;
  Word before;
  Word after;
  Where where;
};

struct Choice {
  std::uint32_t taken;
  std::uint32_t count;
};

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr std::size_t table_size = 1 << 14;

enum class State : std::uint8_t { idle, runs, ends, failed, unfinished, cut, done };

class Machine {
 public:
  Outcome explore(const Scenario& scenario, const Limits& limits, std::uint64_t executions,
                  std::uint64_t seed) {
    scenario_ = &scenario;
    limits_ = limits;
    locations_.clear();
    std::ranges::fill(table_, nullptr);
    names_.clear();
    path_.clear();
    is_random_ = seed != 0;
    random_.seed(seed);
    catch_faults();
    Outcome outcome;
    while (outcome.executions < executions) {
      has_new_user_ = false;
      run();
      ++outcome.executions;
      outcome.unfinished += state_ == State::unfinished ? 1 : 0;
      outcome.cuts += ends_by_cut_ ? 1 : 0;
      outcome.skipped += is_skipped_ ? 1 : 0;
      if (!failure_.empty()) {
        outcome.failure = failure_ + story();
        break;
      }
      // With a single candidate there was no choice.
      if (has_new_user_ && !is_random_)
        path_.clear();
      else if (!is_random_ && !next_path()) {
        outcome.is_complete = true;
        break;
      }
    }
    scenario_ = nullptr;
    return outcome;
  }

  bool runs() const { return state_ == State::runs; }
  bool is_idle() const { return state_ != State::runs && state_ != State::ends; }

  [[gnu::cold]] void fail(std::string_view what) {
    if (failure_.empty()) failure_ = what;
    if (state_ == State::runs || state_ == State::ends) leave(State::failed);
  }

  void name(const void* begin, std::size_t bytes, std::string_view text) {
    const auto* const from = static_cast<const std::byte*>(begin);
    if (scenario_ == nullptr) return;
    for (const Named& named : names_) {
      if (named.begin == from) return;
    }
    names_.push_back({from, bytes, std::string{text}});
  }

  // ---- atomic accesses ----

  Word load(const void* at, unsigned bytes, Order order, const Where& where) {
    order = begin(Kind::load, at, order, where);
    if (is_omitted_) return end(Kind::load, order, at, 0, 0, where);
    Location& location = at_atomic(at, bytes);
    const std::size_t floor = floor_of(location, order == Order::seq_cst);
    const Store& store = read(location, pick_store(location, floor), order);
    return end(Kind::load, order, at, store.value, store.value, where);
  }

  void store(void* at, unsigned bytes, Word value, Order order, const Where& where) {
    order = begin(Kind::store, at, order, where);
    Location& location = at_atomic(at, bytes);
    const Word before = location.stores.back().value;
    if (!is_omitted_) {
      if (releases(order)) threads_[current_].writes.clear();
      log_write(at, bytes);
      append(location, bytes, value, order, {});
    }
    end(Kind::store, order, at, before, value, where);
  }

  Word update(Kind kind, void* at, unsigned bytes, Word operand, Order order, const Where& where) {
    order = begin(kind, at, order, where);
    Location& location = at_atomic(at, bytes);
    const Word before = location.stores.back().value;
    Word after = operand;
    if (kind == Kind::fetch_add) after = before + operand;
    if (kind == Kind::fetch_or) after = before | operand;
    if (kind == Kind::fetch_and) after = before & operand;
    if (bytes < sizeof(Word)) after &= (Word{1} << 8 * bytes) - 1;
    if (!is_omitted_) replace(location, bytes, after, order);
    return end(kind, order, at, before, after, where);
  }

  bool compare_exchange(void* at, unsigned bytes, Word& expected, Word desired, Order success,
                        Order failure, const Where& where) {
    success = begin(Kind::compare_exchange, at, success, where);
    if (is_omitted_)
      return end(Kind::compare_exchange, success, at, expected, expected, where), true;
    Location& location = at_atomic(at, bytes);
    const std::size_t last = location.stores.size() - 1;
    candidates_.clear();
    const std::size_t floor = floor_of(location, success == Order::seq_cst);
    for (std::size_t i = last + 1; i-- > floor;) {
      // It wins only by the last store; it may fail because of an older one.
      const bool may_be_stale = location.stores[i].value != expected &&
                                location.stale_reads[current_] < limits_.stale_reads;
      if (i == last || may_be_stale) candidates_.push_back(i);
    }
    const std::size_t index = candidates_[choose(candidates_.size())];
    const Word before = location.stores[index].value;
    const bool wins = before == expected;
    if (wins) {
      replace(location, bytes, desired, success);
    } else {
      read(location, index, failure);
      expected = before;
    }
    end(Kind::compare_exchange, wins ? success : failure, at, before, wins ? desired : before,
        where);
    return wins;
  }

  void fence(Order order, const Where& where) {
    order = begin(Kind::fence, nullptr, order, where);
    Thread& me = threads_[current_];
    if (is_omitted_) order = Order::relaxed;
    if (acquires(order)) join(me.clock, me.to_acquire);
    if (order == Order::seq_cst) {
      join(me.fence_seq_cst, fences_);
      join(me.fence_seq_cst, me.clock);
      join(fences_, me.fence_seq_cst);
      me.fence_number = number_;
    }
    if (releases(order)) {
      me.fence_released = me.clock;
      me.writes.clear();
    }
    end(Kind::fence, order, nullptr, 0, 0, where);
  }

  void wait_for(const void* at, unsigned bytes, Word value, const Where& where) {
    begin(Kind::load, at, Order::acquire, where);
    Location* location = &at_atomic(at, bytes);
    while (location->stores.back().value != value) {
      Thread& me = threads_[current_];
      me.waits_at = at;
      me.waits_bytes = bytes;
      me.waits_value = value;
      pick_thread(false);
      location = &at_atomic(at, bytes);
    }
    read(*location, location->stores.size() - 1, Order::acquire);
    end(Kind::load, Order::acquire, at, value, value, where);
  }

  // ---- mutexes ----

  bool lock(const void* at, bool waits, const Where& where) {
    begin(waits ? Kind::lock : Kind::try_lock, at, Order::acquire, where);
    if (is_omitted_) return true;
    Location* location = &at_address(at);
    while (location->holder >= 0 && waits) {
      threads_[current_].waits_at = at;
      threads_[current_].waits_bytes = 0;
      pick_thread(false);
      location = &at_address(at);
    }
    const bool wins = location->holder < 0;
    if (wins) {
      location->holder = static_cast<int>(current_);
      ++held_mutexes_;
      join(threads_[current_].clock, location->released);
    }
    end(waits ? Kind::lock : Kind::try_lock, Order::acquire, at, wins ? 0 : 1, 1, where);
    return wins;
  }

  void unlock(const void* at, const Where& where) {
    begin(Kind::unlock, at, Order::release, where);
    Location& location = at_address(at);
    if (location.holder == static_cast<int>(current_)) {
      location.holder = -1;
      --held_mutexes_;
    } else if (mutations_.empty()) {
      fail("a mutex is unlocked by a thread that does not have it");
    }
    location.released = threads_[current_].clock;
    threads_[current_].writes.clear();
    end(Kind::unlock, Order::release, at, 1, 0, where);
  }

  // ---- plain accesses ----

  void before_read(const void* at) {
    if (++number_ > limits_.steps) leave(State::unfinished);
    if (state_ == State::ends) return;
    Location& location = at_address(at);
    const Clock& clock = threads_[current_].clock;
    if (!is_within(location.written, clock) || !is_within(location.stored, clock)) [[unlikely]]
      fail_race(location, "a read of ", location.stored);
    location.read[current_] = clock[current_];
  }

  void before_write(void* at, unsigned bytes) {
    destroy(at);
    log_write(at, bytes);
  }

  void destroy(const void* at) {
    Location& location = at_address(at);
    const Clock& clock = threads_[current_].clock;
    if (!is_within(location.written, clock) || !is_within(location.stored, clock) ||
        !is_within(location.read, clock)) [[unlikely]]
      fail_race(location, "a write to ", location.stored, location.read);
    location.written[current_] = clock[current_];
    location.stores.clear();
  }

  // A store that the child of a fork cannot see without all stores before it.
  void publish(const Where& where) {
    const Order order = begin(Kind::store, nullptr, Order::release, where);
    if (releases(order) && !is_omitted_) threads_[current_].writes.clear();
  }

  void count_store() {
    if (limits_.cut == 0 || ++stored_ != limits_.cut) return;
    if (held_mutexes_ != 0) {  // a fork takes them all
      is_skipped_ = true;
      return;
    }
    for (unsigned i = 0; i < thread_count(); ++i) lose_writes(threads_[i].writes);
    leave(State::cut);
  }

  // ---- sites ----

  void collect_sites() { collects_sites_ = true; }
  std::vector<Site> collected_sites() {
    collects_sites_ = false;
    return std::exchange(sites_, {});
  }
  void plant(std::vector<Mutation> mutations) { mutations_ = std::move(mutations); }

 private:
  struct Named {
    const std::byte* begin;
    std::size_t bytes;
    std::string text;
  };

  unsigned thread_count() const { return static_cast<unsigned>(scenario_->threads.size()); }

  // An access to no memory fails like other errors: some planted mistakes lead to it.
  static void catch_faults() {
    static std::array<std::byte, stack_bytes> stack;
    stack_t alternative{};
    alternative.ss_sp = stack.data();
    alternative.ss_size = stack.size();
    sigaltstack(&alternative, nullptr);
    struct sigaction action {};
    action.sa_handler = [](int) { fail_by_fault(); };
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
  }
  static void fail_by_fault();

  // ---- choices ----

  std::size_t choose(std::size_t count, bool is_of_thread = false) {
    if (count == 1 || is_skipped_) return 0;
    if (is_random_) {
      const auto number = static_cast<std::uint32_t>(random_());
      return is_of_thread && number % 4 != 0 ? 0 : number / 4 % count;
    }
    if (depth_ == path_.size()) path_.push_back({0, static_cast<std::uint32_t>(count)});
    const Choice& choice = path_[depth_++];
    if (choice.count != count) {
      std::fputs("checker: the scenario does not do the same each time\n", stderr);
      std::abort();
    }
    return choice.taken;
  }

  bool next_path() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  // ---- threads ----

  void run() {
    state_ = State::idle;
    ends_by_cut_ = is_skipped_ = false;
    failure_.clear();
    story_.clear();
    ++execution_;
    depth_ = number_ = stored_ = preemptions_ = held_mutexes_ = 0;
    fences_ = {};
    scenario_->set_up();
    for (unsigned i = 0; i < thread_count(); ++i) {
      Thread& thread = threads_[i];
      prepare(thread, &Machine::begin_thread);
      thread.clock = thread.to_acquire = thread.fence_released = thread.fence_seq_cst = {};
      thread.clock[i] = 1;
      thread.fence_number = 0;
      thread.waits_at = nullptr;
      thread.is_done = false;
      thread.writes.clear();
    }
    state_ = State::runs;
    current_ = most_threads;
    ucontext_t* const first = &threads_[next_thread(false)].context;
    scenario_->enter(current_);
    swapcontext(&main_, first);
    if (state_ != State::done && state_ != State::cut) return;
    // Also in a thread, so that a failure can leave it.
    ends_by_cut_ = state_ == State::cut;
    state_ = State::ends;
    prepare(threads_[0], &Machine::end_execution);
    swapcontext(&main_, &threads_[0].context);
  }

  static void prepare(Thread& thread, void (*function)()) {
    if (thread.stack == nullptr) thread.stack.reset(new std::byte[stack_bytes]);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = stack_bytes;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, function, 0);
  }

  static void end_execution();
  static void begin_thread();

  // Leaves a thread for good.
  [[noreturn]] void leave(State state) {
    state_ = state;
    setcontext(&main_);
    std::abort();
  }

  bool can_run(const Thread& thread) {
    if (thread.is_done) return false;
    if (thread.waits_at == nullptr) return true;
    if (thread.waits_bytes == 0) return at_address(thread.waits_at).holder < 0;
    return at_atomic(thread.waits_at, thread.waits_bytes).stores.back().value == thread.waits_value;
  }

  // Chooses the thread of the next step; `goes_on`: the current one could continue.
  unsigned next_thread(bool goes_on) {
    std::array<unsigned, most_threads> threads;
    unsigned count = 0;
    if (goes_on) threads[count++] = current_;
    if (!goes_on || preemptions_ < limits_.preemptions || is_random_) {
      for (unsigned i = 0; i < thread_count(); ++i) {
        if ((!goes_on || i != current_) && can_run(threads_[i])) threads[count++] = i;
      }
    }
    if (count == 0) return most_threads;
    const std::size_t choice = choose(count, true);
    if (goes_on && choice != 0) ++preemptions_;
    return current_ = threads[choice];
  }

  void pick_thread(bool goes_on) {
    const unsigned before = current_;
    const unsigned next = next_thread(goes_on);
    if (next == most_threads) {
      for (unsigned i = 0; i < thread_count(); ++i) {
        if (!threads_[i].is_done) fail("deadlock: no thread can go on");
      }
      leave(State::done);
    }
    threads_[next].waits_at = nullptr;
    if (next == before) return;
    scenario_->leave(before);
    scenario_->enter(next);
    swapcontext(&threads_[before].context, &threads_[next].context);
  }

  // ---- a step ----

  // Before an atomic access: another thread may go first. Returns the access's order.
  Order begin(Kind kind, const void* at, Order order, const Where& where) {
    if (++number_ > limits_.steps) leave(State::unfinished);
    const Site site{where, kind, order};
    if (collects_sites_ && std::ranges::find(sites_, site) == sites_.end()) sites_.push_back(site);
    if (at != nullptr) {
      const unsigned me = 1U << current_;
      Location& location = at_address(at);
      has_new_user_ |= location.users != 0 && (location.users & me) == 0;
      location.users |= static_cast<std::uint8_t>(me);
      // What no other thread accesses can be done together with the step before it.
      if (location.users != me) pick_thread(true);
    }
    ++threads_[current_].clock[current_];
    is_omitted_ = false;
    for (const Mutation& mutation : mutations_) {
      if (mutation.site != site) continue;
      is_omitted_ = mutation.omits;
      if (!is_omitted_) order = mutation.order;
    }
    return order;
  }

  Word end(Kind kind, Order order, const void* at, Word before, Word after, const Where& where) {
    story_.push_back({current_, kind, order, at, before, after, where});
    ++threads_[current_].clock[current_];
    if (kind != Kind::load && kind != Kind::fence) count_store();
    return before;
  }

  // ---- locations ----

  Location& at_address(const void* at) {
    std::size_t slot = (reinterpret_cast<std::uintptr_t>(at) * 0x9e37'79b9'7f4a'7c15U) >> 50;
    while (table_[slot] != nullptr && table_[slot]->address != at) slot = (slot + 1) % table_size;
    Location*& location = table_[slot];
    if (location == nullptr) {
      if (locations_.size() > table_size / 2) std::abort();
      location = &locations_.emplace_back();
      location->address = at;
    }
    if (location->execution != execution_) {
      location->execution = execution_;
      location->stores.clear();
      location->written = location->read = location->stored = location->released = {};
      location->stale_reads = {};
      location->holder = -1;
    }
    return *location;
  }

  // The same for an atomic object; its first store is its value when the execution began.
  Location& at_atomic(const void* at, unsigned bytes) {
    Location& location = at_address(at);
    if (location.stores.empty()) {
      Store& first = location.stores.emplace_back();
      first.value = 0;
      std::memcpy(&first.value, at, bytes);
    }
    return location;
  }

  // The last store known to the current thread: it can read none before it, and what it stores
  // comes after it.
  std::size_t floor_of(const Location& location, bool is_seq_cst) const {
    const Thread& me = threads_[current_];
    Clock known = me.clock;
    join(known, me.fence_seq_cst);
    if (is_seq_cst) join(known, fences_);
    for (std::size_t i = location.stores.size(); i-- > 1;) {
      const Store& store = location.stores[i];
      if (store.is_seq_cst && (is_seq_cst || store.number < me.fence_number)) return i;
      for (unsigned t = 0; t < most_threads; ++t) {
        if (store.seen[t] != 0 && store.seen[t] <= known[t]) return i;
      }
    }
    return 0;
  }

  // Latest first.
  std::size_t pick_store(Location& location, std::size_t floor) {
    const std::size_t last = location.stores.size() - 1;
    if (location.stale_reads[current_] >= limits_.stale_reads) return last;
    return last - choose(last - floor + 1);
  }

  const Store& read(Location& location, std::size_t index, Order order) {
    Thread& me = threads_[current_];
    if (!is_within(location.written, me.clock)) fail_race(location, "a load of ");
    if (index + 1 != location.stores.size()) ++location.stale_reads[current_];
    Store& store = location.stores[index];
    if (store.seen[current_] == 0) store.seen[current_] = me.clock[current_];
    join(acquires(order) ? me.clock : me.to_acquire, store.released);
    return store;
  }

  void append(Location& location, unsigned bytes, Word value, Order order, const Clock& sequence) {
    Thread& me = threads_[current_];
    if (!is_within(location.written, me.clock)) fail_race(location, "a store to ");
    location.stored[current_] = me.clock[current_];
    Store store;
    store.value = value;
    store.released = releases(order) ? me.clock : me.fence_released;
    join(store.released, sequence);
    store.seen[current_] = me.clock[current_];
    store.number = number_;
    store.is_seq_cst = order == Order::seq_cst;
    location.stores.push_back(store);
    std::memcpy(const_cast<void*>(location.address), &value, bytes);
  }

  // A read-modify-write.
  void replace(Location& location, unsigned bytes, Word value, Order order) {
    read(location, location.stores.size() - 1, order);
    const Clock sequence = location.stores.back().released;
    if (releases(order)) threads_[current_].writes.clear();
    append(location, bytes, value, order, sequence);
  }

  // Before a store that a cut may lose, though later ones survive. Stores to the thread's own stack
  // are never checked again, and the variable may be gone by then.
  void log_write(void* at, unsigned bytes) {
    if (limits_.cut == 0 || is_on_stack(at)) return;
    Word before = 0;
    std::memcpy(&before, at, bytes);
    threads_[current_].writes.push_back({at, bytes, before});
  }

  bool is_on_stack(const void* at) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(threads_[current_].stack.get());
    return reinterpret_cast<std::uintptr_t>(at) - begin < stack_bytes;
  }

  void lose_writes(std::vector<Write>& writes) {
    std::vector<const void*> later;
    for (std::size_t i = writes.size(); i-- > 0 && writes.size() - i <= limits_.missing_stores;) {
      const Write& write = writes[i];
      const bool stays = choose(2) == 0;
      if (!stays && std::ranges::find(later, write.at) == later.end())
        std::memcpy(write.at, &write.before, write.bytes);
      if (stays) later.push_back(write.at);
    }
  }

  // ---- reports ----

  [[gnu::cold]] void fail_race(const Location& location, std::string_view what,
                               const Clock& stored = {}, const Clock& read = {}) {
    fail("data race: " + std::string{what} + text_of(location.address) +
         race_of(location.written, stored) + race_of(read, {}));
  }

  std::string race_of(const Clock& one, const Clock& other) const {
    std::string text;
    for (unsigned i = 0; i < most_threads; ++i) {
      if (std::max(one[i], other[i]) > threads_[current_].clock[i])
        text += ", that thread " + std::to_string(i) + " touches at the same time";
    }
    return text;
  }

  std::string text_of(const void* at) const {
    for (const Named& named : names_) {
      const std::ptrdiff_t offset = static_cast<const std::byte*>(at) - named.begin;
      if (offset < 0 || static_cast<std::size_t>(offset) >= named.bytes) continue;
      return offset == 0 ? named.text : named.text + "+" + std::to_string(offset);
    }
    char text[32];
    std::snprintf(text, sizeof text, "%p", at);
    return text;
  }

  std::string story() const {
    std::string text = "\n";
    for (const Step& step : story_) {
      char line[400];
      const std::string at = step.at == nullptr ? "" : text_of(step.at);
      const std::string site = testing::text_of(Site{step.where, step.kind, step.order});
      std::snprintf(line, sizeof line, "  thread %u: %-28s %#jx -> %#jx   %s\n", step.thread,
                    at.c_str(), static_cast<std::uintmax_t>(step.before),
                    static_cast<std::uintmax_t>(step.after), site.c_str());
      text += line;
    }
    return text;
  }

  const Scenario* scenario_ = nullptr;
  Limits limits_;
  State state_ = State::idle;
  bool is_random_ = false;
  bool is_omitted_ = false;
  bool has_new_user_ = false;
  bool ends_by_cut_ = false;
  bool is_skipped_ = false;  // runs to its end in any one way
  std::minstd_rand random_;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  std::uint64_t execution_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t stored_ = 0;
  unsigned preemptions_ = 0;
  unsigned held_mutexes_ = 0;
  unsigned current_ = 0;
  Clock fences_{};  // what seq_cst fences have made known to later ones
  std::array<Thread, most_threads> threads_;
  ucontext_t main_{};
  std::deque<Location> locations_;
  std::vector<Location*> table_ = std::vector<Location*>(table_size);
  std::vector<std::size_t> candidates_;
  std::vector<Step> story_;
  std::vector<Named> names_;
  std::string failure_;
  bool collects_sites_ = false;
  std::vector<Site> sites_;
  std::vector<Mutation> mutations_;
};

// Zero, and so idle, until its constructor runs. A guarded function-local static would take a third
// of the time.
Machine the_machine;
Machine& machine() { return the_machine; }

void Machine::begin_thread() {
  Machine& m = machine();
  m.scenario_->threads[m.current_]();
  m.threads_[m.current_].is_done = true;
  m.pick_thread(false);
  std::abort();  // no finished thread is picked
}

void Machine::fail_by_fault() {
  if (machine().is_idle()) {
    for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);
    return;
  }
  machine().fail("an access to no memory");
}

void Machine::end_execution() {
  Machine& m = machine();
  m.ends_by_cut_ ? m.scenario_->after_cut() : m.scenario_->end();
  m.leave(State::done);
}

}  // namespace

Outcome explore(const Scenario& scenario, const Limits& limits) {
  return machine().explore(scenario, limits, limits.executions, 0);
}
Outcome explore_at_random(const Scenario& scenario, const Limits& limits, std::uint64_t executions,
                          std::uint64_t seed) {
  return machine().explore(scenario, limits, executions, seed);
}
void fail(std::string_view what) { machine().fail(what); }
void name(const void* begin, std::size_t bytes, std::string_view text) {
  machine().name(begin, bytes, text);
}
void destroy(const void* begin, std::size_t bytes, std::size_t stride) {
  if (!machine().runs()) return;
  for (std::size_t offset = 0; offset < bytes; offset += stride)
    machine().destroy(static_cast<const std::byte*>(begin) + offset);
}
void collect_sites() { machine().collect_sites(); }
std::vector<Site> collected_sites() { return machine().collected_sites(); }
void plant(std::vector<Mutation> mutations) { machine().plant(std::move(mutations)); }

bool Site::operator==(const Site& other) const {
  return where.line() == other.where.line() && where.column() == other.where.column() &&
         kind == other.kind && order == other.order &&
         std::string_view{where.file_name()} == other.where.file_name();
}

std::string_view text_of(Order order) {
  constexpr std::array<std::string_view, 6> texts{"relaxed", "consume", "acquire",
                                                  "release", "acq_rel", "seq_cst"};
  return texts[static_cast<std::size_t>(order)];
}

std::string text_of(const Site& site) {
  constexpr std::array<std::string_view, 11> kinds{
      "load",  "store", "exchange", "fetch_add", "fetch_or", "fetch_and", "compare_exchange",
      "fence", "lock",  "try_lock", "unlock"};
  std::string_view file = site.where.file_name();
  file.remove_prefix(file.rfind('/') + 1);
  std::string_view function = site.where.function_name();
  function = function.substr(0, function.find('('));
  function.remove_prefix(function.find_last_of(": ") + 1);
  return std::string{file} + ":" + std::to_string(site.where.line()) + " " + std::string{function} +
         " " + std::string{kinds[static_cast<std::size_t>(site.kind)]} + " " +
         std::string{text_of(site.order)};
}

namespace detail {

namespace {
Word word_at(const void* at, unsigned bytes) {
  Word word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}
}  // namespace

Word load(const void* at, unsigned bytes, Order order, const Where& where) {
  return machine().runs() ? machine().load(at, bytes, order, where) : word_at(at, bytes);
}
void store(void* at, unsigned bytes, Word value, Order order, const Where& where) {
  if (machine().runs()) return machine().store(at, bytes, value, order, where);
  std::memcpy(at, &value, bytes);
}
Word update(Kind kind, void* at, unsigned bytes, Word operand, Order order, const Where& where) {
  if (machine().runs()) return machine().update(kind, at, bytes, operand, order, where);
  const Word before = word_at(at, bytes);
  const Word after = kind == Kind::fetch_add   ? before + operand
                     : kind == Kind::fetch_or  ? before | operand
                     : kind == Kind::fetch_and ? before & operand
                                               : operand;
  std::memcpy(at, &after, bytes);
  return before;
}
bool compare_exchange(void* at, unsigned bytes, Word& expected, Word desired, Order success,
                      Order failure, const Where& where) {
  if (machine().runs())
    return machine().compare_exchange(at, bytes, expected, desired, success, failure, where);
  const Word before = word_at(at, bytes);
  const bool wins = before == expected;
  if (wins) std::memcpy(at, &desired, bytes);
  expected = before;
  return wins;
}
void fence(Order order, const Where& where) {
  if (machine().runs()) machine().fence(order, where);
}
void wait_for(const void* at, unsigned bytes, Word value, const Where& where) {
  if (machine().runs()) machine().wait_for(at, bytes, value, where);
}
void before_read(const void* at) {
  if (!machine().is_idle()) machine().before_read(at);
}
void before_write(void* at, unsigned bytes) {
  if (machine().runs()) machine().before_write(at, bytes);
}
void after_write() {
  if (machine().runs()) machine().count_store();
}
void lock(const void* at, const Where& where) {
  if (machine().runs()) machine().lock(at, true, where);
}
bool try_lock(const void* at, const Where& where) {
  return !machine().runs() || machine().lock(at, false, where);
}
void unlock(const void* at, const Where& where) {
  if (machine().runs()) machine().unlock(at, where);
}
void publish(const Where& where) {
  if (machine().runs()) machine().publish(where);
}

}  // namespace detail
}  // namespace ts::testing
