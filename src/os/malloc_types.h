// Types and constants of glibc's <malloc.h> that other C libraries lack. Programs compiled for
// glibc call functions with these types there, too.
#pragma once

#include <malloc.h>
#include <stddef.h>

#if !defined(__GLIBC__)
struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
// Declaring these functions here avoids a warning where they are defined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#ifdef __cplusplus
extern "C" struct mallinfo mallinfo() noexcept;
extern "C" struct mallinfo2 mallinfo2() noexcept;
#endif
#pragma GCC diagnostic pop

// Parameters of mallopt.
enum {
  M_MXFAST = 1,
  M_NLBLKS,
  M_GRAIN,
  M_KEEP,
  M_TRIM_THRESHOLD = -1,
  M_TOP_PAD = -2,
  M_MMAP_THRESHOLD = -3,
  M_MMAP_MAX = -4,
  M_CHECK_ACTION = -5,
  M_PERTURB = -6,
  M_ARENA_TEST = -7,
  M_ARENA_MAX = -8,
};
#endif
