#include "unit/fake_os.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/bits.h"
#include "os/bad_access.h"
#include "os/cgroup.h"
#include "os/error_line.h"
#include "os/os.h"
#include "unwind/stack_lines.h"
#include "unwind/unwind.h"

namespace ts {
namespace {

using fake_os::Call;
using fake_os::Event;

// The length of OS pages for the whole process. The real system's may be shorter.
const std::size_t page = [] {
  const char* const wanted = std::getenv("TS_FAKE_PAGE_BYTES");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : std::size_t{4096};
}();
constexpr std::size_t break_region_bytes = std::size_t{256} << 20;
constexpr std::size_t guard_bytes = std::size_t{1} << 20;

// Stretches of address space, which do not touch: what is mapped, or reserved.
class Ranges {
 public:
  // Whether one range has all of [begin, begin + bytes).
  bool has(std::byte* begin, std::size_t bytes) { return find(begin, bytes) != ranges_.end(); }
  void add(std::byte* begin, std::size_t bytes) {
    std::byte* end = begin + bytes;
    const auto behind = ranges_.lower_bound(begin);
    if (behind != ranges_.end() && behind->first < end) std::abort();  // over existing memory
    if (behind != ranges_.end() && behind->first == end) {
      end = behind->second;
      ranges_.erase(behind);
    }
    auto before = ranges_.lower_bound(begin);
    if (before != ranges_.begin() && (--before)->second >= begin) {
      if (before->second > begin) std::abort();
      before->second = end;
    } else {
      ranges_[begin] = end;
    }
  }
  bool remove(std::byte* begin, std::size_t bytes) {
    const auto found = find(begin, bytes);
    if (found == ranges_.end()) return false;
    const auto [old_begin, old_end] = *found;
    ranges_.erase(found);
    if (old_begin < begin) ranges_[old_begin] = begin;
    if (begin + bytes < old_end) ranges_[begin + bytes] = old_end;
    return true;
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [begin, end] : ranges_) sum += static_cast<std::size_t>(end - begin);
    return sum;
  }

 private:
  std::map<std::byte*, std::byte*>::iterator find(std::byte* begin, std::size_t bytes) {
    auto found = ranges_.upper_bound(begin);
    if (found == ranges_.begin()) return ranges_.end();
    --found;
    return begin + bytes <= found->second ? found : ranges_.end();
  }

