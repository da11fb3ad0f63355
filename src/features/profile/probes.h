// Probes of sampled blocks for tracers: the USDT contract of OpenTelemetry's memory profiling,
// which eBPF profilers, bpftrace and gdb attach to.
//
//   otel_memory:alloc(ptr, size, weighted_bytes)   a sample was allocated, with its weight
//   otel_memory:free(ptr)                          it was freed
//
// A probe is a nop in cold code, an ELF note that says where it is, and a semaphore that the kernel
// increments while a tracer is attached. The semaphore is enough to start sampling
// (sampling_switch.h).
#pragma once

#include <cstdint>

#include "base/atomic.h"

namespace ts::engine {

// How many tracers are attached. The kernel finds and writes these through the notes. They are in a
// section with file contents, because the kernel looks for the semaphore in the file. relaxed: no
// data depends on them.
struct ProbeSemaphores {
  Atomic<std::uint16_t> alloc{0};
  Atomic<std::uint16_t> free{0};
};
static_assert(sizeof(ProbeSemaphores) == 4);
extern ProbeSemaphores probe_semaphores;

inline bool is_traced() noexcept {
  return (probe_semaphores.alloc.load(std::memory_order_relaxed) |
          probe_semaphores.free.load(std::memory_order_relaxed)) != 0;
}

// To be called without a lock: a tracer may take its time.
[[gnu::cold]] void probe_alloc(const void* p, std::uint64_t bytes,
                               std::uint64_t weighted_bytes) noexcept;
[[gnu::cold]] void probe_free(const void* p) noexcept;

}  // namespace ts::engine
