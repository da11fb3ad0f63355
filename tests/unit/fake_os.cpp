#include "unit/fake_os.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/bits.h"
#include "os/os.h"

namespace ts {
namespace {

using fake_os::Call;
using fake_os::Event;

constexpr std::size_t page = 4096;
constexpr std::size_t break_region_bytes = std::size_t{256} << 20;
constexpr std::size_t guard_bytes = std::size_t{1} << 20;

struct State {
  std::mutex mutex;
  std::function<bool(const fake_os::Request&)> refused;
  std::byte* region = nullptr;  // where the break may be; old ones stay, since pieces of them may
                                // have been left behind for the next source that grows
  std::byte* break_end = nullptr;
  std::map<std::byte*, std::size_t> mapped;
  std::vector<Event> events;
  std::size_t discarded = 0;
  unsigned failable = 0;
  unsigned processors = 2;
};

// Never destroyed: threads may end after main's statics.
State& state() {
  static auto* const the_state = new State;
  return *the_state;
}

// Asks the test whether to refuse this call.
bool is_refused(Call call, const void* begin, std::size_t bytes) {
  std::function<bool(const fake_os::Request&)> refused;
  {
    const std::lock_guard guard{state().mutex};
    refused = state().refused;
  }
  const bool is = refused && refused({call, begin, bytes});
  const std::lock_guard guard{state().mutex};
  if (fake_os::can_fail(call)) ++state().failable;
  if (is) state().events.push_back({call, nullptr, bytes});
  return is;
}

std::byte* page_after(std::byte* address) { return address + (-address_of(address) & (page - 1)); }

// Moves the break and makes exactly the pages below it accessible. Under the mutex.
bool set_break(std::byte* end) {
  State& s = state();
  if (end < s.region || end > s.region + break_region_bytes) return false;
  std::byte* const old_pages = page_after(s.break_end);
  std::byte* const new_pages = page_after(end);
  if (new_pages > old_pages) {
    ::mprotect(old_pages, static_cast<std::size_t>(new_pages - old_pages), PROT_READ | PROT_WRITE);
  } else if (new_pages < old_pages) {
    const auto bytes = static_cast<std::size_t>(old_pages - new_pages);
    ::madvise(new_pages, bytes, MADV_DONTNEED);
    ::mprotect(new_pages, bytes, PROT_NONE);
  }
  s.break_end = end;
  return true;
}

// Takes [begin, begin + bytes) out of the table of mappings, splitting one if need be.
void forget_mapping(std::byte* begin, std::size_t bytes) {
  auto& mapped = state().mapped;
  auto found = mapped.upper_bound(begin);
  if (found == mapped.begin()) std::abort();
  --found;
  const auto [old_begin, old_bytes] = *found;
  std::byte* const old_end = old_begin + old_bytes;
  if (begin + bytes > old_end) std::abort();  // a heap unmaps what it never had
  mapped.erase(found);
  if (begin > old_begin) mapped[old_begin] = static_cast<std::size_t>(begin - old_begin);
  if (begin + bytes < old_end) {
    mapped[begin + bytes] = static_cast<std::size_t>(old_end - (begin + bytes));
  }
}

}  // namespace

namespace fake_os {

void reset(std::size_t break_offset) {
  State& s = state();
  const std::lock_guard guard{s.mutex};
  s.events.clear();
  s.refused = nullptr;
  s.discarded = 0;
  s.failable = 0;
  s.processors = 2;
  void* const region = ::mmap(nullptr, break_region_bytes + guard_bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) std::abort();
  s.region = static_cast<std::byte*>(region);
  s.break_end = s.region;
  set_break(s.region + break_offset);
}

void refuse_if(std::function<bool(const Request&)> refused) {
  const std::lock_guard guard{state().mutex};
  state().refused = std::move(refused);
}

void refuse_nothing() { refuse_if(nullptr); }

bool can_fail(Call call) {
  return call == Call::map || call == Call::grow_break || call == Call::call_at_thread_exit;
}

void refuse_nth(unsigned n) {
  {
    const std::lock_guard guard{state().mutex};
    state().failable = 0;
  }
  refuse_if(
      [n](const Request& request) { return can_fail(request.call) && failable_calls() == n; });
}

unsigned failable_calls() {
  const std::lock_guard guard{state().mutex};
  return state().failable;
}

bool move_break(std::ptrdiff_t bytes) {
  const std::lock_guard guard{state().mutex};
  return set_break(state().break_end + bytes);
}

std::byte* current_break() {
  const std::lock_guard guard{state().mutex};
  return state().break_end;
}

std::vector<Event> take_events() {
  const std::lock_guard guard{state().mutex};
  return std::exchange(state().events, {});
}

std::size_t mapped_bytes() {
  const std::lock_guard guard{state().mutex};
  std::size_t sum = 0;
  for (const auto& [begin, bytes] : state().mapped) sum += bytes;
  return sum;
}

std::size_t break_bytes() {
  const std::lock_guard guard{state().mutex};
  return static_cast<std::size_t>(state().break_end - state().region);
}

std::size_t discarded_bytes() {
  const std::lock_guard guard{state().mutex};
  return state().discarded;
}

void set_processor_count(unsigned count) {
  const std::lock_guard guard{state().mutex};
  state().processors = count;
}

}  // namespace fake_os

// ---- The functions of os.h ----

namespace os {

std::size_t page_bytes() noexcept { return page; }

unsigned processor_count() noexcept {
  const std::lock_guard guard{state().mutex};
  return state().processors;
}

void* current_break() noexcept { return fake_os::current_break(); }

void* grow_break(std::size_t bytes) noexcept {
  if (is_refused(Call::grow_break, nullptr, bytes)) return nullptr;
  const std::lock_guard guard{state().mutex};
  std::byte* const old_end = state().break_end;
  const auto room = static_cast<std::size_t>(state().region + break_region_bytes - old_end);
  const bool granted = bytes <= room && set_break(old_end + bytes);
  state().events.push_back({Call::grow_break, granted ? old_end : nullptr, bytes});
  return granted ? old_end : nullptr;
}

bool shrink_break(const void* expected_end, std::size_t bytes) noexcept {
  if (is_refused(Call::shrink_break, expected_end, bytes)) return false;
  const std::lock_guard guard{state().mutex};
  if (state().break_end != expected_end || !set_break(state().break_end - bytes)) {
    state().events.push_back({Call::shrink_break, nullptr, bytes});
    return false;
  }
  state().events.push_back({Call::shrink_break, state().break_end, bytes});
  return true;
}

void* map(std::size_t bytes) noexcept {
  if (bytes == 0 || bytes % page != 0) std::abort();  // the contract of os.h
  if (is_refused(Call::map, nullptr, bytes)) return nullptr;
  void* const begin =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const granted = begin == MAP_FAILED ? nullptr : static_cast<std::byte*>(begin);
  const std::lock_guard guard{state().mutex};
  if (granted != nullptr) state().mapped[granted] = bytes;
  state().events.push_back({Call::map, granted, bytes});
  return granted;
}

bool unmap(void* begin, std::size_t bytes) noexcept {
  if (is_refused(Call::unmap, begin, bytes)) return false;
  const std::lock_guard guard{state().mutex};
  forget_mapping(static_cast<std::byte*>(begin), bytes);
  state().events.push_back({Call::unmap, static_cast<std::byte*>(begin), bytes});
  return ::munmap(begin, bytes) == 0;
}

bool discard(void* begin, std::size_t bytes) noexcept {
  if (address_of(begin) % page != 0 || bytes % page != 0) std::abort();
  if (is_refused(Call::discard, begin, bytes) || ::madvise(begin, bytes, MADV_DONTNEED) != 0)
    return false;
  const std::lock_guard guard{state().mutex};
  state().discarded += bytes;
  state().events.push_back({Call::discard, static_cast<std::byte*>(begin), bytes});
  return true;
}

void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, kinds);
}

void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, kinds);
}

bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept {
  if (is_refused(Call::call_at_thread_exit, argument, 0)) return false;
  static const pthread_key_t key = [on_exit] {
    pthread_key_t made;
    if (::pthread_key_create(&made, on_exit) != 0) std::abort();
    return made;
  }();
  return ::pthread_setspecific(key, argument) == 0;
}

bool has_one_thread() noexcept { return false; }

bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  return ::pthread_atfork(prepare, parent, child) == 0;
}

void write_error(const char* text, std::size_t bytes) noexcept {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, bytes);
}

void abort_process() noexcept { std::abort(); }

}  // namespace os
}  // namespace ts
