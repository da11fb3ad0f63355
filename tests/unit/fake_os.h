// A double of os/os.h for tests, linked in its place: memory comes from the kernel as usual, but
// every request for it is logged, can be refused, and can be preceded by calls of other code; and
// the break is a private one, so that no other part of the program moves it. Memory beyond the
// break is inaccessible, so that a heap that touches what it gave back dies. The clock stands still
// until a test sets it, and a misuse is noted instead of reported. Locks, thread ends and aborts
// are real. OS pages have 4 KiB, or TS_FAKE_PAGE_BYTES of the environment. It refuses to guess when
// to fail: a test says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"

namespace ts::fake_os {

enum class Call {
  map,
  unmap,
  grow_break,
  shrink_break,
  discard,
  call_at_thread_exit,
  reserve,
  reserve_at,
  map_at,
  commit,
  decommit,
  remap,
  move_pages,  // `begin` is where to
  leave,       // what has no pages then
  protect,
  make_inaccessible,
  prefer_huge_pages,  // never refused, nor is the next
  refuse_huge_pages,
  start_thread,
};

// One call, as it is made: `begin` is null for requests that the system places.
struct Request {
  Call call;
  const void* begin;
  std::size_t bytes;
};

// One call, after it was answered. `begin` is the memory that was granted, taken back or discarded;
// null if refused.
struct Event {
  Call call;
  const std::byte* begin;
  std::size_t bytes;
};

// Everything works again; the break goes to the beginning of a fresh region (`break_offset` beyond
// it); counts, the log and what was scripted are empty. Mappings stay: threads keep theirs beyond
// the life of a heap.
void reset(std::size_t break_offset = 0);

// Called before each call, without any lock held; true refuses it. May move the break.
void refuse_if(std::function<bool(const Request&)> refused);
void refuse_nothing();
// Each of these calls, and no other.
template <class... Calls>
void refuse(Calls... calls) {
  refuse_if([=](const Request& request) { return ((request.call == calls) || ...); });
}

// Is it a request for memory or keys?
bool can_fail(Call call);
// Refuses all of those calls.
inline void refuse_memory() {
  refuse_if([](const Request& request) { return can_fail(request.call); });
}
// Refuses the n-th of those calls, from 0.
void refuse_nth(unsigned n);
// How many such calls were made since refuse_nth().
unsigned failable_calls();

// Moves the break as another user of it would. Returns false if the region has no room for that.
bool move_break(std::ptrdiff_t bytes);
std::byte* current_break();

// The calls since the last take_events().
std::vector<Event> take_events();

// The memory that the heaps hold of the system at the moment.
std::size_t mapped_bytes();
std::size_t break_bytes();      // from the beginning of the region to the break
std::size_t discarded_bytes();  // ever since reset()

// The stack of every call from now on: one frame.
void set_call_site(std::uintptr_t address);

void set_processor_count(unsigned count);

// ---- What the engine asks beyond that ----

// Address space of reserve, reserve_at and map_at.
std::size_t range_bytes();

// How many lonely addresses there are: 3, as under Linux, unless a test says otherwise.
void set_lonely_addresses(unsigned count);

void set_clock(std::uint64_t milliseconds);

// The answer of touched_pages(); `untold` without one.
using TouchedPages =
    std::function<std::size_t(const std::byte* begin, std::size_t bytes, std::size_t looked_at)>;
void answer_touched_pages(TouchedPages answer);

// The answer of counts_all_memory(); false after a reset.
void set_counts_all_memory(bool counts);

// The answer of has_one_thread(); false after a reset.
void set_has_one_thread(bool has);

// Whether each foreign pointer may be another allocator's; true after a reset.
void has_other_allocators(bool has);

// The limit of the process's control group, and what the group uses; 0 for no group. How often they
// were asked for.
void set_cgroup(std::size_t limit_bytes, std::function<std::size_t()> used_bytes);
unsigned looks_for_group();
unsigned looks_at_group();
void set_machine_memory(std::size_t bytes);

// How often the engine was about to say that there is no memory.
unsigned explained_refusals();
// The answer of has_half_of_mappings(); true at first.
void set_half_of_mappings(bool is_left);

// Does what the handler of SIGSEGV would do.
void access_badly(const void* address);

// A misuse that was reported; the program goes on.
struct ReportedMisuse {
  Misuse kind;
  FoundBy found_by;
  const void* where;
  std::size_t block_bytes;
};
std::vector<ReportedMisuse> take_misuses();

}  // namespace ts::fake_os
