// What a replay executes, in memory: the operations of each process of a recorded program, in
// recorded order. load.h makes it from a trace.
//
// Besides the order within each thread, a replay keeps these:
//
// - A *slot* holds the pointer of one live object, as in the trace. Operations on a slot that
//   several threads use are `shared`: each has a turn, runs when the slot's turn counter has that
//   value, and raises it by one. Only `waits` may have to wait: the operation before it in that slot
//   belongs to another thread.
// - An *epoch* is a range of operations. A thread enters it for its first operation there, as soon
//   as the first `after` epochs are done, that is, left by all threads with operations in them. A
//   fork is an epoch of its own that waits for all earlier ones, and that all later ones wait for:
//   so the child finds exactly the objects that it found when it was recorded.
// - `thread_begin` creates a thread when the first `turn` ends of threads have happened.
//
// The recorded order satisfies all of these, so they cannot form a cycle: whatever order a replay
// takes, some thread can always continue.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/format.h"

namespace ts::plan {

inline constexpr std::uint32_t none = 0xffff'ffff;  // no image, no thread, no operation

// Of an operation, as of a trace's event. These are no calls, and a quantum does not count them:
//
//   thread_begin  its creator's. slot: the thread that begins; turn: how many ends must have happened
//   thread_end    the thread's last operation
//   fork          slot: the child's place in the table of images, or `none` if nothing of it is known
using trace::Kind;
inline constexpr std::size_t call_kinds = 6;
inline constexpr bool is_call(Kind kind) { return kind <= Kind::refused; }

inline constexpr std::uint64_t max_bytes = (std::uint64_t{1} << 40) - 1;  // of one object
inline constexpr std::uint32_t turn_mask = 0x7fff'ffff;  // turns count modulo 2^31; see waiting.h

// Flags of an operation.
inline constexpr std::uint16_t flag_shared = 1;  // has a turn
inline constexpr std::uint16_t flag_waits = 2;   // must look at the turn before it runs
inline constexpr std::uint16_t flag_cut = 4;     // of `refused`: more than max_bytes were asked for

struct Operation {
  std::uint64_t size : 40;  // of realloc the new one, of free 0
  Kind kind : 4;
  std::uint64_t log2_alignment : 6;  // of `aligned`
  std::uint64_t flags : 14;
  std::uint32_t slot;  // of the object; a refused request has none
  std::uint32_t turn;
  std::uint32_t thread;
  std::uint32_t next;  // of the same thread; none: it is the last
};
static_assert(sizeof(Operation) == 24);

struct Thread {
  std::uint32_t first;  // operation; none: it has none
  std::uint32_t end;    // the number of its end, counted in recorded order; none: it lives as long
                        // as the image
};

struct Epoch {
  std::uint32_t first;       // operation
  std::uint32_t threads;     // that enter it
  std::uint32_t after;       // how many epochs, from the first, must be done before any enters
  std::uint64_t last_event;  // the number of the first event after it, in the image
};

struct Totals {
  std::uint64_t calls[call_kinds];
  std::uint64_t bytes[call_kinds];  // requested; of realloc the new sizes, of free the freed ones

  void add(Kind kind, std::uint64_t size) {
    ++calls[static_cast<std::size_t>(kind)];
    bytes[static_cast<std::size_t>(kind)] += size;
  }
};

// One process. The first is the one that replay begins as; the others are its forked descendants.
struct Image {
  std::uint32_t number;  // in the trace
  std::uint32_t parent;  // place among the images; none: the first
  std::uint32_t threads;
  std::uint32_t epochs;
  std::uint32_t operations;
  std::uint32_t ends;  // of threads
  std::uint32_t epochs_at_most;
  Thread* thread_table;
  Operation* operation_table;
  Epoch* epoch_table;    // ended by one with first == operations
  std::uint64_t* times;  // of each operation, in ns since the image began; null: not asked for
  std::uint64_t slots;   // every slot is below this number
  std::uint64_t events;  // of the image in the trace
  Totals totals;
  std::uint64_t inherited_bytes;  // live when it began: its parent's at the fork
  std::uint64_t live_bytes;       // when it ended
  std::uint64_t live_objects;
  std::uint64_t peak_live_bytes;
  std::uint64_t peak_event;  // the first event after which live bytes were at their peak
  std::uint64_t peak_epoch;
  std::uint64_t left_out;  // events that are not replayed: of objects larger than max_bytes
};

}  // namespace ts::plan