  std::map<std::byte*, std::byte*> ranges_;  // from, to
};

struct State {
  std::mutex mutex;
  std::function<bool(const fake_os::Request&)> refused;
  std::byte* region = nullptr;  // where the break may be; old ones stay, since pieces of them may
                                // have been left behind for the next source that grows
  std::byte* break_end = nullptr;
  Ranges mapped;
  Ranges ranges;  // reserved, or mapped where asked
  std::vector<Event> events;
  std::size_t discarded = 0;
  unsigned failable = 0;
  bool has_lost_addresses = false;
  void (*at_bad_access)(const void*) = nullptr;
  std::vector<fake_os::ReportedMisuse> misuses;
};

// Never destroyed: threads may end after main's statics.
State& state() {
  static auto* const the_state = new State;
  return *the_state;
}

// A mapping at a multiple of `page` that the system chooses.
void* map_pages(std::size_t bytes, int protection, int flags) {
  void* const answer = ::mmap(nullptr, bytes + page, protection, flags, -1, 0);
  if (answer == MAP_FAILED) return answer;
  auto* const begin = static_cast<std::byte*>(answer);
  const std::size_t before = -address_of(begin) & (page - 1);
  if (before != 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, page - before);
  return begin + before;
}

void log(Call call, const void* begin, std::size_t bytes) {
  const std::lock_guard guard{state().mutex};
  state().events.push_back({call, static_cast<const std::byte*>(begin), bytes});
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

// Moves the break and makes exactly the pages below it accessible. The mutex is held.
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

// Maps address space, at exactly `begin` unless that is null. No lock is held.
std::byte* map_range(Call call, void* begin, std::size_t bytes, int protection) {
  if (bytes == 0 || bytes % page != 0 || address_of(begin) % page != 0) std::abort();
  if (is_refused(call, begin, bytes)) return nullptr;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* answer = begin == nullptr ? map_pages(bytes, protection, flags)
                                  : ::mmap(begin, bytes, protection, flags, -1, 0);
  if (answer != MAP_FAILED && begin != nullptr && answer != begin) {
    ::munmap(answer, bytes);
    answer = MAP_FAILED;
  }
  auto* const granted = answer == MAP_FAILED ? nullptr : static_cast<std::byte*>(answer);
  const std::lock_guard guard{state().mutex};
  if (granted != nullptr) state().ranges.add(granted, bytes);
  state().events.push_back({call, granted, bytes});
  return granted;
}

// Whether to grant a call for part of a range, which must exist. No lock is held.
bool is_granted_within(Call call, void* begin, std::size_t bytes) {
  if (bytes == 0 || bytes % page != 0 || address_of(begin) % page != 0) std::abort();
  {
    const std::lock_guard guard{state().mutex};
    if (!state().ranges.has(static_cast<std::byte*>(begin), bytes)) std::abort();
  }
  if (is_refused(call, begin, bytes)) return false;
  log(call, begin, bytes);
  return true;
}

}  // namespace

namespace fake_os {

Answers& answers = *new Answers;  // never destroyed, as above

void reset(std::size_t break_offset) {
  State& s = state();
  const std::lock_guard guard{s.mutex};
  s.events.clear();
  s.refused = nullptr;
  s.discarded = 0;
  s.failable = 0;
  s.has_lost_addresses = false;
  s.misuses.clear();
  answers = {};
  void* const region = map_pages(break_region_bytes + guard_bytes, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
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
  switch (call) {
    case Call::map:
    case Call::grow_break:
    case Call::call_at_thread_exit:
    case Call::reserve:
    case Call::reserve_at:
    case Call::map_at:
    case Call::commit:
      return true;
    default:
      return false;
  }
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
  return state().mapped.bytes();
}

std::size_t break_bytes() {
  const std::lock_guard guard{state().mutex};
  return static_cast<std::size_t>(state().break_end - state().region);
}

std::size_t discarded_bytes() {
  const std::lock_guard guard{state().mutex};
  return state().discarded;
}

std::size_t range_bytes() {
  const std::lock_guard guard{state().mutex};
  return state().ranges.bytes();
}

void access_badly(const void* address) {
  if (state().at_bad_access != nullptr) state().at_bad_access(address);
}

std::vector<ReportedMisuse> take_misuses() {
  const std::lock_guard guard{state().mutex};
  return std::exchange(state().misuses, {});
}

}  // namespace fake_os

void report_misuse(Misuse kind, FoundBy found_by, const void* where,
                   std::size_t block_bytes) noexcept {
  const std::lock_guard guard{state().mutex};
  state().misuses.push_back({kind, found_by, where, block_bytes});
}

// ---- The functions of os.h, and of bad_access.h ----

namespace os {

std::size_t page_bytes() noexcept { return page; }

unsigned processor_count() noexcept { return fake_os::answers.processors; }

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
  void* const begin = map_pages(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  auto* const granted = begin == MAP_FAILED ? nullptr : static_cast<std::byte*>(begin);
  const std::lock_guard guard{state().mutex};
  if (granted != nullptr) state().mapped.add(granted, bytes);
  state().events.push_back({Call::map, granted, bytes});
  return granted;
}

bool unmap(void* begin, std::size_t bytes) noexcept {
  if (bytes == 0 || bytes % page != 0 || address_of(begin) % page != 0) std::abort();
  if (is_refused(Call::unmap, begin, bytes)) return false;
  const std::lock_guard guard{state().mutex};
  auto* const first = static_cast<std::byte*>(begin);
  // A heap may not unmap what it never had.
  if (!state().ranges.remove(first, bytes) && !state().mapped.remove(first, bytes)) std::abort();
  state().events.push_back({Call::unmap, first, bytes});
  return ::munmap(begin, bytes) == 0;
}

bool unmap_unused(void* begin, std::size_t bytes) noexcept { return unmap(begin, bytes); }

bool discard_unseen(void* begin, std::size_t bytes) noexcept {
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
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

void* reserve(std::size_t bytes) noexcept {
  return map_range(Call::reserve, nullptr, bytes, PROT_NONE);
}

bool reserve_at(void* begin, std::size_t bytes) noexcept {
  return map_range(Call::reserve_at, begin, bytes, PROT_NONE) != nullptr;
}

bool map_at(void* begin, std::size_t bytes) noexcept {
  return map_range(Call::map_at, begin, bytes, PROT_READ | PROT_WRITE) != nullptr;
}

bool commit(void* begin, std::size_t bytes) noexcept {
  return is_granted_within(Call::commit, begin, bytes) &&
         ::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool decommit(void* begin, std::size_t bytes) noexcept {
  constexpr int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  return is_granted_within(Call::decommit, begin, bytes) &&
         ::mmap(begin, bytes, PROT_NONE, flags, -1, 0) == begin;
}

// What is refused is gone.
bool remap(void* begin, std::size_t bytes) noexcept {
  if (is_granted_within(Call::remap, begin, bytes))
    return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
  ::mprotect(begin, bytes, PROT_NONE);
  return false;
}

// A refused call has taken the contents.
bool protect(void* begin, std::size_t bytes) noexcept {
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0 &&
         is_granted_within(Call::protect, begin, bytes) && ::mprotect(begin, bytes, PROT_NONE) == 0;
}

bool make_inaccessible(void* begin, std::size_t bytes) noexcept {
  return is_granted_within(Call::make_inaccessible, begin, bytes) &&
         ::mprotect(begin, bytes, PROT_NONE) == 0;
}

void* lonely_address(unsigned attempt, std::size_t) noexcept {
  constexpr std::uintptr_t first[] = {0x3800'0000'0000, 0x4000'0000'0000, 0x0200'0000'0000};
  return attempt < fake_os::answers.lonely_addresses ? reinterpret_cast<void*>(first[attempt])
                                                     : nullptr;
}

bool can_move_pages() noexcept {
  const std::lock_guard guard{state().mutex};
  return !state().has_lost_addresses;
}

bool is_locked(const void*, std::size_t) noexcept { return false; }

// Copies, so that sanitizers can follow. A refused `leave` loses the range that has no pages.
bool move_pages(void* from, std::size_t bytes, void* to, std::size_t to_bytes,
                bool& is_left) noexcept {
  if (address_of(from) % page != 0 || to_bytes < bytes) std::abort();
  const bool has_moved = is_granted_within(Call::move_pages, to, to_bytes);
  void* const empty = has_moved ? from : to;
  const std::size_t empty_bytes = has_moved ? bytes : to_bytes;
  is_left = is_granted_within(Call::leave, empty, empty_bytes);
  if (has_moved) std::memcpy(to, from, bytes);
  if (!is_left) {
    const std::lock_guard guard{state().mutex};
    state().has_lost_addresses = true;
  }
  return (is_left ? ::madvise(empty, empty_bytes, MADV_DONTNEED)
                  : ::mprotect(empty, empty_bytes, PROT_NONE)) == 0 &&
         has_moved;
}

void prefer_huge_pages(void* begin, std::size_t bytes) noexcept {
  log(Call::prefer_huge_pages, begin, bytes);
}

void refuse_huge_pages(void* begin, std::size_t bytes) noexcept {
  log(Call::refuse_huge_pages, begin, bytes);
}

std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept {
  const auto& answer = fake_os::answers.touched_pages;
  return answer ? answer(static_cast<const std::byte*>(begin), bytes, looked_at) : untold;
}

std::uint64_t coarse_milliseconds() noexcept { return fake_os::answers.clock; }

std::uint64_t nanoseconds() noexcept { return coarse_milliseconds() * 1'000'000; }

bool find_cgroup(const char* root, Cgroup& group) noexcept {
  if (*root != '\0') std::abort();  // a test's own
  ++fake_os::answers.looks_for_group;
  group = {};
  group.limit_bytes = fake_os::answers.group_limit;
  return group.limit_bytes != 0;
}

std::size_t used_by(const Cgroup&, std::size_t) noexcept {
  ++fake_os::answers.looks_at_group;
  return fake_os::answers.group_used ? fake_os::answers.group_used() : 0;
}

std::size_t machine_memory() noexcept { return fake_os::answers.machine_memory; }

void explain_refusal() noexcept { ++fake_os::answers.explained_refusals; }

bool has_half_of_mappings() noexcept { return fake_os::answers.has_half_of_mappings; }

void call_at_bad_access(void (*look)(const void* address)) noexcept {
  state().at_bad_access = look;
}

// A number instead of frames: the how-manieth stack it is.
void take_call_stack(CallStack& stack) noexcept {
  static std::atomic<std::uintptr_t> taken{0};
  stack.frames[0] = reinterpret_cast<void*>(++taken);
  stack.depth = 1;
}

// ---- call stacks of the heap profile ----

void unwind(UnwoundStack& stack, const void*) noexcept {
  stack.depth = 1;
  stack.is_whole = true;
  stack.frames[0] = fake_os::answers.call_site;
}
void refresh_modules() noexcept {}
void refresh_modules_within_malloc() noexcept {}
constinit const ModuleTable module_table{};
const Module* module_met(unsigned) noexcept { return nullptr; }
bool call_at_exit(void (*)(void*)) noexcept { return true; }

void write_call_stack(const CallStack& stack) noexcept {
  ErrorLine line{"call stack "};
  line.number(address_of(stack.frames[0]));
  line.write();
}

void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, kinds);
}

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
              std::uint32_t milliseconds) noexcept {
  const timespec time{milliseconds / 1000, static_cast<long>(milliseconds % 1000) * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &time);
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

std::uint64_t process_id() noexcept { return 1; }

void name_thread(const char*) noexcept {}
std::uint32_t thread_id() noexcept { return 1; }
bool has_thread(std::uint32_t) noexcept { return false; }
bool has_thread_beside(std::uint32_t) noexcept { return false; }
void find_clock() noexcept {}
bool counts_all_memory() noexcept { return fake_os::answers.counts_all_memory; }
void find_memory_rule() noexcept {}
std::uint64_t unix_nanoseconds() noexcept { return 0; }
bool tells_all_thread_ends() noexcept { return true; }
constinit std::atomic<void (*)()> when_ends_are_untold{nullptr};

bool start_thread(void* (*run)(void*)) noexcept {
  pthread_t thread;
  return !is_refused(Call::start_thread, nullptr, 0) &&
         ::pthread_create(&thread, nullptr, run, nullptr) == 0 && ::pthread_detach(thread) == 0;
}

bool has_several_threads() noexcept { return false; }
bool has_one_thread() noexcept { return fake_os::answers.has_one_thread; }

bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  return ::pthread_atfork(prepare, parent, child) == 0;
}

bool may_be_allocated(const void*) noexcept { return fake_os::answers.has_other_allocators; }

int write(int descriptor, const char* text, std::size_t bytes) noexcept {
  return ::write(descriptor, text, bytes) < 0 ? errno : 0;
}

void abort_process() noexcept { std::abort(); }

}  // namespace os
}  // namespace ts
