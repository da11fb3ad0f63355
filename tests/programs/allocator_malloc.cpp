// Over malloc and free, whoever provides them.
#include <dlfcn.h>
#include <malloc.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "programs/allocator.h"

namespace ts::test {
namespace {

// An allocator that brings no mallinfo2 of its own leaves libc's, which knows nothing of its heap.
bool mallinfo2_is_of_this_malloc() {
  Dl_info of_malloc{};
  Dl_info of_mallinfo2{};
  return ::dladdr(reinterpret_cast<void*>(&std::malloc), &of_malloc) != 0 &&
         ::dladdr(reinterpret_cast<void*>(&::mallinfo2), &of_mallinfo2) != 0 &&
         of_malloc.dli_fbase == of_mallinfo2.dli_fbase;
}

// Our drop-in libraries tell the calls of sbrk in malloc_info's XML: <growth calls="N" sbrk="N"/>.
std::optional<std::size_t> told_sbrk_calls() {
  char text[4096] = {};
  std::FILE* stream = ::fmemopen(text, sizeof text - 1, "w");
  if (stream == nullptr) return {};
  const bool told = ::malloc_info(0, stream) == 0;
  std::fclose(stream);
  const char* const growth = told ? std::strstr(text, "<growth ") : nullptr;
  std::size_t calls = 0;
  if (growth == nullptr || std::sscanf(growth, "<growth calls=\"%*u\" sbrk=\"%zu\"/>", &calls) != 1)
    return {};
  return calls;
}

}  // namespace

const char* const allocator_name = "malloc";

void prepare_allocator() {}

// Some refuse: they never grow by the break.
bool set_growth(std::size_t bytes) {
  if (bytes > INT_MAX) return false;
  ::mallopt(M_TOP_PAD, static_cast<int>(bytes));
  return true;
}

void* allocate(std::size_t bytes) { return std::malloc(bytes); }

void release(void* block) { std::free(block); }

SegmentFigures segment_figures() {
  if (!mallinfo2_is_of_this_malloc()) return {};
  const struct mallinfo2 info = ::mallinfo2();
  return {info.arena + info.hblkhd, info.fordblks, told_sbrk_calls()};
}

}  // namespace ts::test
