// All requests of the allocators to the operating system, in one place that tests can replace to
// inject failures. Sizes are in bytes; memory is page-aligned and zero-filled. A null or false
// result means that the request was refused and nothing has changed, errno included. Functions do
// not allocate unless they say so, and keep no state but that of the process.
//
// Functions marked *seen by others* call the C library by names that another library may interpose
// (seen_by_others.cpp, c_library.cpp). The interposed function may allocate, so the caller must
// hold no lock and have no heap in the middle of a change. All other functions issue system calls
// directly (system_call.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace ts::os {

// Size of a page of memory.
std::size_t page_bytes() noexcept;

// CPUs that this process may run on (its affinity mask, not the machine's count), at least 1.
unsigned processor_count() noexcept;

// The program break (sbrk(0)); null if there is none that the C library shares.
void* current_break() noexcept;

// Raises the program break by `bytes`: returns the old one, or null. The break is not thread-safe:
// the caller serialises all calls of these two functions.
void* grow_break(std::size_t bytes) noexcept;

// Lowers the program break by `bytes`, if it still is at `expected_end`.
bool shrink_break(const void* expected_end, std::size_t bytes) noexcept;

// Reserves and commits private memory; `bytes` is a multiple of the page size.
void* map(std::size_t bytes) noexcept;
// For memory that the program has seen. Seen by others.
bool unmap(void* begin, std::size_t bytes) noexcept;
// For memory that no program has seen, such as tables.
bool unmap_unused(void* begin, std::size_t bytes) noexcept;

// Reserves address space without memory, page-aligned; commit() adds memory to part of it (whole
// pages).
void* reserve(std::size_t bytes) noexcept;
bool commit(void* begin, std::size_t bytes) noexcept;
// Turns memory back into bare address space. If the program has seen it, call discard() first.
bool decommit(void* begin, std::size_t bytes) noexcept;

// Whether the kernel counts all writable memory against a limit, touched or not, and refuses more
// (vm.overcommit_memory=2). Discarded memory still counts then, decommitted memory does not. Read
// once when the process starts, since a seccomp filter may forbid it later.
bool counts_all_memory() noexcept;
void find_memory_rule() noexcept;

// Replaces the mapping of committed memory that was discarded and reads as zero, and still does; if
// the kernel refuses, keeps the old mapping. False if the memory is inaccessible from now on.
bool remap(void* begin, std::size_t bytes) noexcept;

// Reserves address space, or maps memory, at exactly this page, but never over another mapping.
bool reserve_at(void* begin, std::size_t bytes) noexcept;
bool map_at(void* begin, std::size_t bytes) noexcept;

// An address, a multiple of 2 MiB, at which `bytes` are likely to be free and to stay so. Each
// attempt from 0 on returns another address; null after the last.
void* lonely_address(unsigned attempt, std::size_t bytes) noexcept;

// Whether the kernel moves pages as move_pages() promises; tried once, on memory of its own.
bool can_move_pages() noexcept;

// Moves the pages of one range of committed memory to the beginning of another that reads as zero
// (whole pages, no overlap). On failure the contents are unchanged. The source range stays
// committed and reads as zero, unless `is_left` becomes false: then it must not be touched again,
// and all later moves fail. Seen by others.
bool move_pages(void* from, std::size_t bytes, void* to, std::size_t to_bytes,
                bool& is_left) noexcept;
// Whether part of a range is locked (mlock(2)). Moved pages stay locked.
bool is_locked(const void* begin, std::size_t bytes) noexcept;

// Asks for huge pages in a range that is about to be filled; a hint.
void prefer_huge_pages(void* begin, std::size_t bytes) noexcept;
// Withdraws the hint and keeps huge pages out of the range.
void refuse_huge_pages(void* begin, std::size_t bytes) noexcept;

// Samples `looked_at` pages spread over a range, and counts those that were written to and are not
// shared through a fork; `untold` if the kernel does not say. Touches none of them.
inline constexpr std::size_t untold = ~std::size_t{0};
std::size_t touched_pages(const void* begin, std::size_t bytes, std::size_t looked_at) noexcept;

// A monotonic clock, cheap to read, accurate to a few milliseconds; never 0.
std::uint64_t coarse_milliseconds() noexcept;
// The same clock in nanoseconds.
std::uint64_t nanoseconds() noexcept;
// Finds the kernel's vDSO code for both at start; without it, each reading is a system call.
void find_clock() noexcept;

