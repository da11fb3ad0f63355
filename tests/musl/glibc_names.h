// Included before the conformance and reliability programs, which are written for glibc: declares
// names that musl's headers lack. The allocator provides the functions.
#pragma once

#include <stdio.h>

#include "os/malloc_types.h"

struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
int malloc_info(int options, FILE* stream);
void malloc_stats(void);
int malloc_trim(size_t keep_bytes);
int mallopt(int parameter, int value);
void* pvalloc(size_t bytes);
