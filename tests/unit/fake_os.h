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

// What the system answers, until a test changes it, and how often it was asked.
struct Answers {
  std::uint64_t clock = 1;  // in milliseconds
  unsigned processors = 2;
  std::size_t machine_memory = std::size_t{1} << 34;
  unsigned lonely_addresses = 3;     // how many isolated addresses there are
  bool counts_all_memory = false;    // as under strict overcommit
  bool has_one_thread = false;       // the process
  bool has_other_allocators = true;  // to which a foreign pointer may belong
  bool has_half_of_mappings = true;  // of those that a process may have
  std::uintptr_t call_site = 0;      // the stack of every call, as one frame
  std::size_t group_limit = 0;       // of the process's cgroup; 0: there is none
  std::function<std::size_t()> group_used;
  // How many of the pages looked at were touched; the system does not tell if there is none.
  std::function<std::size_t(const std::byte* begin, std::size_t bytes, std::size_t looked_at)>
      touched_pages;

  unsigned looks_for_group = 0;
  unsigned looks_at_group = 0;
  unsigned explained_refusals = 0;  // reports that memory ran out
};
extern Answers& answers;

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

// Address space from reserve, reserve_at and map_at.
std::size_t range_bytes();

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
