// The functions of the malloc family that report or tune, from a heap's measures alone: mallinfo,
// malloc_info, malloc_stats, mallopt. They may use stdio, hence memory: the caller holds no lock of
// the heap. A thread that is being cancelled completes its report.
#pragma once

#include <cstdio>

#include "base/heap_like.h"
#include "os/malloc_types.h"

namespace ts {

struct mallinfo2 mallinfo2_of(const HeapMeasures& measures) noexcept;

// The same in the ints of the old interface, saturated at INT_MAX (glibc's wrap).
struct mallinfo mallinfo_of(const HeapMeasures& measures) noexcept;

// XML in the manner of glibc's malloc_info; 0, or an error number: EINVAL if `options` is not 0,
// EIO if the stream fails.
int write_malloc_info(const HeapMeasures& measures, int options, std::FILE* stream) noexcept;

void write_malloc_stats(const HeapMeasures& measures) noexcept;

// 1 if the parameter and its value are accepted, with or without effect, else 0 (docs/embedding.md).
int accept_mallopt(int parameter, int value) noexcept;

}  // namespace ts
