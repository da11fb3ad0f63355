#include "features/profile/probes.h"

namespace ts::engine {

[[gnu::section(".probes")]] constinit ProbeSemaphores probe_semaphores;

// The note's descriptor: the addresses of the nop; of a base symbol, from which tools see how far a
// prelinker moved the file; and of the semaphore. Then provider, name and arguments, each as its
// size, an at sign, and the operand. A copy of the code, by inlining or in an archive's other
// members, has a note of its own.
// (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation)
#define TS_PROBE(name, semaphore, arguments, ...)                                       \
  asm volatile(                                                                         \
      "990: nop\n"                                                                      \
      ".pushsection .note.stapsdt, \"\", %%note\n"                                      \
      ".balign 4\n"                                                                     \
      ".4byte 992f - 991f, 994f - 993f, 3\n"                                            \
      "991: .asciz \"stapsdt\"\n"                                                       \
      "992: .balign 4\n"                                                                \
      "993: .8byte 990b, _.stapsdt.base, _ZN2ts6engine16probe_semaphoresE + " semaphore \
      "\n"                                                                              \
      ".asciz \"otel_memory\"\n"                                                        \
      ".asciz \"" name                                                                  \
      "\"\n"                                                                            \
      ".asciz \"" arguments                                                             \
      "\"\n"                                                                            \
      "994: .balign 4\n"                                                                \
      ".popsection\n"                                                                   \
      ".ifndef _.stapsdt.base\n"                                                        \
      ".pushsection .stapsdt.base, \"aG\", %%progbits, .stapsdt.base, comdat\n"         \
      ".weak _.stapsdt.base\n"                                                          \
      ".hidden _.stapsdt.base\n"                                                        \
      "_.stapsdt.base: .space 1\n"                                                      \
      ".size _.stapsdt.base, 1\n"                                                       \
      ".popsection\n"                                                                   \
      ".endif"                                                                          \
      : /* memory: what the program wrote before is there for the tracer */             \
      : __VA_ARGS__                                                                     \
      : "memory")

[[gnu::noinline]] void probe_alloc(const void* p, std::uint64_t bytes,
                                   std::uint64_t weighted_bytes) noexcept {
  TS_PROBE("alloc", "0", "8@%0 8@%1 8@%2", "r"(p), "r"(bytes), "r"(weighted_bytes));
}

[[gnu::noinline]] void probe_free(const void* p) noexcept { TS_PROBE("free", "2", "8@%0", "r"(p)); }

}  // namespace ts::engine
