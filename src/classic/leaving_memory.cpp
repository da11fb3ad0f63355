#include "classic/leaving_memory.h"

#include "os/os.h"

namespace ts::classic {

constinit Mutex break_lock;
constinit thread_local bool SeenByOthers::is_now_ = false;

namespace {

// Linked through `next`. Pushed by any thread and taken whole, so there is no ABA.
constinit std::atomic<Chunk*> leaving_mappings{nullptr};

// break_lock: the end of the break, if `bytes` is not 0. It is `noted`, or being sent.
struct LeavingBreak {
  std::byte* end;
  std::size_t bytes;
  std::atomic<bool> noted;  // any reads
};
constinit LeavingBreak leaving_break{};

constinit Chunk* left_behind = nullptr;  // break_lock

// The child of a fork finds break_lock reset, perhaps in the middle of a change to the data that it
// guards. Such changes are a few stores, kept in order by this; busy_mark.h explains why the child
// sees them in that order. It may lose memory, but returns none twice.
void keep_order_for_child() noexcept { std::atomic_thread_fence(std::memory_order_release); }

Chunk* as_chunk(std::byte* begin, std::size_t bytes, bool from_break) noexcept {
  auto* const chunk = reinterpret_cast<Chunk*>(begin);
  chunk->bytes_and_origin = bytes | (from_break ? 1U : 0U);
  return chunk;
}

// The noted mappings, oldest first.
Chunk* take_mappings() noexcept {
  // acquire: pairs with the release in leave(); sees the sizes and links
  Chunk* chunk = leaving_mappings.exchange(nullptr, std::memory_order_acquire);
  Chunk* oldest = nullptr;
  while (chunk != nullptr) {
    Chunk* const older = chunk->next;
    chunk->next = oldest;
    oldest = chunk;
    chunk = older;
  }
  return oldest;
}

bool send_mappings() noexcept {
  Chunk* chunk = take_mappings();
  const bool any = chunk != nullptr;
  while (chunk != nullptr) {
    Chunk* const next = chunk->next;
    std::byte* const begin = chunk->begin();
    const std::size_t bytes = chunk->bytes();
    if (!os::unmap(begin, bytes)) {
      os::discard(begin, bytes);
      const Guard guard{break_lock};
      leave_behind(begin, bytes, false);
    }
    chunk = next;
  }
  return any;
}

bool send_break() noexcept {
  std::byte* end = nullptr;
  std::size_t bytes = 0;
  {
    const Guard guard{break_lock};
    if (!leaving_break.noted.load(std::memory_order_relaxed)) return false;
    leaving_break.noted.store(false, std::memory_order_relaxed);
    end = leaving_break.end;
    bytes = leaving_break.bytes;
  }
  // Includes the last page, since nobody uses the rest of it (break_alignment).
  const std::uintptr_t first_page = align_up(address_of(end - bytes), os::page_bytes());
  const std::uintptr_t end_page = align_up(address_of(end), os::page_bytes());
  if (end_page > first_page)
    os::discard(reinterpret_cast<void*>(first_page), end_page - first_page);
  const Guard guard{break_lock};
  leaving_break.bytes = 0;
  keep_order_for_child();
  if (!os::shrink_break(end, bytes)) leave_behind(end - bytes, bytes, true);
  return true;
}

}  // namespace

void leave(std::byte* begin, std::size_t bytes) noexcept {
  Chunk* const chunk = as_chunk(begin, bytes, false);
  chunk->next = leaving_mappings.load(std::memory_order_relaxed);
  // release: pairs with the acquire in send_mappings()
  while (!leaving_mappings.compare_exchange_weak(chunk->next, chunk, std::memory_order_release,
                                                 std::memory_order_relaxed)) {
  }
}

bool leave_break(std::byte* begin, std::byte* end) noexcept {
  const auto bytes = static_cast<std::size_t>(end - begin);
  if (leaving_break.bytes == 0) {
    if (os::current_break() != end) return false;
    leaving_break.end = end;
    keep_order_for_child();
    leaving_break.bytes = bytes;
  } else {
    const bool is_next = end == leaving_break.end - leaving_break.bytes;
    if (!is_next || !leaving_break.noted.load(std::memory_order_relaxed) ||
        os::current_break() != leaving_break.end)
      return false;
    leaving_break.bytes += bytes;
  }
  leaving_break.noted.store(true, std::memory_order_relaxed);
  return true;
}

std::size_t break_alignment() noexcept {
  return leaving_break.bytes != 0 ? os::page_bytes() : granule_bytes;
}

void leave_behind(std::byte* begin, std::size_t bytes, bool from_break) noexcept {
  Chunk* const chunk = as_chunk(begin, bytes, from_break);
  chunk->next = left_behind;
  keep_order_for_child();
  left_behind = chunk;
}

Chunk* reuse_left_behind(std::size_t bytes, bool from_break) noexcept {
  for (Chunk** link = &left_behind; *link != nullptr; link = &(*link)->next) {
    Chunk* const chunk = *link;
    if (chunk->bytes() < bytes || chunk->from_break() != from_break) continue;
    *link = chunk->next;
    keep_order_for_child();  // the chunk's own links come later
    return chunk;
  }
  return nullptr;
}

void retry_left_behind() noexcept {
  const Guard guard{break_lock};
  while (Chunk* const chunk = reuse_left_behind(0, false)) leave(chunk->begin(), chunk->bytes());
}

bool any_leaves() noexcept {
  // relaxed: a thread sees what it noted itself, and others send what they noted
  return leaving_mappings.load(std::memory_order_relaxed) != nullptr ||
         leaving_break.noted.load(std::memory_order_relaxed);
}

bool send_leaving() noexcept {
  if (SeenByOthers::is_now() || !any_leaves()) return false;
  const SeenByOthers seen;
  bool any = false;
  for (bool more = true; more; any = any || more) {
    more = send_mappings();
    more = send_break() || more;
  }
  return any;
}

void fork_child_leaving() noexcept {
  break_lock.reset_after_fork();
  // The thread that was sending it no longer exists.
  if (!SeenByOthers::is_now())
    leaving_break.noted.store(leaving_break.bytes != 0, std::memory_order_relaxed);
}

}  // namespace ts::classic
