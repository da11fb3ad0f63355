// What a replay executes, in memory: for each process of a recorded program, an array of operations
// for each thread. load.h makes it of a trace.
//
// Orders that it keeps:
//
// - A *slot* holds the pointer of one live object, as in the trace. A slot that only one thread uses
//   needs no order but that thread's own. Operations on other slots are
//   `shared`: each carries a turn and runs when the slot's turn counter has that value, which it
//   then raises by one. Only `waits` may have to wait: the operation before it in that slot belongs
//   to another thread.
// - An *epoch* is a range of the image's events. All operations of a thread in it lie between two
//   markers, `enter` and `leave`; to enter waits until the first `after` epochs are done, that is,
//   left by all that were to enter them. A fork is an epoch of its own that waits for all before
//   it, and that all later ones wait for: so the child finds exactly the objects that it found when
//   it was recorded.
// - `start` creates a thread when the first `turn` ends of threads have happened.
//
// The recorded order of the operations (the runs) keeps all of these, so none of them can be a
// circle: whatever order a replay takes, there is always a thread that may go on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::plan {

inline constexpr std::uint32_t none = 0xffff'ffff;  // no image, no thread

enum class Kind : std::uint8_t {
  // Calls, as in a trace (trace::Kind). slot: of the object.
  malloc,
  calloc,
  aligned,
  realloc,  // size: the new one
  free,     // size: 0
  refused,  // an allocation that got no memory when it was recorded; it has no slot
  // Markers. They are no calls, and a quantum does not count them. All but `enter`, `leave` and
  // `end` lie within an epoch, as calls do.
  enter,  // slot: the epoch
  leave,  // slot: the same epoch
  start,  // slot: the thread that begins; turn: how many ends must have happened
  end,    // slot: the number of this end, counted from 0 in recorded order; the thread's last one
  fork,   // slot: the child's place in the table of images, or `none` if nothing of it is known
  count
};
inline constexpr std::size_t call_kinds = 6;
inline constexpr const char* kind_names[] = {"malloc", "calloc",  "aligned", "realloc",
                                             "free",   "refused", "enter",   "leave",
                                             "start",  "end",     "fork"};
inline constexpr bool is_call(Kind kind) { return static_cast<std::size_t>(kind) < call_kinds; }

inline constexpr std::uint64_t most_bytes = (std::uint64_t{1} << 40) - 1;  // of one object
inline constexpr std::uint32_t turn_mask = 0x7fff'ffff;  // turns count modulo 2^31; see replay

// Flags of an operation.
inline constexpr std::uint16_t flag_shared = 1;  // has a turn
inline constexpr std::uint16_t flag_waits = 2;   // must look at the turn before it runs
inline constexpr std::uint16_t flag_cut = 4;  // of `refused`: more than most_bytes were asked for

struct Operation {
  std::uint64_t size : 40;
  std::uint64_t kind : 4;
  std::uint64_t log2_alignment : 6;  // of `aligned`
  std::uint64_t flags : 14;
  std::uint32_t slot;
  std::uint32_t turn;
};
static_assert(sizeof(Operation) == 16);

struct Thread {
  std::uint64_t first_operation;  // in the image's array
  std::uint64_t operations;
  std::uint64_t calls;
  std::uint32_t ends;     // 1: its last operation is `end`. 0: it lives as long as the image
  std::uint32_t creator;  // none: thread 0 alone
};
static_assert(sizeof(Thread) == 32);

struct Epoch {
  std::uint64_t live_bytes;  // when it has ended
  std::uint64_t last_event;  // the number of the first event after it, in the image
  std::uint32_t threads;     // that enter it
  std::uint32_t after;       // how many epochs, from the first, must be done before any enters
};
static_assert(sizeof(Epoch) == 24);

// The recorded order: so many operations (markers, too) of this thread come next.
struct Run {
  std::uint32_t thread;
  std::uint32_t operations;
};
static_assert(sizeof(Run) == 8);

struct Totals {
  std::uint64_t calls[call_kinds];
  std::uint64_t bytes[call_kinds];  // requested; of realloc the new sizes, of free the freed ones
};

// One process. The first is the one that replay begins as; the others are its forked descendants.
struct Image {
  std::uint32_t number;  // in the trace
  std::uint32_t parent;  // place among the images; none: the first
  std::uint32_t threads;
  std::uint32_t epochs;
  std::uint64_t operations;
  std::uint64_t runs;
  Thread* thread_table;
  Operation* operation_table;
  Epoch* epoch_table;
  Run* run_table;
  std::uint64_t*
      times;  // of each operation, in nanoseconds since the image began; null: not asked for
  std::uint64_t slots;   // every slot is below this number
  std::uint64_t events;  // of the image in the trace
  std::uint64_t ends;    // threads with `ends`
  Totals totals;
  std::uint64_t inherited_bytes;  // live when it began: its parent's at the fork
  std::uint64_t live_bytes;       // when it ended
  std::uint64_t live_objects;
  std::uint64_t peak_live_bytes;
  std::uint64_t peak_event;  // the first event after which live bytes were at their peak
  std::uint64_t peak_epoch;
  std::uint64_t left_out;  // events that are not replayed: of objects larger than most_bytes
};

}  // namespace ts::plan
