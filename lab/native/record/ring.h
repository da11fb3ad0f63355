// The memory between the recorded programs and the collector: what each side writes, in which
// order.
//
// Events must survive however their program ends. So they are in a file that all images (one
// program in one process) map and share; and the shim and the collector, which are compiled
// separately, must agree on every byte. A writer may be killed between any two instructions, and
// nothing waits for what only a dead process could do.
//
//   Ring      | places for images | owners, one word for each chunk | chunks of 4 KiB |
//
// A thread takes a chunk by writing its image into the chunk's owner word, fills it with one record
// after the other, and takes the next. The collector reads records as they are published, and
// returns a chunk when all its records have been read. Ended images own nothing.
//
// The order of events. Each record has a ticket, drawn from its image's counter. An event that
// gives up a block (a free, the beginning of a resize) draws its ticket, and publishes, before the
// allocator gets the block; one that gets a block (an allocation, the end of a resize) does so
// after the allocator has returned it and before the program has it. Let event B be possible only
// after event A, because B is about A's block or got A's memory. Then A was published before B drew
// its ticket, and has the lower one. For what memory ordering adds to that, see ticket, below, and
// the collector.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ts::record {

enum class RawKind : std::uint8_t {
  malloc,
  calloc,
  aligned,
  free,
  leave,         // a resize begins: its block may belong to another thread from here on
  resize,        // and ends; `time` is the ticket of its beginning
  refused,       // an allocation that failed
  thread_begin,  // address: the new thread; size: 1 + its creator, or 0 if unknown
  thread_end,    // address: the thread
  fork           // address: the fork's number within its image
};

// The time of a record that happened together with the previous ticket's, as far as threads
// checked.
inline constexpr std::uint64_t no_time = 0;

struct Record {
  std::atomic<std::uint64_t> ticket;  // 0: not published
  std::uint64_t what;                 // 48 bits of address, 8 of log2 alignment, 8 of kind
  std::uint64_t size;
  std::uint64_t time;  // on the ring's clock, or no_time

  static constexpr std::uint64_t pack(RawKind kind, std::uint64_t address, unsigned log2) {
    return address << 16 | std::uint64_t{log2 & 0xff} << 8 | static_cast<std::uint64_t>(kind);
  }
  RawKind kind() const { return static_cast<RawKind>(what & 0xff); }
  std::uint8_t log2_alignment() const { return static_cast<std::uint8_t>(what >> 8); }
  std::uint64_t address() const { return what >> 16; }
};
static_assert(sizeof(Record) == 32);

inline constexpr std::size_t chunk_bytes = 4096;
inline constexpr std::size_t records_per_chunk = chunk_bytes / sizeof(Record) - 1;

// Occupies the place of a chunk's first record. The thread that owns the chunk writes it, the
// collector reads it; relaxed: the owner's next ticket is published after it.
struct ChunkHead {
  std::atomic<std::uint32_t> thread;   // number of the owning thread within its image
  std::atomic<std::uint32_t> ignored;  // calls that are no events: free(NULL)
  std::atomic<std::uint32_t> closed;   // 1 + the number of records, once it is final
  std::uint32_t index;                 // of this chunk
  std::uint32_t reserved[4];
};
static_assert(sizeof(ChunkHead) == sizeof(Record));

struct alignas(chunk_bytes) Chunk {
  ChunkHead head;
  Record records[records_per_chunk];
};
static_assert(sizeof(Chunk) == chunk_bytes);

enum class ImageBirth : std::uint32_t { exec, fork };

inline constexpr std::size_t name_bytes = 128;

struct alignas(64) ImagePlace {
  // The next ticket; drawn by draw_ticket (shim.h). acq_rel: each addition reads the one before
  // it. So a thread that draws a ticket sees all that was published before any lower ticket was
  // drawn, and so does the reader of its record. The collector relies on it (collector.h).
  std::atomic<std::uint64_t> next_ticket;

  // 0: free. Otherwise the pid of the image that took this place, whether or not it got further.
  alignas(64) std::atomic<std::int32_t> claimed_by;
  // release by the image, acquire by the collector: what follows has been written. Cleared with it.
  std::atomic<std::uint32_t> is_ready;
  std::uint32_t index;      // of this place
  std::uint64_t id;         // of the image: 1, 2, ... in order of their beginnings
  std::uint64_t parent_id;  // of a fork: the image that was forked
  std::uint64_t begin_time;
  ImageBirth birth;
  std::uint32_t fork_number;  // from the parent's record of the fork; 0: it was not announced
  std::int32_t parent_pid;
  std::uint32_t is_elsewhere;  // its pids belong to another PID namespace
  char program[name_bytes];    // base names
  char allocator[name_bytes];

  // relaxed, all: numbers that only have to differ, sums, and a flag that is read after the end.
  std::atomic<std::uint32_t> next_thread;
  std::atomic<std::uint32_t> next_fork;
  std::atomic<std::uint32_t> exits;     // 1: it is about to end by itself
  std::atomic<std::uint64_t> ignored;   // as in ChunkHead, for threads without a chunk
  std::atomic<std::uint32_t> given_up;  // events that found no room in the ring
  std::atomic<std::uint64_t> waits;     // of its threads, for room
  std::atomic<std::uint64_t> wait_ns;
};

inline constexpr std::size_t max_images = 2048;    // at the same time
inline constexpr std::size_t max_chunks = 65'536;  // 256 MiB

enum class RingClock : std::uint32_t {
  cycles,  // the processor's counter, if it runs at one speed
  monotonic
};

// Chunks begin at a page boundary, so a record's address gives its place in its chunk.
struct alignas(chunk_bytes) Ring {
  char magic[8];
  RingClock clock;
  std::uint32_t reserved;
  char pid_namespace[48];  // the collector's, as /proc/self/ns/pid names it; "" if unknown

  std::uint32_t chunk_count;
  // Grows whenever chunks are returned; threads that found none wait here. Partner of `waiting`: a
  // thread adds itself there, then searches again for a chunk; the collector returns chunks, then
  // checks `waiting`. seq_cst, both: one of the two sees the other.
  alignas(64) std::atomic<std::uint32_t> given_back;
  std::atomic<std::uint32_t> waiting;
  std::atomic<std::uint32_t> is_exhausted;  // relaxed: idle threads hold all chunks; do not wait
  std::atomic<std::uint32_t> first_free;    // relaxed: where to search first; only a hint

  alignas(64) std::atomic<std::uint64_t> rounds;  // relaxed: shows that the collector lives
  // relaxed: the clock at this millisecond, on a cache line that changes no more often.
  alignas(64) std::atomic<std::uint64_t> now;

  alignas(64) std::atomic<std::uint64_t> next_id;     // relaxed: only has to differ
  std::atomic<std::uint32_t> images_without_place;    // relaxed
  std::atomic<std::uint32_t> images_without_mapping;  // relaxed: because of an address space limit

  alignas(64) ImagePlace images[max_images];

  // 1 + the index of the image's place; 0: free. Taken by compare-and-swap, acquire: pairs with the
  // release by which the collector returns it; the chunk is seen zeroed. One step both takes it and
  // says for which process, so a process killed right after it loses nothing.
  std::atomic<std::uint32_t> owners[max_chunks];

  Chunk* chunks() { return reinterpret_cast<Chunk*>(this + 1); }
};
static_assert(sizeof(Ring) % chunk_bytes == 0 && std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr char ring_magic[8] = {'T', 'S', 'R', 'I', 'N', 'G', '0', '3'};
inline constexpr char ring_variable[] = "TSMALLOC_RECORD";  // contains the name of the ring's file

}  // namespace ts::record
