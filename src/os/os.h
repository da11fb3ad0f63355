// All requests of the allocators to the operating system: the one seam that tests replace to inject
// failure. Sizes are bytes; memory handed out is page-aligned and zero-filled. A null result or
// `false` means refused, with nothing changed, errno included. No function allocates, unless it
// says so, and none keeps state but the process's own.
//
// Functions marked *seen by others* call the C library by names that another library may replace
// (seen_by_others.cpp, c_library.cpp). What stands there may allocate: the caller has no lock and
// no heap in the middle of a change. All others are system calls by instruction (system_call.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace ts::os {

// Size of a page of memory.
std::size_t page_bytes() noexcept;

// Processors that this process may run on (its affinity mask, not the machine's count), at least 1.
unsigned processor_count() noexcept;

// The end of the data segment (sbrk(0)), null if there is none that the C library shares.
void* current_break() noexcept;

// Moves the end of the data segment up by `bytes`: the old end, or null. The caller serialises all
// calls of this pair: the break is not thread-safe.
void* grow_break(std::size_t bytes) noexcept;

// Moves the end of the data segment down by `bytes`, if it still is at `expected_end`.
bool shrink_break(const void* expected_end, std::size_t bytes) noexcept;

// Reserves and commits private memory; `bytes` is a multiple of the page size.
void* map(std::size_t bytes) noexcept;
// Memory that a program had. Seen by others.
bool unmap(void* begin, std::size_t bytes) noexcept;
// Memory that no program ever had, such as tables.
bool unmap_unused(void* begin, std::size_t bytes) noexcept;

// Address space without memory, on a page boundary, and memory for a part of it (whole pages).
void* reserve(std::size_t bytes) noexcept;
bool commit(void* begin, std::size_t bytes) noexcept;
// Address space without memory again. Where a program had it, discard() comes first.
bool decommit(void* begin, std::size_t bytes) noexcept;

// Whether the system counts all writable memory against a limit, touched or not, and refuses more
// (vm.overcommit_memory=2): memory that was discarded still counts then, and decommitted memory
// does not. As it was when the process began, since a filter may forbid a later look.
bool counts_all_memory() noexcept;
void find_memory_rule() noexcept;

// Replaces the mapping of committed memory that was discarded and reads as zero, and still does; or
// keeps it, if the system refuses. False if the memory is inaccessible from now on.
bool remap(void* begin, std::size_t bytes) noexcept;

// Address space, or committed memory, at exactly this page, and never over another mapping.
bool reserve_at(void* begin, std::size_t bytes) noexcept;
bool map_at(void* begin, std::size_t bytes) noexcept;

// An address, a multiple of 2 MiB, at which `bytes` are likely to be free and to stay so. Each
// attempt from 0 on gives another address; null is the last.
void* lonely_address(unsigned attempt, std::size_t bytes) noexcept;

// Whether the system moves pages as move_pages() promises; tried once, on memory of its own.
bool can_move_pages() noexcept;

// Moves the pages of one range of committed memory to the beginning of another, which reads as zero
// (whole pages, not overlapping). On failure, contents are as before. The range that has no pages
// now is left as committed memory, and reads as zero; unless `is_left` becomes false: then it must
// not be touched again, and no pages move from then on. Seen by others.
bool move_pages(void* from, std::size_t bytes, void* to, std::size_t to_bytes,
                bool& is_left) noexcept;
// Whether a part of a range is locked (mlock(2)). Pages that move stay locked.
bool is_locked(const void* begin, std::size_t bytes) noexcept;

// Asks for huge pages in a range that is about to be filled; a hint.
void prefer_huge_pages(void* begin, std::size_t bytes) noexcept;
// Takes the hint back, and keeps the range without huge pages.
void refuse_huge_pages(void* begin, std::size_t bytes) noexcept;

// Samples `looked_at` pages of a range, one in each part of it, and counts those that were written
// to and are not shared through a fork; `untold` if the system does not tell. Touches none of them.
inline constexpr std::size_t untold = ~std::size_t{0};
std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept;

// A clock that never goes back, to a few milliseconds, and cheap to read; never 0.
std::uint64_t coarse_milliseconds() noexcept;
// The same clock, exactly.
std::uint64_t nanoseconds() noexcept;
// Finds the kernel's own code for both, at the start: without it, each look is a system call.
void find_clock() noexcept;

