// The reporting and tuning functions of the malloc family, based only on a heap's statistics:
// mallinfo, malloc_info, malloc_stats, mallopt. They may use stdio and thus allocate, so the caller
// holds no lock of the heap. A thread that is being cancelled completes its report.
#pragma once

#include <cstdio>

#include "base/heap_like.h"
#include "os/malloc_types.h"

namespace ts {

struct mallinfo2 mallinfo2_of(const HeapMeasures& measures) noexcept;

// The same in the ints of the old interface, saturated at INT_MAX (glibc's wrap around).
struct mallinfo mallinfo_of(const HeapMeasures& measures) noexcept;

// XML like that of glibc's malloc_info. Returns 0, EINVAL if `options` is not 0, or EIO if the
// stream fails.
int write_malloc_info(const HeapMeasures& measures, int options, std::FILE* stream) noexcept;

void write_malloc_stats(const HeapMeasures& measures) noexcept;

// 1 if the parameter and its value are accepted, whether or not they have an effect, otherwise 0
// (docs/embedding.md).
int accept_mallopt(int parameter, int value) noexcept;

}  // namespace ts