// Returns the pages to the kernel at once; they read as zero when touched again. False if it did
// not take all of them, for example because they are locked in memory. Seen by others.
bool discard(void* begin, std::size_t bytes) noexcept;
// The same for memory that no other library has ever seen; allowed under a lock.
bool discard_unseen(void* begin, std::size_t bytes) noexcept;
// The same for the whole OS pages between two addresses.
inline void discard_whole_pages(const void* begin, const void* end) noexcept {
  const std::uintptr_t first = align_up(address_of(begin), page_bytes());
  const std::uintptr_t behind = align_down(address_of(end), page_bytes());
  if (first < behind) discard_unseen(reinterpret_cast<void*>(first), behind - first);
}

// Sleeps until woken, unless `word` no longer holds `expected`; may return early. Only wakes that
// share a bit with `kinds` count.
void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
          std::uint32_t kinds = ~0U) noexcept;
// The same with a timeout.
void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
              std::uint32_t milliseconds) noexcept;
// Wakes at most `count` threads that wait on `word` and share a bit with `kinds`.
void wake(const std::atomic<std::uint32_t>& word, int count, std::uint32_t kinds = ~0U) noexcept;

// Calls `on_exit(argument)` when the calling thread ends, after its C++ thread_local destructors.
// The C library may run it before other pthread-key destructors. `on_exit` must be the same every
// time: the process uses a single key of pthread_key_create or, if the program has used them all
// up, the C library's list of thread_local destructors. False if neither is available.
bool call_at_thread_exit(void (*on_exit)(void*), void* argument) noexcept;

// Frees that key for a program that has run out of them; the calling thread is registered again.
// Other threads registered so far end unnoticed. False if there is no key to free.
bool give_thread_key_back() noexcept;

// Whether the end of every registered thread is noticed, and what to call when that changes.
bool tells_all_thread_ends() noexcept;
extern std::atomic<void (*)()> when_ends_are_untold;

// Runs `run` in a new detached thread with a small stack and all signals blocked. The C library
// calls malloc for it, so the caller must hold no lock. False if the kernel refuses, or the program
// is linked without threads.
bool start_thread(void* (*run)(void*)) noexcept;

// The process ID. Never 0.
std::uint64_t process_id() noexcept;

// The calling thread's kernel ID, and whether the process still has a thread with that ID.
std::uint32_t thread_id() noexcept;
bool has_thread(std::uint32_t id) noexcept;
// Whether /proc lists a thread besides the main one, the calling one and the one with this ID.
// False if unknown.
bool has_thread_beside(std::uint32_t id) noexcept;

// Names the calling thread (15 characters at most), for tools to show.
void name_thread(const char* name) noexcept;

// Registers handlers that run around every fork(): `prepare` in the parent before it, `parent` and
// `child` after it. They run while the forking thread holds the C library's lock of the list of
// streams: otherwise the library would take it after `prepare`, while its holder (in fflush(NULL),
// say) might wait for a lock that `prepare` took.
bool call_around_fork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept;

// Calls `end()` when the process ends by exit(), after all handlers registered later, which under
// glibc include the destructors of a program. False if the C library refuses.
bool call_at_exit(void (*end)(void*)) noexcept;

// Whether the process has never had a second thread; false if the C library has no such flag.
bool has_one_thread() noexcept;

// Whether it has or had other threads; false if the C library does not say.
bool has_several_threads() noexcept;

// dlsym, or null if the program has none (glibc before 2.34, linked without libdl).
void* find_name(void* library, const char* name) noexcept;

// Finds a function of the process by name, or null. For functions that only a rare path needs,
// since each reference costs the dynamic linker time at every start.
template <class Function>
Function* find_function(const char* name) noexcept {
  return reinterpret_cast<Function*>(find_name(nullptr, name));  // RTLD_DEFAULT
}

// Whether another allocator may have returned this address: it is pointer-aligned and mapped, and
// does not belong to a variable of the program, a library or the thread, to the main thread's
// stack, or to the used part of the caller's stack. The C library may allocate for it, so the
// caller must hold no lock. Not a cancellation point.
bool may_be_allocated(const void* p) noexcept;
// Looks up at start what this and the unwinder (unwind.h) need from the C library: later, the
// dynamic linker might block the thread.
void find_stack_functions() noexcept;

// Call this without a lock before an allocation fails. If the process has as many mappings as the
// kernel allows, says so on standard error, once.
void explain_refusal() noexcept;
// Whether the process could have twice as many mappings as it has. Takes about a microsecond per
// mapping.
bool has_half_of_mappings() noexcept;

// Writes all of the text without stdio; not a cancellation point. Returns 0, or an error of
// write(2).
int write(int descriptor, const char* text, std::size_t bytes) noexcept;
// Writes to standard error. A failure to report a failure is ignored.
inline void write_error(const char* text, std::size_t bytes) noexcept { write(2, text, bytes); }

// Aborts with SIGABRT.
[[noreturn]] void abort_process() noexcept;

}  // namespace ts::os
