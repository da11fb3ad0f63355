// Implements allocator.h over malloc and free of any allocator.
#include <malloc.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "programs/allocator.h"
#include "programs/support/mallinfo.h"

namespace ts::test {
namespace {

// Our drop-in libraries report their sbrk calls in malloc_info's XML: <growth calls="N" sbrk="N"/>.
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

// Some refuse, since they never grow by the break.
bool set_growth(std::size_t bytes) {
  if (bytes > INT_MAX) return false;
  ::mallopt(M_TOP_PAD, static_cast<int>(bytes));
  return true;
}

void* allocate(std::size_t bytes) { return std::malloc(bytes); }

void release(void* block) { std::free(block); }

SegmentFigures segment_figures() {
  const auto info = own_mallinfo2();
  if (!info) return {};
  return {info->arena + info->hblkhd, info->fordblks, told_sbrk_calls()};
}

}  // namespace ts::test
