// Memory that is about to be returned to the system. The thread that returns it holds a lock, and
// other libraries may see the calls (os.h, *seen by others*) and allocate in them. So the memory is
// only noted here, and sent when the locks are released, by GivesBack: the first object in each
// function that may return memory.
//
//   Source::release, shrink -> leave, leave_break            under locks
//   ~GivesBack -> send_leaving -> os::unmap                  without
//                              -> os::discard, then os::shrink_break under break_lock
//                              -> leave_behind               what the system refuses: growth reuses it
//
// A fork holds the locks under which memory is noted, so the child inherits whole notes, and sends
// them with its next call. Mappings that another thread is sending at that moment stay in the
// child, unused.
#pragma once

#include <cstddef>

#include "classic/chunk.h"
#include "os/mutex.h"

namespace ts::classic {

// Serialises everything that moves the process's break, and guards the memory that was left behind.
// Taken after all other locks, and never while memory is sent.
extern Mutex break_lock;

// Notes whole pages of mappings.
void leave(std::byte* begin, std::size_t bytes) noexcept;

// Notes the last bytes below the break. False if they are not the last ones, or if the end of the
// break is being sent.
bool leave_break(std::byte* begin, std::byte* end) noexcept TS_REQUIRES(break_lock);

// The alignment of new memory from the break. While the end of the break is being sent, that is a
// page, because the last page below the break is returned as a whole.
std::size_t break_alignment() noexcept TS_REQUIRES(break_lock);

// Keeps memory that the system refuses to take, for the next source that grows.
void leave_behind(std::byte* begin, std::size_t bytes, bool from_break) noexcept
    TS_REQUIRES(break_lock);
// Takes such memory, at least `bytes`; null if there is none.
Chunk* reuse_left_behind(std::size_t bytes, bool from_break) noexcept TS_REQUIRES(break_lock);

// Marks that other libraries see a call of this thread and may use the heap: then nothing more is
// sent, so calls do not nest endlessly. Memory noted in the meantime is sent afterwards.
class SeenByOthers {
 public:
  SeenByOthers() noexcept : before_{is_now_} { is_now_ = true; }
  ~SeenByOthers() { is_now_ = before_; }
  SeenByOthers(const SeenByOthers&) = delete;
  SeenByOthers& operator=(const SeenByOthers&) = delete;
  static bool is_now() noexcept { return is_now_; }

 private:
  static constinit thread_local bool is_now_;
  bool before_;
};

// Notes again the mappings that the system refused to take back.
void retry_left_behind() noexcept;

// Sends all memory that is noted; true if there was any. Without a lock.
bool send_leaving() noexcept;

// Whether memory is noted, at least by this thread.
bool any_leaves() noexcept;

// In the child of a fork.
void fork_child_leaving() noexcept;

struct GivesBack {
  GivesBack() = default;
  ~GivesBack() {
    if (any_leaves()) [[unlikely]]
      send_leaving();
  }
  GivesBack(const GivesBack&) = delete;
  GivesBack& operator=(const GivesBack&) = delete;
};

// Allocates by `allocate()`, which returns without a lock. If the system refuses memory, the heap
// has noted its unused memory: this sends it and tries again.
template <class Allocate>
void* allocate_or_make_room(Allocate allocate) noexcept {
  for (;;) {
    void* const payload = allocate();
    if (payload != nullptr || !send_leaving()) [[likely]]
      return payload;
  }
}

}  // namespace ts::classic
