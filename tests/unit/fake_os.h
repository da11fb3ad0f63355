// A double of os/os.h for tests, linked in its place. Memory comes from the kernel as usual, but
// each request is logged, can be refused, and can be preceded by calls of other code. The break is
// a private one, so no other part of the program moves it, and memory past it is inaccessible, so a
// heap that touches what it returned crashes. The clock stands still until a test sets it, and
// misuse is recorded instead of reported. Locks, thread exits and aborts are real. OS pages are 4
// KiB, or TS_FAKE_PAGE_BYTES from the environment. Calls fail only when a test says so.
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
  move_pages,  // `begin` is the new address
  leave,       // what has no pages then
  protect,
  make_inaccessible,
  prefer_huge_pages,  // never refused, like the next
  refuse_huge_pages,
  start_thread,
};

// One call, before it is answered: `begin` is null if the system chooses the place.
struct Request {
  Call call;
  const void* begin;
  std::size_t bytes;
};

// One call and its answer. `begin` is the memory granted, returned or discarded; null if refused.
struct Event {
  Call call;
  const std::byte* begin;
  std::size_t bytes;
};

// Lets all calls succeed, moves the break to the start of a fresh region (plus `break_offset`), and
// clears the counts, the log and the script. Mappings stay: threads keep theirs after a heap is
// gone.
void reset(std::size_t break_offset = 0);

// Called before each call, with no lock held; true refuses it. May move the break.
void refuse_if(std::function<bool(const Request&)> refused);
void refuse_nothing();
// Only these calls.
template <class... Calls>
void refuse(Calls... calls) {
  refuse_if([=](const Request& request) { return ((request.call == calls) || ...); });
}

bool can_fail(Call call);
inline void refuse_memory() {
  refuse_if([](const Request& request) { return can_fail(request.call); });
}
// Refuses the n-th of those calls, counting from 0.
void refuse_nth(unsigned n);
// How many such calls came since refuse_nth().
unsigned failable_calls();

// Moves the break as other code would. Returns false if the region is too small.
bool move_break(std::ptrdiff_t bytes);
std::byte* current_break();

// The calls since the last take_events().
std::vector<Event> take_events();

// The memory that the heaps currently have from the system.
std::size_t mapped_bytes();
std::size_t break_bytes();      // from the start of the region to the break
std::size_t discarded_bytes();  // ever since reset()

// The stack of every call from now on, as one frame.
void set_call_site(std::uintptr_t address);

void set_processor_count(unsigned count);

// ---- What else the engine asks ----

// Address space from reserve, reserve_at and map_at.
std::size_t range_bytes();

// How many isolated addresses there are: 3, as on Linux, unless a test sets it.
void set_lonely_addresses(unsigned count);

void set_clock(std::uint64_t milliseconds);

// The answer of touched_pages(); `untold` if there is none.
using TouchedPages =
    std::function<std::size_t(const std::byte* begin, std::size_t bytes, std::size_t looked_at)>;
void answer_touched_pages(TouchedPages answer);

// The answer of counts_all_memory(); false after a reset.
void set_counts_all_memory(bool counts);

// The answer of has_one_thread(); false after a reset.
void set_has_one_thread(bool has);

// Whether each foreign pointer may belong to another allocator; true after a reset.
void has_other_allocators(bool has);

// The limit and usage of the process's cgroup; 0 for no cgroup. How often they were read.
void set_cgroup(std::size_t limit_bytes, std::function<std::size_t()> used_bytes);
unsigned looks_for_group();
unsigned looks_at_group();
void set_machine_memory(std::size_t bytes);

// How often the engine was about to report that memory ran out.
unsigned explained_refusals();
// The answer of has_half_of_mappings(); true at first.
void set_half_of_mappings(bool is_left);

// Does what the SIGSEGV handler would do.
void access_badly(const void* address);

// A reported misuse; the program continues.
struct ReportedMisuse {
  Misuse kind;
  FoundBy found_by;
  const void* where;
  std::size_t block_bytes;
};
std::vector<ReportedMisuse> take_misuses();

}  // namespace ts::fake_os
