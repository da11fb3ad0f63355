#include "os/entropy.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

constexpr unsigned do_not_wait = 1;  // GRND_NONBLOCK of <linux/random.h>

// Returns how many bytes the kernel gave; early during boot it has none to give.
std::size_t ask_kernel(std::byte* begin, std::size_t bytes) noexcept {
  std::size_t got = 0;
  while (got < bytes) {
    const long more = call(SYS_getrandom, begin + got, bytes - got, do_not_wait);
    if (more > 0) {
      got += static_cast<std::size_t>(more);
    } else if (more != -EINTR) {
      break;
    }
  }
  return got;
}

// relaxed: every thread finds the same
constinit std::atomic<const void*> given_at_start{nullptr};

// Derived from the 16 random bytes that the kernel gives each process at its start. Time and
// process ID make children and later calls differ.
void make_do(std::byte* begin, std::size_t bytes) noexcept {
  std::uint64_t seed[2] = {};
  if (const void* const given = given_at_start.load(std::memory_order_relaxed))
    std::memcpy(seed, given, sizeof seed);
  timespec now{};
  call(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  std::uint64_t state = seed[0] ^ mix(static_cast<std::uint64_t>(now.tv_nsec)) ^
                        mix(static_cast<std::uint64_t>(now.tv_sec) << 32 ^
                            static_cast<std::uint64_t>(call(SYS_getpid)) ^ address_of(begin));
  for (std::size_t i = 0; i < bytes; ++i) {
    state = mix(state + seed[1] + i);
    begin[i] = static_cast<std::byte>(state >> 56);
  }
}

}  // namespace

void find_entropy() noexcept {
  given_at_start.store(reinterpret_cast<const void*>(::getauxval(AT_RANDOM)),
                       std::memory_order_relaxed);
}

void fill_with_entropy(void* begin, std::size_t bytes) noexcept {
  auto* const at = static_cast<std::byte*>(begin);
  const std::size_t got = ask_kernel(at, bytes);
  if (got < bytes) make_do(at + got, bytes - got);
}

void make_read_only(void* begin, std::size_t bytes) noexcept {
  call(SYS_mprotect, begin, bytes, PROT_READ);
}

}  // namespace ts::os
