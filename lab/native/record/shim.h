// What the parts of the recording library share: the current program image, and the state of a
// thread, and how it writes an event.
//
// One process may be many images (each exec begins one, each fork another), and nobody tells a
// forked child that it is one. An image that finds no ring, no place in it or no room to map it is
// silently not recorded.
#pragma once

#include <atomic>
#include <cstdint>

#include "record/ring.h"

namespace ts::record {

// One page that the kernel clears in every forked child, however it was forked: so a child finds
// itself not begun, whatever its parent was.
struct OwnPage {
  std::atomic<ImagePlace*> image;   // null: not begun, or not recorded
  std::atomic<std::uint32_t> step;  // of the beginning
};

// release when stored; relaxed when read: the page is all zeros, whichever thread made it.
[[gnu::visibility("hidden")]] extern constinit std::atomic<OwnPage*> own_page;
// release when stored, acquire when read: the ring is mapped.
[[gnu::visibility("hidden")]] extern constinit std::atomic<Ring*> own_ring;

// What the program has forbidden itself, so that doing it would kill it; see image.cpp.
// relaxed: it is forbidden in the thread that asks.
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> may_read_clock;
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> may_call_system;

// Null: not recorded.
ImagePlace* begin_image();

// Call first at every event. acquire: pairs with the release that ends the beginning; the place and
// the ring are seen.
inline ImagePlace* own_image() {
  ImagePlace* const image =
      own_page.load(std::memory_order_relaxed)->image.load(std::memory_order_acquire);
  return image != nullptr ? image : begin_image();
}

// This process and its children record no more: the collector is gone.
void stop_recording();

std::uint64_t read_clock_slow();

// The time of events. The processor's counter costs a third of the system's clock.
inline std::uint64_t read_clock() {
#ifdef __x86_64__
  const Ring* const ring = own_ring.load(std::memory_order_acquire);
  if (ring->clock == RingClock::cycles && may_read_clock.load(std::memory_order_relaxed)) {
    return __builtin_ia32_rdtsc();
  }
#endif
  return read_clock_slow();
}

// --- threads ---
//
// Runs for every event, so it takes no lock and makes no system call or function call.
//
// A signal may interrupt a thread anywhere here, and its handler may call malloc, and may never
// return (siglongjmp). So a record's place is taken by one instruction, and nothing else is shared
// between two events of a thread. A place that is taken and never published is a hole, which the
// collector skips.

// libc's flag of a single-threaded process; a constant false until it is found, and before glibc
// 2.32, which has none.
inline constinit const char no_flag = 0;
inline constinit const char* one_thread_flag = &no_flag;

// How far ahead memory is fetched: after a chunk's end comes another chunk, or nothing, and
// prefetching nothing is harmless.
inline constexpr std::size_t records_ahead = 8;

struct Thread {
  Record* next;                // its next record; at a chunk's end, or null: it needs a chunk
  const void* newest;          // what it got last in the current allocation; see call.h
  const void* giving;          // what it is freeing
  std::uint64_t wanted_bytes;  // see call.h
  std::uint64_t seen_now;      // the ring's time when it last read the clock
  std::uint32_t wanted_log2;
  std::uint32_t has_operator_request;
  std::uint32_t number;         // 1 + the number within its image; 0: none yet
  std::uint32_t former_number;  // the same, after its end was recorded
  std::uint32_t fork_number;    // of the current fork
  std::uint32_t is_announced;   // its creator has recorded its beginning
};
[[gnu::visibility("hidden")]] extern constinit thread_local Thread self;

// Whether `next` was changed from `from` to `to` in one step, as seen by signal handlers on this
// thread.
inline bool move_on(Record*& next, Record* from, Record* to) {
#ifdef __x86_64__
  // No lock prefix: no other thread writes here, and an interrupt comes before or after.
  bool is_done = false;
  asm volatile("cmpxchg %[to], %[next]"
               : [next] "+m"(next), "+a"(from), "=@ccz"(is_done)
               : [to] "r"(to)
               : "memory");
  return is_done;
#else
  return std::atomic_ref{next}.compare_exchange_strong(from, to, std::memory_order_relaxed);
#endif
}

// Gives the thread a chunk, and a number if it has none; false if there is no chunk.
bool take_chunk(ImagePlace& image);

inline bool is_at_chunk_end(const Record* record) {
  return reinterpret_cast<std::uintptr_t>(record) % chunk_bytes == 0;
}

// The place of the thread's next record; null: the event is lost.
inline Record* reserve(ImagePlace& image) {
  for (;;) {
    Record* const here = std::atomic_ref{self.next}.load(std::memory_order_relaxed);
    if (is_at_chunk_end(here)) [[unlikely]] {
      if (!take_chunk(image)) return nullptr;
    } else if (move_on(self.next, here, here + 1)) {
      return here;
    }
  }
}

// Reading the clock is the most expensive part here. So it is read at each eighth event of the
// image, and when the collector's clock has changed since the thread read it: a millisecond has
// passed. As far as the trace tells, the other events happened together with the one before them.
inline std::uint64_t time_of(std::uint64_t ticket) {
  const std::uint64_t now =
      own_ring.load(std::memory_order_acquire)->now.load(std::memory_order_relaxed);
  if ((ticket & 7) != 0 && now == self.seen_now) return no_time;
  self.seen_now = now;
  return read_clock();
}

inline std::uint64_t draw_ticket(ImagePlace& image) {
#ifdef __x86_64__
  // The lock costs most when there is no other thread. Without it the addition is still one
  // instruction, which no signal handler of this thread can interrupt; and the draws of other
  // threads, past or future, are ordered with it by their creation and their end. libc's own heap
  // relies on the same flag. The collector never reads the counter.
  if (*one_thread_flag != 0) {
    std::uint64_t ticket = 1;
    asm volatile("xadd %[ticket], %[next]"
                 : [ticket] "+r"(ticket), [next] "+m"(image.next_ticket)
                 :
                 : "memory", "cc");
    return ticket;
  }
#endif
  return image.next_ticket.fetch_add(1, std::memory_order_acq_rel);
}

// Fetches memory that is about to be written, while the program continues. The collector had it
// last.
inline void fetch_for_writing(const void* memory) {
#ifdef __x86_64__
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(memory)));
#else
  __builtin_prefetch(memory, 1);
