// Acquires chunks; see thread.h.
#include "record/thread.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "common/system.h"

namespace ts::record {
namespace {

constexpr long nap_ns = 100'000'000;  // a wait for room ends then, whatever was missed
constexpr int max_spins = 64;  // before the first wait: the collector may be about to return one
// The collector comes by at least ten times a second. If it has not for this long, it was killed.
constexpr std::uint64_t max_idle_naps = 100;
constexpr std::uint64_t max_idle_spins = 200'000'000;  // if naps are forbidden

void pause_processor() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

Chunk* claim_among(Ring& ring, std::uint32_t owner, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    std::uint32_t unowned = 0;
    if (ring.owners[i].load(std::memory_order_relaxed) == 0 &&
        ring.owners[i].compare_exchange_strong(unowned, owner, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
      ring.first_free.store(i + 1, std::memory_order_relaxed);
      Chunk& chunk = ring.chunks()[i];
      chunk.head.index = i;
      return &chunk;
    }
  }
  return nullptr;
}

// Low chunks first: a ring that is emptied in time stays in the cache.
Chunk* claim_chunk(const ImagePlace& image) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  const std::uint32_t count = ring.chunk_count;
  const std::uint32_t owner = image.index + 1;
  const std::uint32_t first = ring.first_free.load(std::memory_order_relaxed);
  Chunk* const found = first < count ? claim_among(ring, owner, first, count) : nullptr;
  if (found != nullptr) return found;
  return claim_among(ring, owner, 0, first < count ? first : count);
}

void nap(Ring& ring, std::uint32_t seen) {
  if (!may_call_system.load(std::memory_order_relaxed)) {
    pause_processor();
    return;
  }
  const timespec timeout{.tv_sec = 0, .tv_nsec = nap_ns};
  // Shared between processes, so not FUTEX_PRIVATE_FLAG.
  syscall(SYS_futex, &ring.given_back, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

// Waits for a chunk; null if there is none.
Chunk* wait_for_chunk(ImagePlace& image) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  std::uint64_t rounds = ring.rounds.load(std::memory_order_relaxed);
  const bool can_nap = may_call_system.load(std::memory_order_relaxed);
  const std::uint64_t max_idle = can_nap ? max_idle_naps : max_idle_spins;
  for (std::uint64_t idle = 0; idle < max_idle;) {
    ring.waiting.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = ring.given_back.load(std::memory_order_seq_cst);
    Chunk* const chunk = claim_chunk(image);
    if (chunk == nullptr && ring.is_exhausted.load(std::memory_order_relaxed) == 0) {
      nap(ring, seen);
    }
    ring.waiting.fetch_sub(1, std::memory_order_relaxed);
    if (chunk != nullptr) return chunk;
    if (ring.is_exhausted.load(std::memory_order_relaxed) != 0) return nullptr;
    const std::uint64_t now_rounds = ring.rounds.load(std::memory_order_relaxed);
    idle = now_rounds == rounds ? idle + 1 : 0;
    rounds = now_rounds;
  }
  stop_recording();
  return nullptr;
}

Chunk* get_chunk(ImagePlace& image) {
  for (int i = 0; i < max_spins; ++i) {
    Chunk* const chunk = claim_chunk(image);
    if (chunk != nullptr) return chunk;
    pause_processor();
  }
  image.waits.fetch_add(1, std::memory_order_relaxed);
  const bool has_clock = may_read_clock.load(std::memory_order_relaxed);
  const std::uint64_t begin_ns = has_clock ? unsigned_now_ns() : 0;
  Chunk* const chunk = wait_for_chunk(image);
  if (has_clock) image.wait_ns.fetch_add(unsigned_now_ns() - begin_ns, std::memory_order_relaxed);
  if (chunk == nullptr) image.given_up.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

void give_back_unused(Chunk& chunk) {
  Ring& ring = *own_ring.load(std::memory_order_acquire);
  ring.owners[chunk.head.index].store(0, std::memory_order_release);
}

void increment_alone(std::atomic<std::uint32_t>& counter) {
  // There is one writer; a signal handler in between may lose a count, but nothing else.
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

constinit thread_local Thread self{};

void enrol(ImagePlace& image) {
  if (self.number != 0) return;
  const std::uint32_t number = image.next_thread.fetch_add(1, std::memory_order_relaxed);
  if (self.number == 0) self.number = number + 1;
}

bool take_chunk(ImagePlace& image) {
  const int saved_errno = errno;
  enrol(image);
  Record* const before = self.next;
  Chunk* const chunk = is_at_chunk_end(before) ? get_chunk(image) : nullptr;
  if (chunk != nullptr) {
    chunk->head.thread.store(self.number - 1, std::memory_order_relaxed);
    // A signal handler may have got one meanwhile.
    if (!move_on(self.next, before, chunk->records)) give_back_unused(*chunk);
  }
  errno = saved_errno;
  if (is_at_chunk_end(self.next)) return false;
  if (self.is_announced == 0) {
    self.is_announced = 1;
    write_event(image, RawKind::thread_begin, self.number - 1, self.former_number);
    watch_own_end();
  }
  return true;
}

void note_ignored(ImagePlace& image) {
  if (is_at_chunk_end(self.next)) {  // not for this: libc's last free(NULL) comes after the end
    image.ignored.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // The head of the chunk that the next record is in.
  const auto chunk = reinterpret_cast<std::uintptr_t>(self.next) / chunk_bytes * chunk_bytes;
  increment_alone(reinterpret_cast<Chunk*>(chunk)->head.ignored);
}

void leave_chunk() {
  Record* const next = self.next;
  self.next = nullptr;
  if (is_at_chunk_end(next)) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(next) / chunk_bytes * chunk_bytes;
  auto* const chunk = reinterpret_cast<Chunk*>(begin);
  const auto used = static_cast<std::uint32_t>(next - chunk->records);
  // release: pairs with the collector's acquire; the records are seen
  chunk->head.closed.store(1 + used, std::memory_order_release);
}

}  // namespace ts::record
