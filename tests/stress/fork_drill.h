// Forks from a program full of threads: eight threads do mixed work on an allocator while another
// forks again and again. Each child allocates, checks and frees blocks that other threads had
// allocated, and execs. A lock that a fork left behind shows as a hang, which the watchdog turns
// into a failure with the allocator's name; a torn heap shows as damaged contents or a crash.
//
// A child of a threaded process may call little that POSIX promises; malloc after fork is what
// glibc promises beyond it, and what programs rely on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "programs/support/random.h"

namespace ts::stress {

struct Block {
  char* address;
  std::size_t bytes;
  std::uint64_t key;
  std::size_t heap;  // for the drilled allocator: where the block comes from
};

// The subject of the drill. Both are called from many threads, and in children.
struct Drilled {
  const char* name;
  // Any block, `key` and contents excepted; a null address where memory may run out.
  Block (*make)(test::Random& random);
  void (*release)(const Block& block);
};

struct Drill {
  std::size_t forks;
  std::size_t threads;
  std::uint64_t seed;
};

// Exit status of the program: 0 if every child ended well.
int run_drill(const Drilled& drilled, const Drill& drill);

}  // namespace ts::stress