// Gives the pages back to the system at once; they read as zero when touched again. False if it did
// not take all of them, such as pages that are locked in memory. Seen by others.
bool discard(void* begin, std::size_t bytes) noexcept;
// The same for memory that no other library has ever seen: also under a lock.
bool discard_unseen(void* begin, std::size_t bytes) noexcept;
// The same of the whole OS pages between two addresses.
inline void discard_whole_pages(const void* begin, const void* end) noexcept {
  const std::uintptr_t first = align_up(address_of(begin), page_bytes());
  const std::uintptr_t behind = align_down(address_of(end), page_bytes());
  if (first < behind) discard_unseen(reinterpret_cast<void*>(first), behind - first);
}

// Sleeps until woken, unless `word` does not hold `expected`; may return early. Only wakes with a
// common bit in `kinds` count.
void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds = ~0U) noexcept;
// The same, for at most so long.
void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
              std::uint32_t milliseconds) noexcept;
// Wakes at most `count` of the threads that wait on `word` with a common bit in `kinds`.
void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds = ~0U) noexcept;

// Calls `on_exit(argument)` when the calling thread ends, after its C++ thread_local destructors.
// The C library may run it before pthread-key destructors of others. The same `on_exit` every time:
// one key of pthread_key_create serves the process, or, where the program has them all, the C
// library's list of thread_local variables. False if the system has neither.
bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept;

// Gives that key back to a program that finds none left; the calling thread is registered anew.
// Other threads that were registered by then end unnoticed. False if there is none to give.
bool give_thread_key_back() noexcept;

// Whether no thread that was registered ends unnoticed; and what is called when that is over.
bool tells_all_thread_ends() noexcept;
extern std::atomic<void (*)()> when_ends_are_untold;

// Runs `run` in a new thread of a small stack, which gets no signals and is never joined. The C
// library calls malloc for it, so the caller has no lock. False if the system refuses it, or the
// program is linked without threads.
bool start_thread(void* (*run)(void*)) noexcept;

// The number of the process. Never 0.
std::uint64_t process_id() noexcept;

// The calling thread's number to the kernel; whether the process still has a thread of that number.
std::uint32_t thread_id() noexcept;
bool has_thread(std::uint32_t id) noexcept;
// Whether the process has a thread beside its first one, the calling one, and the one of this
// number; as /proc tells. False if it does not tell.
bool has_thread_beside(std::uint32_t id) noexcept;

// Gives the calling thread a name, of 15 letters at most, which tools show.
void name_thread(const char* name) noexcept;

// Registers handlers that run around every fork(): `prepare` in the parent before it, `parent` and
// `child` after it. They run while the thread that forks holds the C library's lock of its list of
// streams. The library would take it after `prepare`, while its holder, in fflush(NULL) for one,
// might wait for a lock that `prepare` took.
bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept;

// Calls `end()` when the process ends by exit(): after all handlers that are registered later,
// which destructors of a program under glibc are. False if the C library refuses it.
bool call_at_exit(void (*end)(void*)) noexcept;

// Whether the process has never had another thread; false if the C library has no such flag.
bool has_one_thread() noexcept;

// Whether it has others now, or had; false if the C library does not tell.
bool has_several_threads() noexcept;

// dlsym, or null where the program has none (glibc before 2.34, linked without libdl).
void* find_name(void* library, const char* name) noexcept;

// A function of the process by its name, or null: for functions that only a rare path needs, since
// each reference is work for the dynamic linker at every start.
template <class Function>
Function* find_function(const char* name) noexcept {
  return reinterpret_cast<Function*>(find_name(nullptr, name));  // RTLD_DEFAULT
}

// Whether another allocator may have given the address out: it is aligned as a pointer is and
// mapped, and is neither of a variable of the program, of a library or of the thread, nor of the
// first thread's stack, nor of the own one between its frame and its end. The C library may
// allocate for it, so the caller has no lock. No cancellation point.
bool may_be_allocated(const void* p) noexcept;
// Finds what it and the unwinder (unwind.h) need of the C library, at the start: later, the dynamic
// linker might make a thread wait.
void find_stack_functions() noexcept;

// To be called without a lock, before an allocation fails. If the process has as many mappings as
// the system allows, says so on standard error, once.
void explain_refusal() noexcept;
// Whether the process may have twice as many mappings as it has. Time: all mappings, about a
// microsecond for each.
bool has_half_of_mappings() noexcept;

// Writes all of a text without stdio; no cancellation point. 0, or an error of write(2).
int write(int descriptor, const char* text, std::size_t bytes) noexcept;
// The same to standard error. Nothing can be done about a failure to report a failure.
inline void write_error(const char* text, std::size_t bytes) noexcept { write(2, text, bytes); }

// Ends the process by SIGABRT.
[[noreturn]] void abort_process() noexcept;

}  // namespace ts::os