#endif
}

// Returns the ticket; 0: the event is lost. leave_ticket: for a resize, instead of the time.
inline std::uint64_t publish(ImagePlace& image, Record* record, std::uint64_t what,
                             std::uint64_t size, std::uint64_t leave_ticket = 0) {
  if (record == nullptr) return 0;
  fetch_for_writing(record + records_ahead);
  record->what = what;
  record->size = size;
  const std::uint64_t ticket = draw_ticket(image);
  record->time = leave_ticket != 0 ? leave_ticket : time_of(ticket);
  // release: pairs with the collector's acquire; the above is seen
  record->ticket.store(ticket, std::memory_order_release);
  return ticket;
}

inline std::uint64_t write_event(ImagePlace& image, RawKind kind, std::uint64_t address,
                                 std::uint64_t size, unsigned log2_alignment = 0) {
  return publish(image, reserve(image), Record::pack(kind, address, log2_alignment), size);
}

// A call that is no event.
void note_ignored(ImagePlace& image);

// Gives the calling thread a number, if its creator has not.
void enrol(ImagePlace& image);

// --- births and ends of threads ---
//
// A thread's beginning is an event of its creator, drawn before the thread exists, so it comes
// before all that the thread does. Its end is drawn in the last but one round of thread-specific
// destructors. If another destructor allocates after that, the event belongs to a thread without a
// past, created by the one that has ended: so nothing is lost, and no thread acts after its end.

// Once, when the image has begun, on its first thread; and the same in a forked child, which has
// inherited most of it.
void watch_threads();
void watch_threads_in_child();

}  // namespace ts::record
